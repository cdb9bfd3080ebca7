"""How users write tools: the ``@tool`` decorator for a typed function, and the ``Tool`` class to derive from.

It decides whether a definition can work, and says so at import. It never runs a tool by itself, and makes no
spec: the loader does, because a spec also needs the source file. Called by users' modules.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from callboard.tools.contract import DEFAULT_DEADLINE_S, Annotations, ToolContext
from callboard.tools.docstring import parse_docstring
from callboard.tools.errors import ToolDefinitionError
from callboard.tools.limits import Limits, Profile, fault_of_limits, limits_of
from callboard.tools.plain_arguments import plain_call

if TYPE_CHECKING:
    from callboard.tools.signature import CheckedSignature

P = ParamSpec("P")
R = TypeVar("R")

_DEFAULTS = Limits()
_TAKEN_AS_DESCRIBED: ContextVar[bool] = ContextVar("taken_as_described", default=False)
_LEGAL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Tool:
    """A tool in class form: derive, set ``name``, ``description`` and ``parameters``, and write ``execute``.

    ``parameters`` is a JSON Schema of type object. The class is made without arguments, anew for each call.
    ``deadline_s`` is in seconds; the limits from ``memory_mb`` on are those of ``callboard.tools.limits.Limits``.
    """

    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    annotations: Annotations = Annotations()
    feature: str = ""
    deadline_s: float = DEFAULT_DEADLINE_S
    memory_mb: int | None = _DEFAULTS.memory_mb
    cpu_s: float | None = _DEFAULTS.cpu_s
    open_files: int = _DEFAULTS.open_files
    file_mb: int = _DEFAULTS.file_mb
    output_mb: int = _DEFAULTS.output_mb
    processes: int = _DEFAULTS.processes
    sandbox: Profile = _DEFAULTS.sandbox
    env: Sequence[str] = ()
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the tool's own table of the configuration ({} for none); called before every ``execute``."""

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Do the work; plain, ``async`` or a generator (its last value is the result).

        ``arguments`` have been checked against ``parameters``. Whatever is raised becomes an error that the
        model reads.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define execute(arguments, context)")


