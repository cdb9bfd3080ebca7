"""Load users' tool modules: make specs of the tools in one, and get back the tool that a spec names.

It decides which things in a module are tools, and their digest. It runs users' code at import, so only the
describing processes (``specs_of``; the catalogue for the built-ins) and the tool workers (``load_tool``, one
module each) call it; a fault in a module is
a ModuleFault.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeGuard

from callboard.tools.contract import ToolSpec
from callboard.tools.decorator import FunctionTool, Tool, check_definition
from callboard.tools.errors import ModuleFault, ToolDefinitionError
from callboard.tools.execute import describe
from callboard.tools.limits import limits_of

_PRIVATE_PREFIX = "_callboard_tools_"


def specs_of(module_ref: str) -> tuple[ToolSpec, ...]:
    """Load a module afresh and describe its tools, by name.

    ``module_ref`` is a dotted name or a path ending in ``.py``. Tools are decorated functions and instances
    of Tool, under any public name, and subclasses of Tool written in the module itself. Raises ModuleFault.
    """
    module = load_module(module_ref, afresh=True)
    specs: dict[str, ToolSpec] = {}
    for attribute, found in _tools_in(module, module_ref):
        spec = _spec_of(found, attribute, module, module_ref)
        if spec.name in specs:
            raise ModuleFault(
                module_ref,
                f"two tools are named {spec.name!r} ({specs[spec.name].attribute}, {attribute}): rename one",
            )
        specs[spec.name] = spec
    if not specs:
        raise ModuleFault(
            module_ref, "holds no tools: decorate functions with @tool, or derive classes from Tool"
        )
    return tuple(specs[name] for name in sorted(specs))


def load_tool(spec: ToolSpec) -> Tool:
    """Import the module of a local tool, and no other, and give the tool; raises ModuleFault.

    A pinned spec's tool must be the version that was described.
    """
    if spec.module is None or spec.attribute is None:
        raise ModuleFault(spec.module or "", f"the tool {spec.name!r} is not a local one")
    module = load_module(spec.module)
    found = getattr(module, spec.attribute, None)
    tool = _instance(found, spec.module) if _is_tool_class(found) else found
    if not isinstance(tool, Tool):
        raise ModuleFault(spec.module, f"no longer holds the tool {spec.attribute!r}: reload the tools")
    if spec.pinned and _spec_of(tool, spec.attribute, module, spec.module).digest != spec.digest:
        raise ModuleFault(
            spec.module,
            f"the tool {spec.name!r} changed after it was approved: reload the tools, and ask again",
        )
    return tool


def load_module(module_ref: str, *, afresh: bool = False) -> ModuleType:
    """Import ``module_ref``, or give it as it is when it was; a path's module can be had ``afresh``.

    A path's module gets a private name made from the path, the same in every process, so that what it defines
    can be pickled. Raises ModuleFault.
    """
    if not module_ref.endswith(".py"):
        return _import(module_ref)
    path = Path(module_ref).expanduser().resolve()
    name = private_name(path)
    if name in sys.modules and not afresh:
        return sys.modules[name]
    if not path.is_file():
        raise ModuleFault(module_ref, "there is no such file")
    return _import_file(module_ref, name, path)


def private_name(path: Path) -> str:
    """Give the module name of a file of tools: stable for one absolute path, different for any two."""
    return f"{_PRIVATE_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


class _UncachedLoader(SourceFileLoader):
    """Compiles from source each time: a cache is told apart by seconds and size only, so it may be stale."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ModuleFault(
                name, f"no module {error.name!r} is installed: check the name, or give a path ending in .py"
            ) from error
        raise ModuleFault(name, _import_reason(error, name)) from error
    except BaseException as error:  # an interrupt or an exit at import is the module's own doing
        raise ModuleFault(name, _import_reason(error, name)) from error


def _import_file(module_ref: str, name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ModuleFault(module_ref, "cannot be imported as Python source")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise ModuleFault(module_ref, _import_reason(error, str(path))) from error
    return module


def _import_reason(error: BaseException, origin: str) -> str:
    if isinstance(error, ToolDefinitionError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"calls exit ({error.code}) when it is imported"
    if isinstance(error, SyntaxError):
        return f"does not import: {describe(error)}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == origin]
    where = f" (line {lines[-1]})" if lines else ""
    return f"does not import: {describe(error)}{where}"


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


def _spec_of(found: Tool, attribute: str, module: ModuleType, module_ref: str) -> ToolSpec:
    if not isinstance(found, FunctionTool):
        try:
            check_definition(found, f"tool class {type(found).__qualname__!r}")
        except ToolDefinitionError as error:
            raise ModuleFault(module_ref, str(error)) from error
    ref, home = _home(found, attribute, module, module_ref)
    spec = ToolSpec(
        name=found.name,
        description=found.description or inspect.cleandoc(type(found).__doc__ or ""),
        parameters=_plain_schema(found, module_ref),
        annotations=found.annotations,
        deadline_s=found.deadline_s,
        limits=limits_of(found),
        module=ref,
        attribute=attribute,
        feature=found.feature,
    )
    return replace(spec, digest=_digest(spec, _source(home), module_ref))


def _home(found: Tool, attribute: str, module: ModuleType, module_ref: str) -> tuple[str, ModuleType]:
    # A tool imported from elsewhere belongs to the module that defines it: a worker loads only that one.
    name = found.function.__module__ if isinstance(found, FunctionTool) else module.__name__
    home = sys.modules.get(name)
    if name == module.__name__ or home is None or getattr(home, attribute, None) is not found:
        ref = str(Path(module_ref).expanduser().resolve()) if module_ref.endswith(".py") else module_ref
        return ref, module
    return name, home


def _source(module: ModuleType) -> bytes:
    file = module.__file__
    return Path(file).read_bytes() if file and Path(file).is_file() else b""


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
