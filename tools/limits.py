"""What one call of a tool may use: as its author says, as the operator says, and which of the two holds.

Pure values. Nothing is enforced here: ``tools/sandbox_plan.py`` makes rules of limits, ``actors/worker_process.py``
watches them. Called by the decorator, the loader, the configuration and the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias

Profile: TypeAlias = Literal["none", "confined", "isolated"]

PROFILES: tuple[Profile, ...] = ("none", "confined", "isolated")
EVERY_TOOL = "*"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERS = ("memory_mb", "cpu_s", "open_files", "file_mb", "output_mb", "processes")
_MOST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one call. Sizes are in MiB, ``cpu_s`` in seconds of CPU; None is no limit.

    ``memory_mb`` counts above what the process has before the tool runs. ``file_mb`` is for one file and for all of
    the private folder, ``output_mb`` for what is printed, ``processes`` for the call's processes at one moment.
    ``sandbox`` is the profile; ``env`` names variables of the daemon's environment that the tool is given besides the
    usual ones; ``readable`` and ``writable`` are absolute paths that a sandboxed tool may use besides its own folder.
    """

    memory_mb: int | None = None
    cpu_s: float | None = None
    open_files: int = 1024
    file_mb: int = 1024
    output_mb: int = 64
    processes: int = 256
    sandbox: Profile = "none"
    env: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredLimits:
    """A row of the operator's limits; None says nothing. ``deadline_s`` is in seconds."""

    deadline_s: float | None = None
    memory_mb: int | None = None
    cpu_s: float | None = None
    open_files: int | None = None
    file_mb: int | None = None
    output_mb: int | None = None
    processes: int | None = None
    sandbox: Profile = "none"
    env: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


def limits_of(stated: object) -> Limits:
    """Give the limits that an object states in attributes of these names (a Tool); what it lacks has its default."""
    return _made(
        {field.name: getattr(stated, field.name) for field in fields(Limits) if hasattr(stated, field.name)}
    )


def fault_of_limits(limits: Limits) -> str | None:
    """Say which limit cannot be meant and what to give instead; None when all can."""
    for name in _NUMBERS:
        value = getattr(limits, name)
        if value is None and name in ("memory_mb", "cpu_s"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
            return f"{name} is {value!r}: give a number above 0"
    if limits.sandbox not in PROFILES:
        return f"sandbox is {limits.sandbox!r}: give one of {', '.join(PROFILES)}"
    for name in ("env", "readable", "writable"):
        value = getattr(limits, name)
        if not isinstance(value, tuple) or not all(isinstance(entry, str) for entry in value):
            return f"{name} is {value!r}: give a list of texts"
    for variable in limits.env:
        if not _VARIABLE.fullmatch(variable):
            return f"env names {variable!r}: give the names of environment variables"
    for path in (*limits.readable, *limits.writable):
        if not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            return f"the path {path!r} is not absolute: give whole paths without '..'"
    return None


def limits_from_json(form: Mapping[str, Any]) -> Limits:
    """Read limits from the JSON form of the dataclass; raises TypeError or ValueError on anything else."""
    limits = _made(form)
    fault = fault_of_limits(limits)
    if fault is not None:
        raise ValueError(fault)
    return limits


def tightened(
    deadline_s: float, limits: Limits, rows: Iterable[ConfiguredLimits | None]
) -> tuple[float, Limits]:
    """Give deadline and limits as the tool states them, made stricter by the operator's rows; never looser.

    Of two numbers the smaller holds, of two profiles the stronger; variables and paths, which only the operator can
    know of his host, are added.
    """
    for row in rows:
        if row is None:
            continue
        deadline_s = _smaller(deadline_s, row.deadline_s)
        limits = replace(
            limits,
            **{name: _smaller(getattr(limits, name), getattr(row, name)) for name in _NUMBERS},
            sandbox=max(limits.sandbox, row.sandbox, key=PROFILES.index),
            env=_joined(limits.env, row.env),
            readable=_joined(limits.readable, row.readable),
            writable=_joined(limits.writable, row.writable),
        )
    return deadline_s, limits


def _made(named: Mapping[str, Any]) -> Limits:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in named.items()
    }
    return Limits(**values)


def _smaller(stated: Any, configured: Any) -> Any:
    given = [value for value in (stated, configured) if value is not None]
    return min(given, default=None)


def _joined(stated: tuple[str, ...], configured: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*stated, *configured)))