class FunctionTool(Tool, Generic[P, R]):
    """A decorated function: called like the function, and a Tool besides. Made by ``tool``, not by hand."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        description: str | None,
        annotations: Annotations,
        feature: str,
        deadline_s: float,
        limits: Limits,
    ) -> None:
        functools.update_wrapper(self, function)
        self._is_described = not _TAKEN_AS_DESCRIBED.get()
        documented = parse_docstring(function.__doc__ if self._is_described else None)
        self.function = function
        self.name = function.__name__ if name is None else name
        self.description = documented.description if description is None else description
        self.annotations = annotations
        self.feature = feature
        self.deadline_s = deadline_s
        for field in fields(Limits):
            setattr(self, field.name, getattr(limits, field.name))
        label = f"tool function {function.__qualname__!r} ({function.__module__})"
        if self._is_described:
            check_definition(self, label)
        self._checks = functools.partial(
            _check_signature, function, label, documented.parameters, described=self._is_described
        )
        if self._is_described:
            self.parameters = self._signature.parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with no checks."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def _signature(self) -> CheckedSignature:
        return self._checks()

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Check and convert ``arguments``, then call; raises ArgumentsRefused, or as the function does."""
        call: Callable[..., Any] = self.function
        plain = plain_call(self.function, arguments, context)
        return call(**(self._signature.bind(arguments, context) if plain is None else plain))

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
    memory_mb: int | None = None,
    cpu_s: float | None = None,
    open_files: int = _DEFAULTS.open_files,
    file_mb: int = _DEFAULTS.file_mb,
    output_mb: int = _DEFAULTS.output_mb,
    processes: int = _DEFAULTS.processes,
    sandbox: Profile = "none",
    env: Sequence[str] = (),
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    open_world: bool = False,
    feature: str = "",
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
    memory_mb: int | None = None,
    cpu_s: float | None = None,
    open_files: int = _DEFAULTS.open_files,
    file_mb: int = _DEFAULTS.file_mb,
    output_mb: int = _DEFAULTS.output_mb,
    processes: int = _DEFAULTS.processes,
    sandbox: Profile = "none",
    env: Sequence[str] = (),
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    open_world: bool = False,
    feature: str = "",
) -> Any:
    """Make a tool of a typed function: ``@tool``, or ``@tool(deadline_s=2.0, read_only=True)``.

    The model sees the function's name, the docstring's text up to ``Args:``, and a JSON Schema from the
    signature with the descriptions under ``Args:``. A parameter annotated ``ToolContext`` is filled in and
    not shown. The function may be plain, ``async`` or a generator that yields ``Progress``. ``deadline_s`` is in
    seconds; the limits from ``memory_mb`` to ``writable`` are those of ``callboard.tools.limits.Limits``.
    ``read_only`` and ``idempotent`` allow a call whose outcome is unknown to be run again; ``destructive`` asks a
    person; ``feature`` names the flag that switches it on. Raises ToolDefinitionError.
    """
    limits = Limits(
        memory_mb=memory_mb,
        cpu_s=cpu_s,
        open_files=open_files,
        file_mb=file_mb,
        output_mb=output_mb,
        processes=processes,
        sandbox=sandbox,
        env=_texts(env),
        readable=_texts(readable),
        writable=_texts(writable),
    )

    def decorate(decorated: Callable[..., Any]) -> FunctionTool[..., Any]:
        if isinstance(decorated, Tool):
            raise ToolDefinitionError(f"{decorated!r} is a tool already: decorate it once")
        if not inspect.isfunction(decorated):
            raise ToolDefinitionError(
                f"@tool takes a function, not {decorated!r}: for a class, derive from Tool"
            )
        return FunctionTool(
            decorated,
            name=name,
            description=description,
            annotations=Annotations(
                read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world
            ),
            feature=feature,
            deadline_s=deadline_s,
            limits=limits,
        )

    return decorate if function is None else decorate(function)


@contextmanager
def taken_as_described() -> Iterator[None]:
    """Within it, modules of tools are imported without describing their tools anew: a decorated function has no
    ``parameters`` then, and is checked when it is first called. For the processes that run one call of one tool.
    """
    token = _TAKEN_AS_DESCRIBED.set(True)
    try:
        yield
    finally:
        _TAKEN_AS_DESCRIBED.reset(token)


def check_definition(defined: Tool, label: str) -> None:
    """Check name, limits and schema of a tool; raises ToolDefinitionError that begins with ``label``."""
    if not _LEGAL_NAME.fullmatch(defined.name):
        raise ToolDefinitionError(
            f"{label}: the name {defined.name!r} is not legal: "
            "give a name of 1 to 64 characters out of A-Z a-z 0-9 _ and -"
        )
    if not defined.deadline_s > 0:
        raise ToolDefinitionError(f"{label}: deadline_s is {defined.deadline_s!r}: give seconds above 0")
    fault = fault_of_limits(limits_of(defined))
    if fault is not None:
        raise ToolDefinitionError(f"{label}: {fault}")
    if not isinstance(defined.feature, str):
        raise ToolDefinitionError(f"{label}: feature is {defined.feature!r}: give a flag's name")
    if defined.parameters.get("type") != "object":
        raise ToolDefinitionError(f"{label}: parameters must be a JSON Schema with 'type': 'object'")


def _texts(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_signature(
    function: Callable[..., Any], label: str, descriptions: Mapping[str, str], *, described: bool
) -> CheckedSignature:
    from callboard.tools.signature import (
        check_signature,
    )  # pydantic takes 100 ms; Tool alone does not need it

    return check_signature(function, label, descriptions, described=described)
