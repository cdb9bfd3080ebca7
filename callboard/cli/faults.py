"""What is amiss with the tools that a person asked for: modules not loaded, names unknown, servers down.

Looks at a system's listings and says it on stderr, or raises; it changes nothing. ``chat``, ``ask`` and ``serve`` use
it.
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

_LOOK_S = 2.0
_DOWN = ("failed", "parked", "restarting")


def check_tools(system: System, flags: Flags, wanted: Sequence[str] | None) -> None:
    """Tell of each tool module that is not loaded; raise ConfigError for one that ``--tools-from`` names.

    Raises ToolNotFound when ``wanted`` (``--tools``) names a tool that neither exists nor can come with a server.
    """
    listed = system.tools()
    faults = [listing for listing in listed if is_module_fault(listing)]
    told = {fault.name: not_loaded(fault.name, fault.reason) for fault in faults}
    named = [message for module, message in told.items() if module in flags.named_modules]
    if named:
        raise ConfigError("\n".join(named))
    for message in told.values():
        report(message)
    if wanted:
        known = [listing.name for listing in listed if not is_module_fault(listing)]
        check_names(wanted, known, [server.name for server in system.servers()])


def modules_not_loaded(name: str) -> list[str]:
    """Say of the system ``name``, which has just come up, which tool modules it does not have, and why.

    For ``serve``, which watches the system meanwhile and so waits but a moment; where nothing answers, that is said.
    """
    from callboard.actors.messages import GetRegistry, Registry
    from callboard.actors.names import CATALOGUE
    from callboard.mailbox import Mailbox
    from callboard.paths import runtime_dir

    mailbox = Mailbox(runtime_dir(name))
    try:
        found = mailbox.request(GetRegistry(), timeout_s=_LOOK_S, to=CATALOGUE)
    except CallboardError as fault:
        return [str(fault)]
    finally:
        mailbox.close()
    if not isinstance(found, Registry):
        return ["which tool modules are loaded is not known yet; 'callboard tools' lists them"]
    return [not_loaded(module, reason) for module, reason in sorted(found.faults.items())]


def not_loaded(module: str, reason: str) -> str:
    """Give the line about a module that is not loaded; its name is not said twice."""
    return f"tool module {module} is not loaded: {reason.removeprefix(f'tool module {module!r}: ')}"


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
