"""The terminal: how events and listings look as text, and the interactive chat."""
