"""Which workers stand prepared while the model thinks: those of the calls that it asked for last. Pure.

A prepared worker is for one tool at one version, under one set of limits; it takes one call or none. It is a guess, and
a wrong one costs a process that is ended unused: what may run is decided at the call (``actors/call_gate.py``), and a
call takes a worker only if it stands for exactly what was decided. Used by ``actors/client_calls.py`` and ``call.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from callboard.tools.contract import ToolSpec


@dataclass(frozen=True, slots=True)
class Change:
    """What to do about the workers that stand prepared: the places to end in ``have``, and the specs to start."""

    end: tuple[int, ...]
    start: tuple[ToolSpec, ...]


def guess(asked_last: Iterable[str], offered: Mapping[str, ToolSpec], most: int) -> tuple[ToolSpec, ...]:
    """Give the specs that the next calls may be of, at most ``most``.

    ``asked_last`` names the tools of the calls that the model asked for last, one for each call; ``offered`` are those
    that it may ask for now. Before any call it is the only tool there is, or none.
    """
    names = list(asked_last)
    if not names and len(offered) == 1:
        names = list(offered)
    return tuple(offered[name] for name in names if name in offered and offered[name].is_local)[:most]


def change(have: Sequence[ToolSpec], wanted: Sequence[ToolSpec]) -> Change:
    """Give what makes ``wanted`` of ``have``; what stands for just what is wanted stays."""
    missing = list(wanted)
    end = []
    for place, spec in enumerate(have):
        at = pick(missing, spec)
        if at is None:
            end.append(place)
        else:
            del missing[at]
    return Change(end=tuple(end), start=tuple(missing))


def pick(have: Sequence[ToolSpec], decided: ToolSpec) -> int | None:
    """Give the place of a worker that stands for what was decided; None when there is none."""
    return next((place for place, spec in enumerate(have) if _is_same(spec, decided)), None)


def _is_same(one: ToolSpec, other: ToolSpec) -> bool:
    """A spec's digest is over all that a tool's author wrote; its limits may be the configuration's."""
    return (one.name, one.module, one.attribute, one.digest, one.kept_source, one.limits) == (
        other.name,
        other.module,
        other.attribute,
        other.digest,
        other.kept_source,
        other.limits,
    )
