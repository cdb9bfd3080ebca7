"""Test doubles that ship with Callboard: scripted models and servers, for users' tests as for its own."""
