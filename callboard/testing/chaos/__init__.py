"""Chaos: faults put into a running system on purpose, a history of what happened, and the invariants that must hold.

``python -m callboard.testing.chaos --duration 30`` runs one campaign on a private system with a scripted model. It
kills real processes, so it asks for ``CHAOS=1`` in the environment.
"""
