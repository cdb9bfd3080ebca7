"""Load users' tool modules: make specs of the tools in one, and get back the tool that a spec names.

It decides which things in a module are tools, and their digest; and that what runs is what was described: a call
executes the source that a catalogue kept, whatever lies on disk. It runs users' code at import, so only the describing
processes (``describe_module``; the catalogue for the built-ins) and the calls' processes (``load_tool``, one module
each) call it; a fault in a module is a ModuleFault.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from callboard.tools import module_source
from callboard.tools.contract import ToolSpec
from callboard.tools.decorator import FunctionTool, Tool, check_definition
from callboard.tools.errors import ModuleFault, ToolDefinitionError
from callboard.tools.execute import describe
from callboard.tools.kept_source import MAX_BYTES, KeptSource, digest_of
from callboard.tools.limits import limits_of

_PRIVATE_PREFIX = "_callboard_tools_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a module offers, by name, and the source that each tool's module was executed from.

    ``digests`` are those of the sources, by tool; ``kept`` holds, by digest, what can be executed again (in the form of
    KeptSource): it lacks what is no Python source, or too large.
    """

    specs: tuple[ToolSpec, ...]
    digests: Mapping[str, str]
    kept: Mapping[str, bytes]


def specs_of(module_ref: str) -> tuple[ToolSpec, ...]:
    """Load a module afresh and describe its tools, by name; as ``describe_module`` does."""
    return describe_module(module_ref).specs


def describe_module(module_ref: str) -> Description:
    """Load a module afresh and describe its tools, with the source that was executed.

    ``module_ref`` is a dotted name or a path ending in ``.py``. Tools are decorated functions and instances
    of Tool, under any public name, and subclasses of Tool written in the module itself. Raises ModuleFault.
    """
    module = load_module(module_ref, afresh=True)
    specs: dict[str, ToolSpec] = {}
    digests: dict[str, str] = {}
    kept: dict[str, bytes] = {}
    for attribute, found in _tools_in(module, module_ref):
        ref, home = _home(found, attribute, module, module_ref)
        source, is_python = module_source.source_to_keep(home)
        spec = _spec_of(found, attribute, ref, source.source, module_ref)
        if spec.name in specs:
            raise ModuleFault(
                module_ref,
                f"two tools are named {spec.name!r} ({specs[spec.name].attribute}, {attribute}): rename one",
            )
        specs[spec.name] = spec
        digest = digests[spec.name] = digest_of(home.__file__ or "", source.source)
        if is_python and len(form := source.to_bytes()) <= MAX_BYTES:
            kept[digest] = form
    if not specs:
        raise ModuleFault(
            module_ref, "holds no tools: decorate functions with @tool, or derive classes from Tool"
        )
    in_order = tuple(specs[name] for name in sorted(specs))
    return Description(specs=in_order, digests=digests, kept=kept)


def load_tool(spec: ToolSpec, kept: bytes | None = None) -> Tool:
    """Import the module of a local tool, and no other, and give the tool; raises ModuleFault.

    ``kept`` (KeptSource's form) is executed in the place of the module's own file, under its name and path. Without it,
    a spec whose source a catalogue kept wants that file to be as it was described; any other spec takes it as it is.
    """
    if spec.module is None or spec.attribute is None:
        raise ModuleFault(spec.module or "", f"the tool {spec.name!r} is not a local one")
    source = None if kept is None else KeptSource.from_bytes(kept)
    if source is None and spec.kept_source:
        source = _as_described(spec.module, spec.kept_source)
    try:
        module = load_module(spec.module, source=source)
        found = getattr(module, spec.attribute, None)
        tool = _instance(found, spec.module) if _is_tool_class(found) else found
    except ModuleFault as fault:
        raise ModuleFault(spec.module, f"{fault.reason}{_note_of_change(spec)}") from fault
    if not isinstance(tool, Tool):
        raise ModuleFault(spec.module, f"no longer holds the tool {spec.attribute!r}: reload the tools")
    return tool


def load_module(module_ref: str, *, afresh: bool = False, source: KeptSource | None = None) -> ModuleType:
    """Import ``module_ref``, or give it as it is when it was; a path's module can be had ``afresh``.

    A path's module gets a private name made from the path, the same in every process, so that what it defines
    can be pickled. ``source`` is executed in the file's place. Raises ModuleFault.
    """
    is_file = module_ref.endswith(".py")
    path = Path(module_ref).expanduser().resolve()
    name = private_name(path) if is_file else module_ref
    known = sys.modules.get(name)
    if known is not None and not (afresh and is_file) and _is_from(known, source):
        return known
    if not is_file:
        return module_source.import_name(name, source, anew=afresh)
    if source is None and not path.is_file():
        raise ModuleFault(module_ref, "there is no such file")
    return module_source.import_file(module_ref, name, path, source)


