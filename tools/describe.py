"""Describe users' tool modules, each in a process of its own: whatever an import does, it does to that process.

``specs_in_a_process`` starts the processes, all at once, and holds the time limit; the catalogue calls it.
``main`` is what such a process runs (``python -P -m callboard.tools.describe MODULE``): it writes one JSON document
to what was its standard output, and what the module prints goes to standard error. It never calls a tool.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.errors import ModuleFault
from callboard.tools.execute import describe
from callboard.tools.kept_source import KeptSources
from callboard.tools.limits import limits_from_json
from callboard.tools.loader import describe_module

LIMIT_S = 10.0
MAX_BYTES = 1024 * 1024
MAX_REASON = 2048
_MAX_DOCUMENT = 4 * MAX_BYTES
_MAX_SOURCES = 2 * MAX_BYTES
_CHUNK = 1 << 16
_REAP_S = 5.0
_PR_SET_PDEATHSIG = 1
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.tools.describe import main; main()"
)

Described: TypeAlias = tuple[ToolSpec, ...] | ModuleFault


def specs_in_a_process(
    modules: Iterable[str], limit_s: float = LIMIT_S, kept: KeptSources | None = None
) -> dict[str, Described]:
    """Describe each module in a new process, with this one's ``sys.path``; at most ``limit_s`` seconds in all.

    The sources that were described are put into ``kept``, and the specs say where; without it they name none.
    Never raises for what a module does: its value is then the ModuleFault that says what became of it. No process
    of the modules' groups is left behind. To be called on a thread that lives as long as the call.
    """
    described: dict[str, Described] = {}
    readers: list[_Reader] = []
    give_up_at = time.monotonic() + limit_s
    try:
        for module in dict.fromkeys(modules):
            try:
                readers.append(_Reader(module))
            except (OSError, ValueError) as fault:
                described[module] = ModuleFault(module, f"no process could be started to import it: {fault}")
        _read_all(readers, give_up_at)
    finally:
        for reader in readers:
            reader.close()
    return described | {reader.module: reader.outcome(limit_s, kept) for reader in readers}


def main() -> None:
    """Describe the module that ``argv[1]`` names, and write the document; to be called as a process's whole life."""
    module = sys.argv[1]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    out_fd = os.dup(1)
    os.dup2(2, 1)
    pipe = _identity(out_fd)
    document = json.dumps(_document(module)).encode("ascii") + b"\n"
    if _identity(out_fd) != pipe:
        sys.exit(f"{module} closed descriptors that are not its own")
    with os.fdopen(out_fd, "wb") as out:
        out.write(document)


def spec_to_json(spec: ToolSpec) -> dict[str, Any]:
    """Give the spec's JSON form."""
    return asdict(spec)


def spec_from_json(form: Mapping[str, Any]) -> ToolSpec:
    """Read a spec from its JSON form, digest and all; raises TypeError, KeyError or ValueError on anything else."""
    limits = limits_from_json(form["limits"])
    spec = ToolSpec(**{**form, "annotations": Annotations(**form["annotations"]), "limits": limits})
    flags = asdict(spec.annotations).values()
    texts = (
        spec.name,
        spec.description,
        spec.digest,
        spec.module,
        spec.attribute,
        spec.feature,
        spec.kept_source,
    )
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(flag, bool) for flag in flags)
        and isinstance(spec.deadline_s, int | float)
        and isinstance(spec.parameters, dict)
    ):
        raise ValueError(f"tool {spec.name!r} has a field of a wrong type: check its annotations and limits")
    return spec


def _document(module: str) -> dict[str, Any]:
    try:
        found = describe_module(module)
        tools = [spec_to_json(spec) for spec in found.specs]
        if len(json.dumps(tools)) > MAX_BYTES:
            return {"fault": f"the description of its tools is larger than {MAX_BYTES} bytes"}
        return {"tools": tools, "digests": dict(found.digests), "kept": _kept_to_json(found.kept)}
    except ModuleFault as fault:
        return {"fault": fault.reason[:MAX_REASON]}
    except BaseException as error:  # the module's own code runs here, and this process serves nothing else
        return {"fault": f"its tools cannot be described: {describe(error)}"[:MAX_REASON]}


