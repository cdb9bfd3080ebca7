"""Which ``callboard.toml`` files of working folders may be used: the ones recorded, unchanged since.

Such a file names modules and commands, so it is code (DESIGN, decision 10). The record holds, for each file,
its SHA-256 and that of every local file that it makes run. It never reads what the files mean: the caller
(``callboard.config``) says which belong together.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from callboard.errors import ConfigError
from callboard.paths import config_dir

_MISSING = "missing"


def record(config_file: Path, named: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Trust ``config_file`` together with the files it names; give all that were recorded, absolute.

    Raises ConfigError when one cannot be read or the record cannot be written.
    """
    digests = _digests(config_file, named)
    lacking = [path for path, digest in digests.items() if digest == _MISSING]
    if lacking:
        raise ConfigError(f"{lacking[0]}: cannot be read, so it cannot be trusted")
    known = _read()
    known[str(_absolute(config_file))] = digests
    _write(known)
    return tuple(Path(path) for path in digests)


def forget(config_file: Path) -> bool:
    """Trust ``config_file`` no more; give False when it was not trusted."""
    known = _read()
    if known.pop(str(_absolute(config_file)), None) is None:
        return False
    _write(known)
    return True


def doubt(config_file: Path, named: Iterable[Path] = ()) -> str | None:
    """Say why ``config_file`` is not trusted, in a few words; None when it is."""
    recorded = _read().get(str(_absolute(config_file)))
    if recorded is None:
        return "it was never recorded"
    present = _digests(config_file, named)
    if present == recorded:
        return None
    changed = [path for path in present if recorded.get(path) != present[path]]
    return f"{changed[0]} changed since it was recorded" if changed else "it names other files than before"


def _digests(config_file: Path, named: Iterable[Path]) -> dict[str, str]:
    files = [_absolute(config_file), *sorted({_absolute(path) for path in named})]
    return {str(path): _digest(path) for path in files}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return _MISSING


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _record_file() -> Path:
    return config_dir() / "trust.json"


def _read() -> dict[str, Mapping[str, str]]:
    path = _record_file()
    try:
        form = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        raise ConfigError(
            f"{path}: cannot be read ({fault}); remove it and trust your files again"
        ) from fault
    trusted = form.get("trusted") if isinstance(form, dict) else None
    if not isinstance(trusted, dict):
        raise ConfigError(f"{path}: expected an object with 'trusted'; remove it and trust your files again")
    return {str(key): dict(value) for key, value in trusted.items() if isinstance(value, dict)}


def _write(known: Mapping[str, Mapping[str, str]]) -> None:
    path = _record_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trust-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"version": 1, "trusted": dict(known)}, stream, indent=1)
        Path(name).replace(path)
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be written: {fault.strerror}") from fault
