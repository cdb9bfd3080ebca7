"""What can be wrong with a child spec or a supervisor's flags: one class per fault, raised before any effect.

Raised in the caller, where the spec is made, or by the core when a spec does not fit its supervisor.
"""

from __future__ import annotations

from typing import ClassVar


class SpecError(ValueError):
    """A spec or the flags are wrong; the message names the field. ``kind`` is one word for a program to test."""

    kind: ClassVar[str] = "invalid_spec"


class UnknownKey(SpecError):
    """A mapping has a key that no spec knows."""

    kind = "unknown_key"


class MissingId(SpecError):
    """A mapping names no id."""

    kind = "missing_id"


class MissingStart(SpecError):
    """A mapping does not say what to start."""

    kind = "missing_start"


class InvalidId(SpecError):
    """The id is no usable name."""

    kind = "invalid_id"


class InvalidStart(SpecError):
    """The actor's class path, its kind, its arguments or its start limit are wrong."""

    kind = "invalid_start"


class InvalidRestart(SpecError):
    """The restart type is none of the three."""

    kind = "invalid_restart_type"


class InvalidShutdown(SpecError):
    """The shutdown limit is no number of seconds."""

    kind = "invalid_shutdown"


class InvalidType(SpecError):
    """The child is neither a worker nor a supervisor."""

    kind = "invalid_child_type"


class InvalidSignificant(SpecError):
    """``significant`` is no bool, or the supervisor never shuts down by itself."""

    kind = "invalid_significant"


class InvalidBackoff(SpecError):
    """The backoff's numbers contradict each other."""

    kind = "invalid_backoff"


class InvalidExhaustion(SpecError):
    """``max_consecutive`` or ``on_exhausted`` is wrong."""

    kind = "invalid_exhaustion"


class InvalidIntensity(SpecError):
    """The restart limit or its period is wrong."""

    kind = "invalid_intensity"


class InvalidStrategy(SpecError):
    """The strategy is none of the known ones."""

    kind = "invalid_strategy"


class InvalidAutoShutdown(SpecError):
    """``auto_shutdown`` is none of the known ones."""

    kind = "invalid_auto_shutdown"


class InvalidMaxChildren(SpecError):
    """``max_children`` is no number of children."""

    kind = "invalid_max_children"


class BadCombination(SpecError):
    """Each field is right alone, but not together."""

    kind = "bad_combination"


class DuplicateId(SpecError):
    """Two children of one supervisor have the same id."""

    kind = "duplicate_id"
