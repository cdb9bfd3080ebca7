"""What is amiss with the tools that a person asked for: modules not loaded, names unknown, servers down.

Looks at a system's listings and says it on stderr, or raises; it changes nothing. ``chat`` and ``ask`` use it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from callboard.cli.exits import report
from callboard.cli.options import Flags
from callboard.errors import CallboardError, ConfigError, ToolNotFound

if TYPE_CHECKING:
    from callboard.api import System
    from callboard.views import ServerInfo, ToolListing

_DOWN = ("failed", "parked", "restarting")


def check_tools(system: System, flags: Flags, wanted: Sequence[str] | None) -> None:
    """Tell of each tool module that is not loaded; raise ConfigError for one that ``--tools-from`` names.

    Raises ToolNotFound when ``wanted`` (``--tools``) names a tool that neither exists nor can come with a server.
    """
    listed = system.tools()
    faults = [listing for listing in listed if is_module_fault(listing)]
    told = {fault.name: f"tool module {fault.name} is not loaded: {fault.reason}" for fault in faults}
    named = [message for module, message in told.items() if module in flags.named_modules]
    if named:
        raise ConfigError("\n".join(named))
    for message in told.values():
        report(message)
    if wanted:
        known = [listing.name for listing in listed if not is_module_fault(listing)]
        check_names(wanted, known, [server.name for server in system.servers()])


def is_module_fault(listing: ToolListing) -> bool:
    """True for a listing that stands for a module which could not be loaded, not for a tool."""
    return listing.state == "disabled" and listing.source == listing.name


def check_names(wanted: Iterable[str], known: Collection[str], servers: Collection[str]) -> None:
    """Raise ToolNotFound for the first name or pattern that means no tool; a server's may still come, and pass."""
    from callboard.tools.decision import unmatched_patterns

    for name in unmatched_patterns(wanted, known):
        if any(name.startswith(f"{server}__") or fnmatchcase(f"{server}__x", name) for server in servers):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        hint = f"the nearest is {near[0]!r}; " if near else ""
        raise ToolNotFound(f"--tools: there is no tool {name!r}; {hint}'callboard tools' lists them")


def tell_servers_down(system: System) -> None:
    """Say one line for each external server that is away; a system that does not answer is said, too."""
    try:
        servers = system.servers()
    except CallboardError as fault:
        report(str(fault))
        return
    for server in servers:
        if server.state in _DOWN:
            report(server_line(server))


def server_line(server: ServerInfo) -> str:
    """Give the line about a server that is away, with its last error."""
    from callboard.gateway.terminal.plain import one_line

    why = f": {one_line(server.last_error)}" if server.last_error else ""
    return f"server {one_line(server.name)} is {server.state}{why}"