def private_name(path: Path) -> str:
    """Give the module name of a file of tools: stable for one absolute path, different for any two."""
    return f"{_PRIVATE_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _is_from(module: ModuleType, source: KeptSource | None) -> bool:
    executed = module_source.executed(module)
    return source is None or (executed is not None and executed.source == source.source)


def _as_described(module_ref: str, kept_source: str) -> KeptSource | None:
    """Nothing is kept, or it is lost: what lies on disk will do if it is the same. None: it is to be imported plainly.

    That is what Python's own loader does not load: a compiled module, an archive's, one that a hook changes.
    """
    found = module_source.find_file(module_ref)
    if digest_of(found.origin, found.content) != Path(kept_source).name:
        raise ModuleFault(
            module_ref,
            "its file is not what was described, so it was not run: 'callboard reload' describes it anew",
        )
    return KeptSource(found.content) if found.is_pythons_own else None


def _note_of_change(spec: ToolSpec) -> str:
    """What was described may not fit what lies beside it on disk any more."""
    if not spec.kept_source or spec.module is None:
        return ""
    with suppress(ModuleFault):
        found = module_source.find_file(spec.module)
        if digest_of(found.origin, found.content) == Path(spec.kept_source).name:
            return ""
    return " (this is the source as it was described; the file has changed since: 'callboard reload' describes it anew)"


def _tools_in(module: ModuleType, module_ref: str) -> Iterator[tuple[str, Tool]]:
    public = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    seen: list[Tool] = []
    for name, value in public:
        if isinstance(value, Tool) and not any(value is other for other in seen):
            seen.append(value)
            yield name, value
    with_instance = {type(instance) for instance in seen}
    for name, value in public:
        if _is_tool_class(value) and value.__module__ == module.__name__ and value not in with_instance:
            yield name, _instance(value, module_ref)


def _is_tool_class(value: object) -> TypeGuard[type[Tool]]:
    return isinstance(value, type) and issubclass(value, Tool) and value.execute is not Tool.execute


def _instance(tool_class: type[Tool], module_ref: str) -> Tool:
    try:
        return tool_class()
    except BaseException as error:
        raise ModuleFault(
            module_ref,
            f"the tool class {tool_class.__name__} cannot be made without arguments: {describe(error)}",
        ) from error


def _spec_of(found: Tool, attribute: str, ref: str, source: bytes, module_ref: str) -> ToolSpec:
    if not isinstance(found, FunctionTool):
        try:
            check_definition(found, f"tool class {type(found).__qualname__!r}")
        except ToolDefinitionError as error:
            raise ModuleFault(module_ref, str(error)) from error
    spec = ToolSpec(
        name=found.name,
        description=found.description or _class_docstring(found),
        parameters=_plain_schema(found, module_ref),
        annotations=found.annotations,
        deadline_s=found.deadline_s,
        limits=limits_of(found),
        module=ref,
        attribute=attribute,
        feature=found.feature,
    )
    return replace(spec, digest=_digest(spec, source, module_ref))


def _class_docstring(found: Tool) -> str:
    """A decorated function without a docstring has none: its class is ours."""
    return "" if isinstance(found, FunctionTool) else inspect.cleandoc(type(found).__doc__ or "")


def _home(found: Tool, attribute: str, module: ModuleType, module_ref: str) -> tuple[str, ModuleType]:
    # A tool imported from elsewhere belongs to the module that defines it: a worker loads only that one.
    name = found.function.__module__ if isinstance(found, FunctionTool) else module.__name__
    home = sys.modules.get(name)
    if name == module.__name__ or home is None or getattr(home, attribute, None) is not found:
        ref = str(Path(module_ref).expanduser().resolve()) if module_ref.endswith(".py") else module_ref
        return ref, module
    return name, home


def _plain_schema(found: Tool, module_ref: str) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(found.parameters), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ModuleFault(module_ref, f"the schema of tool {found.name!r} is not JSON: {error}") from error
    return plain


def _digest(spec: ToolSpec, source: bytes, module_ref: str) -> str:
    seen = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "annotations": asdict(spec.annotations),
        "feature": spec.feature,
        "limits": {"deadline_s": spec.deadline_s, **asdict(spec.limits)},
    }
    try:
        canonical = json.dumps(seen, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ModuleFault(module_ref, f"the schema of tool {spec.name!r} is not JSON: {error}") from error
    return hashlib.sha256(canonical.encode() + b"\0" + source).hexdigest()
