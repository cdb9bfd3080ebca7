"""From a configuration file's bytes to one plain table, and from the hosts' ``mcpServers`` form to ours.

It reads files and knows two syntaxes (TOML and JSON); it validates no key of ours and fills in no default.
Only ``callboard.config`` calls it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callboard.config_complaint import shown
from callboard.errors import ConfigError

MAX_BYTES = 1 << 20
_HOST_KEYS = ("command", "args", "env", "cwd")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SCRIPT_ENDINGS = frozenset({".py", ".sh", ".js", ".mjs", ".cjs", ".ts"})


def read_table(path: Path) -> dict[str, Any]:
    """Read a ``.json`` file as JSON and any other as TOML; a hosts' file comes out as ``{"mcpServers": …}``.

    Raises ConfigError naming the file, and the line where the syntax breaks.
    """
    text = _read_text(path)
    if path.suffix.lower() != ".json":
        return _parse_toml(text, path)
    table = _parse_json(text, path)
    if isinstance(table.get("mcpServers"), dict) and not set(table) & {"model", "tools", "servers"}:
        return {"mcpServers": table["mcpServers"]}
    return table


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace each ``${NAME}`` by the environment's value; raises ValueError naming one that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environ:
            raise ValueError(f"the environment variable {name} is not set; set it, or write the value itself")
        return environ[name]

    return _VARIABLE.sub(value, text)


def is_path(module: str) -> bool:
    """True when a tool module is named by its file, not by its dotted name."""
    return module.endswith(".py") or module.startswith(("/", "./", "../", "~"))


def own_form(entry: object, place: str) -> dict[str, Any] | None:
    """Turn one ``mcpServers`` entry into a ``[servers.<name>]`` table; None for one that is marked disabled.

    Keys that hosts keep for themselves (``autoApprove``, ``timeout`` …) are passed over. Raises ConfigError
    with ``place`` for an entry without a command, which is a server that is not run over stdio.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{place}: expected an object with 'command', got {shown(entry)}")
    if entry.get("disabled") is True:
        return None
    if "command" not in entry:
        raise ConfigError(f"{place}: expected 'command'; only servers that run over stdio are supported")
    table = {key: entry[key] for key in _HOST_KEYS if key in entry}
    if isinstance(table["command"], str):
        table["command"] = [table["command"]]
    return table


def scripts_named(words: list[str], folder: Path) -> list[Path]:
    """Give the files that a command line runs or reads as code: existing, named by path, below no system
    folder.
    """
    found = []
    for index, word in enumerate(words):
        path = folder / Path(word).expanduser()
        runs = index == 0 and "/" in word and not word.startswith("/")
        if (runs or path.suffix.lower() in _SCRIPT_ENDINGS) and path.is_file():
            found.append(path.resolve())
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror}") from fault
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: expected at most 1 MiB of configuration")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        raise ConfigError(f"{path}: line {line}: expected UTF-8 text") from fault


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        what, _, where = str(fault).partition(" (at ")
        line = where.rstrip(")") if where.startswith("line") else f"line {text.count(chr(10)) + 1}"
        raise ConfigError(f"{path}: {line}: not valid TOML: {what}") from fault


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except json.JSONDecodeError as fault:
        place = f"line {fault.lineno}, column {fault.colno}"
        raise ConfigError(f"{path}: {place}: not valid JSON: {fault.msg}") from fault
    except RecursionError as fault:
        raise ConfigError(f"{path}: not valid JSON: nested too deeply") from fault
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: expected an object at the top, got {shown(table)}")
    return table