def _kept_to_json(kept: Mapping[str, bytes]) -> dict[str, str]:
    """Tools of other modules than this one come with theirs: those that there is room for."""
    taken: dict[str, str] = {}
    room = _MAX_SOURCES
    for digest, content in kept.items():
        room -= len(content)
        if room >= 0:
            taken[digest] = base64.b64encode(content).decode("ascii")
    return taken


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        seen = os.fstat(fd)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


class _Reader:
    """One process that imports one module, and what it has written so far."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.received = bytearray()
        self.timed_out = False
        path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, path, module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.pipe_fd = self.process.stdout.fileno()
        os.set_blocking(self.pipe_fd, False)
        try:
            self.pidfd = os.pidfd_open(self.process.pid)
        except OSError:
            self._end()
            raise

    @property
    def is_complete(self) -> bool:
        return b"\n" in self.received[-1:] or len(self.received) > _MAX_DOCUMENT

    def read(self) -> bool:
        """Take what is there; False at the end of the stream."""
        with contextlib.suppress(BlockingIOError):
            while not self.is_complete:
                chunk = os.read(self.pipe_fd, _CHUNK)
                if not chunk:
                    return False
                self.received += chunk
        return True

    def close(self) -> None:
        """End the group before its leader is reaped: until then its number is nobody else's."""
        self._end()
        os.close(self.pidfd)

    def outcome(self, limit_s: float, kept: KeptSources | None) -> Described:
        """Say what became of it; only after ``close``."""
        if len(self.received) > _MAX_DOCUMENT:
            return ModuleFault(self.module, f"the description of its tools is larger than {MAX_BYTES} bytes")
        if self.is_complete:
            return self._read_document(kept)
        if self.timed_out:
            return ModuleFault(self.module, f"it was still being imported after {limit_s:g} s")
        return ModuleFault(self.module, _ending(self.process.returncode))

    def _read_document(self, kept: KeptSources | None) -> Described:
        try:
            document = json.loads(self.received)
            if "fault" in document:
                return ModuleFault(self.module, str(document["fault"]))
            specs = tuple(spec_from_json(form) for form in document["tools"])
            return specs if kept is None else _kept(specs, document, kept)
        except OSError as fault:
            return ModuleFault(
                self.module, f"its source could not be kept in {kept and kept.folder}: {fault}"
            )
        except (TypeError, ValueError, KeyError, RecursionError) as fault:
            return ModuleFault(self.module, f"the description of its tools cannot be read: {fault}")

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_REAP_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def _kept(specs: tuple[ToolSpec, ...], document: Mapping[str, Any], kept: KeptSources) -> Described:
    """One path for all the tools of a module: in the mail it is then written once."""
    for digest, content in document["kept"].items():
        kept.keep(digest, base64.b64decode(content, validate=True))
    digests: dict[str, str] = document["digests"]
    paths = {digest: kept.path(digest) for digest in digests.values()}
    return tuple(replace(spec, kept_source=paths[digests[spec.name]]) for spec in specs)


def _read_all(readers: Iterable[_Reader], give_up_at: float) -> None:
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader.pipe_fd, selectors.EVENT_READ, reader)
            selector.register(reader.pidfd, selectors.EVENT_READ, reader)
        while selector.get_map() and (left_s := give_up_at - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if key.fd in selector.get_map():
                    _advance(selector, key.data, key.fd)
        for key in selector.get_map().values():
            key.data.timed_out = True


def _advance(selector: selectors.BaseSelector, reader: _Reader, fd: int) -> None:
    is_open = reader.read()
    if fd == reader.pidfd or reader.is_complete:
        for watched in {reader.pipe_fd, reader.pidfd} & set(selector.get_map()):
            selector.unregister(watched)
    elif not is_open:
        selector.unregister(fd)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"its process was killed by {name} while it was imported"
    return (
        f"its process exited with code {code} while it was imported: "
        "a module of tools must not end its process, nor close descriptors that are not its own"
    )


if __name__ == "__main__":
    main()
