"""What a command means for a supervisor now: OTP's administration, decided before anything is done.

Pure: it reads the children and changes nothing. ``supervisor/core.py`` asks it and takes the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from callboard.supervisor.commands import (
    Command,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from callboard.supervisor.core_children import Child, Children
from callboard.supervisor.core_terms import AnswerBody, ChildUp
from callboard.supervisor.envelope import Failure
from callboard.supervisor.spec import ChildSpec, SpecError, SupervisorFlags, check_fit

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer at once; nothing else changes."""

    body: AnswerBody


@dataclass(frozen=True, slots=True)
class Later:
    """Look at the command again when the child has finished its start or its end."""

    child: Child


@dataclass(frozen=True, slots=True)
class Join:
    """Answer when the child is up, or given up: somebody asked for it before."""

    child: Child


@dataclass(frozen=True, slots=True)
class Add:
    """Start a child that is new."""

    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start a child whose spec is there."""

    child: Child


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the child, or cancel its next start."""

    child: Child


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the stopped child."""

    child: Child


Step: TypeAlias = Reply | Later | Join | Add | StartAgain | Halt | Forget


def refuse(kind: str, message: str, retryable: bool = False) -> Reply:
    """Answer with a Failure."""
    return Reply(Failure(kind=kind, message=message, retryable=retryable))


def next_step(command: Command, children: Children, flags: SupervisorFlags) -> Step:
    """Give the step for a command to a supervisor that is not ending and not in the middle of a plan."""
    match command:
        case WhichChildren():
            return Reply(children.which())
        case CountChildren():
            return Reply(children.count())
        case StartChild(spec):
            child = children.get(spec.id)
            step = _new(spec, children, flags) if child is None else _start(child, flags)
        case RestartChild(id) | DeleteChild(id) if flags.dynamic:
            return refuse("not_supported", f"a dynamic supervisor keeps no spec of {id} to restart or delete")
        case TerminateChild(id) | RestartChild(id) | DeleteChild(id):
            child = children.get(id)
            step = refuse("not_found", f"no child {id}") if child is None else _known(command, child)
    full = child is not None and child.waiting >= MAX_WAITING and not isinstance(step, Reply)
    return refuse("overloaded", "too many commands wait for this child", retryable=True) if full else step


def _new(spec: ChildSpec, children: Children, flags: SupervisorFlags) -> Step:
    try:
        check_fit(flags, spec)
    except SpecError as fault:
        return refuse(fault.kind, str(fault))
    if flags.max_children is not None and len(children) >= flags.max_children:
        return refuse("max_children", f"there are {len(children)} children already", retryable=True)
    return Add(spec)


def _start(child: Child, flags: SupervisorFlags) -> Step:
    """Somebody asks to start a child of an id that is there (a dynamic supervisor's callers share the child)."""
    match child.state:
        case "running":
            return Reply(ChildUp(child.id, child.incarnation, already_started=True))
        case "stopping":
            return Later(child)
        case "starting":
            return Join(child) if flags.dynamic else Later(child)
        case "restarting" if flags.dynamic:
            return Join(child)
        case "parked" if flags.dynamic:
            return refuse(
                "parked", f"{child.id} failed too often and is tried again now and then", retryable=True
            )
        case _:
            return refuse("already_present", f"there is a child {child.id} already; it is {child.state}")


def _known(command: TerminateChild | RestartChild | DeleteChild, child: Child) -> Step:
    match command, child.state:
        case TerminateChild(), _:
            return Halt(child)
        case _, "starting" | "stopping":
            return Later(child)
        case RestartChild(), "stopped" | "parked":
            return StartAgain(child)
        case DeleteChild(), "stopped":
            return Forget(child)
        case _:
            return refuse(child.state, f"{child.id} is {child.state}")
