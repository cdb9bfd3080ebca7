"""Import one module from source that is known: compiled anew from what lies on disk, or from bytes that were kept.

It decides how a module is executed, and remembers what was; never which module, nor what is a tool in it. What the
module imports in turn comes from disk as ever. Called by ``tools/loader.py``; a fault in a module is a ModuleFault.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import marshal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from callboard.tools.errors import ModuleFault, ToolDefinitionError
from callboard.tools.execute import describe
from callboard.tools.kept_source import KeptSource


@dataclass(frozen=True, slots=True)
class Found:
    """What a module would be loaded from; ``origin`` and ``content`` are empty where there is no such thing.

    ``is_pythons_own``: it is source that Python's own loader loads, so it can be executed by itself.
    """

    origin: str
    content: bytes
    is_pythons_own: bool


class KnownSource(SourceFileLoader):
    """Compiles from source each time: a cache is told apart by seconds and size only, so it may be stale.

    ``kept`` is what it executes instead of the file, and else what it read there. Tracebacks show its lines.
    """

    def __init__(self, fullname: str, path: str, kept: KeptSource | None = None) -> None:
        super().__init__(fullname, path)
        self.kept = kept

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path) if self.kept is None else self.kept.source
        code = None if self.kept is None else _unmarshalled(self.kept.compiled)
        if code is None:
            code = self.source_to_code(source, path)
            self.kept = KeptSource(source, importlib.util.MAGIC_NUMBER + marshal.dumps(code))
        text = importlib.util.decode_source(source)
        # Without a time of change an entry is taken for one that no file can be newer than.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        return code

    def get_source(self, fullname: str) -> str | None:
        return (
            super().get_source(fullname)
            if self.kept is None
            else importlib.util.decode_source(self.kept.source)
        )


def executed(module: ModuleType) -> KeptSource | None:
    """Give what ``module`` was executed from, or None where its loader did not remember it."""
    loader = getattr(module, "__loader__", None)
    return loader.kept if isinstance(loader, KnownSource) else None


def source_to_keep(module: ModuleType) -> tuple[KeptSource, bool]:
    """Give the module's source, and whether it can be executed again by itself; else it is its file's bytes.

    It can where Python's own loader loaded it: another one may change what it reads. Where it was not remembered it is
    read now.
    """
    loader = getattr(module, "__loader__", None)
    if type(loader) is SourceFileLoader:
        loader = KnownSource(module.__name__, loader.path)
        loader.get_code(module.__name__)
    if isinstance(loader, KnownSource) and loader.kept is not None:
        return loader.kept, True
    return KeptSource(_content(loader, getattr(module, "__file__", None) or "")), False


def find_file(module_ref: str) -> Found:
    """Find what ``module_ref`` would be loaded from; it imports parent packages only. Raises ModuleFault."""
    if module_ref.endswith(".py"):
        path = Path(module_ref).expanduser()
        return Found(str(path), _content(None, str(path)), is_pythons_own=path.is_file())
    importlib.invalidate_caches()  # an archive's table of contents may be of the file before this one
    try:
        spec = importlib.util.find_spec(module_ref)
        origin = spec.origin or "" if spec is not None and spec.has_location else ""
        loader = None if spec is None else spec.loader
        is_pythons_own = type(loader) in (SourceFileLoader, KnownSource)
        return Found(origin, _content(loader, origin), is_pythons_own)
    except BaseException as error:  # a parent package is users' code too, and so is its loader
        raise ModuleFault(module_ref, import_reason(error, module_ref)) from error


def import_file(module_ref: str, name: str, path: Path, kept: KeptSource | None) -> ModuleType:
    """Execute the file ``path``, or ``kept`` in its place, as the module ``name``; raises ModuleFault.

    A module of that name that was there before stays when it fails.
    """
    spec = importlib.util.spec_from_file_location(name, path, loader=KnownSource(name, str(path), kept))
    if spec is None or spec.loader is None:
        raise ModuleFault(module_ref, "cannot be imported as Python source")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        _put_back(name, before)
        raise ModuleFault(module_ref, import_reason(error, str(path))) from error
    return module


def import_name(name: str, kept: KeptSource | None, *, anew: bool = False) -> ModuleType:
    """Import a module by its dotted name, ``kept`` in its own file's place where that is given; raises ModuleFault.

    Its parents and what it imports come from disk. Without ``kept``, its source is remembered only if it is compiled
    ``anew``. A module that was there before is replaced by ``kept``, and stays when that fails.
    """
    finders = [_OneModule(name, kept)] if anew or kept is not None else []
    before = sys.modules.pop(name, None) if kept is not None else sys.modules.get(name)
    sys.meta_path[:0] = finders
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        _put_back(name, before)
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ModuleFault(
                name, f"no module {error.name!r} is installed: check the name, or give a path ending in .py"
            ) from error
        raise ModuleFault(name, import_reason(error, name)) from error
    except BaseException as error:  # an interrupt or an exit at import is the module's own doing
        _put_back(name, before)
        raise ModuleFault(name, import_reason(error, name)) from error
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]


def import_reason(error: BaseException, origin: str) -> str:
    """Say in one line why an import failed; ``origin`` is the file whose line is told."""
    if isinstance(error, ToolDefinitionError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"calls exit ({error.code}) when it is imported"
    if isinstance(error, SyntaxError):
        return f"does not import: {describe(error)}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == origin]
    where = f" (line {lines[-1]})" if lines else ""
    return f"does not import: {describe(error)}{where}"


class _OneModule(MetaPathFinder):
    """Has one module found as ever, and loaded from known source, also where a parent package imports it first."""

    def __init__(self, name: str, kept: KeptSource | None) -> None:
        self._name = name
        self._kept = kept

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                return self._known(spec)
        return None

    def _known(self, spec: ModuleSpec) -> ModuleSpec:
        if type(spec.loader) is SourceFileLoader and spec.origin:
            spec.loader = KnownSource(spec.name, spec.origin, self._kept)
        elif self._kept is not None:
            raise ImportError(
                f"{spec.name} is loaded by {type(spec.loader).__name__} now, which cannot execute what was described"
            )
        return spec


def _content(loader: object, origin: str) -> bytes:
    """Read the file ``origin`` as its loader does, also in an archive; empty where there is none."""
    get_data = getattr(loader, "get_data", None) or (lambda path: Path(path).read_bytes())
    try:
        content: bytes = get_data(origin) if origin else b""
    except OSError:
        return b""
    return content


def _unmarshalled(compiled: bytes) -> CodeType | None:
    """None for what another version of Python compiled."""
    if not compiled.startswith(importlib.util.MAGIC_NUMBER):
        return None
    code: CodeType = marshal.loads(memoryview(compiled)[len(importlib.util.MAGIC_NUMBER) :])
    return code


def _put_back(name: str, before: ModuleType | None) -> None:
    sys.modules.pop(name, None)
    if before is not None:
        sys.modules[name] = before
