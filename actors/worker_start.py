"""What a worker is started with: its order, the setup of the call's process, and the memory that the call will lie in.

Called by ``actors/worker_process.py``. What a call may use decides ``tools/sandbox_plan.py``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from callboard.tools.contract import ToolSpec
from callboard.tools.fork_server import Order
from callboard.tools.kept_source import read_kept
from callboard.tools.runner import BOOT, Setup
from callboard.tools.sandbox_host import host
from callboard.tools.sandbox_plan import Host, Place, Plan, make_plan


def prepare(spec: ToolSpec, folder: Path, title: str) -> tuple[Order, int]:
    """Give the order for a worker, and the descriptor of its memory, which begins with the setup.

    Raises ProfileRefused, or OSError.
    """
    by_fork = spec.limits.sandbox == "none"
    place = Place(folder=str(folder), code=() if by_fork else _code_paths(spec.module))
    plan = make_plan(spec.limits, Host() if by_fork else host(), place, os.environ)
    setup = _setup(spec, plan).to_json().encode("ascii")
    return _order(plan, folder, title, len(setup)), _shared_memory(setup)


def _setup(spec: ToolSpec, plan: Plan) -> Setup:
    kept = read_kept(spec.kept_source)
    return Setup(
        name=spec.name,
        module=spec.module,
        attribute=spec.attribute,
        steps=plan.steps,
        environment=plan.environment,
        cwd=plan.cwd,
        kept_source=spec.kept_source,
        kept=None if kept is None else kept.decode("latin-1"),
    )


def _order(plan: Plan, folder: Path, title: str, setup_bytes: int) -> Order:
    command: tuple[str, ...] = ()
    if plan.by_exec:
        path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
        command = (*plan.exec_prefix, sys.executable, "-I", "-c", BOOT, path, str(setup_bytes))
    return Order(
        title=title,
        folder=str(folder),
        command=command,
        environment=plan.environment,
        setup_bytes=setup_bytes,
    )


def _shared_memory(setup: bytes) -> int:
    fd = os.memfd_create("callboard-call")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(setup)
    return fd


def _code_paths(module: str | None) -> tuple[str, ...]:
    """Give the paths that Python, Callboard and the tool's module are loaded from; what is not there is left out."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, *(path for path in sys.path if path)}
    found.add(os.path.realpath(sys.executable))
    callboard = Path(sys.modules["callboard"].__file__ or __file__).parent
    found |= {
        str(callboard),
        *(str(folder.resolve()) for folder in callboard.iterdir() if folder.is_symlink()),
    }
    if module is not None and module.endswith(".py"):
        found.add(str(Path(module).resolve()))
    elif module is not None:
        found |= _locations(module.partition(".")[0])
    return tuple(sorted(path for path in found if path != "/" and Path(path).exists()))


def _locations(package: str) -> set[str]:
    """An editable install lies elsewhere than the path says: its finder knows."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return set()
    places: list[Any] = list(spec.submodule_search_locations or ())
    return {os.path.realpath(place) for place in (*places, spec.origin) if place and Path(place).exists()}
