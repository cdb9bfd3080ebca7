"""Tools, servers, actors, status and history as lines of text.

Pure: values of ``callboard.views`` and events in, lines out, each within the look's width. The chat's slash
commands and the command line show the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationClosed,
    Event,
    HistoryRepaired,
    StepFinished,
    ToolDisabled,
    ToolEnabled,
    TurnAnswered,
    TurnStarted,
)
from callboard.gateway.terminal.activity import activity_line, citation_lines, seconds_text
from callboard.gateway.terminal.look import Look, Paint
from callboard.gateway.terminal.plain import cells, clean, cut, one_line, pad
from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing

_STATES: Mapping[str, Paint] = {
    "enabled": "green",
    "ready": "green",
    "running": "green",
    "available": "dim",
    "starting": "yellow",
    "restarting": "yellow",
    "disabled": "yellow",
    "parked": "red",
    "failed": "red",
}
_ORDER = ("enabled", "available", "disabled")


def tool_lines(tools: Sequence[ToolListing], look: Look) -> list[str]:
    """Give one line for each tool: state, name, and its description or the reason that it is disabled."""
    if not tools:
        return ["There are no tools."]
    ordered = sorted(tools, key=lambda tool: (_ORDER.index(tool.state), tool.name))
    rows = [
        (tool.state, one_line(tool.name), one_line(tool.reason or _first_sentence(tool.description)))
        for tool in ordered
    ]
    return _table(rows, look)


def tool_page(tool: ToolListing, look: Look) -> list[str]:
    """Give all that is known of one tool."""
    facts = [("state", tool.state + (f" ({tool.reason})" if tool.reason else "")), ("source", tool.source)]
    facts.append(("says of itself", ", ".join(tool.annotations) or "nothing"))
    facts += [(name, _limit(value)) for name, value in tool.limits.items() if value not in (None, (), [])]
    parameters = json.dumps(dict(tool.parameters), indent=2, ensure_ascii=False)
    schema = ["  parameters", *(f"    {clean(line)}" for line in parameters.splitlines())]
    head = [look.paint(one_line(tool.name), "bold"), clean(tool.description).strip()]
    return [*head, *_facts(facts), *(schema if tool.parameters else ())]


def server_lines(servers: Sequence[ServerInfo], look: Look) -> list[str]:
    """Give one line for each external server: state, name, and its figures or its last error."""
    if not servers:
        return ["No external servers are configured."]
    return _table([(server.state, one_line(server.name), _server_facts(server)) for server in servers], look)


def tree_lines(actors: Sequence[ActorInfo], look: Look) -> list[str]:
    """Give the supervision tree, children indented below their parents, in the order they came in.

    An actor whose parent is not in the list stands at the left; each is shown once, whatever the parents say.
    """
    known = {actor.id for actor in actors}
    children: dict[str | None, list[ActorInfo]] = {}
    for actor in actors:
        parent = actor.parent if actor.parent in known and actor.parent != actor.id else None
        children.setdefault(parent, []).append(actor)
    lines: list[str] = []
    shown: set[str] = set()
    waiting = [(0, actor) for actor in reversed(children.get(None, []))]
    while waiting:
        depth, actor = waiting.pop()
        if actor.id in shown:
            continue
        shown.add(actor.id)
        lines.append(_actor_line(depth, actor, look))
        waiting += [(depth + 1, child) for child in reversed(children.get(actor.id, []))]
    return lines


def status_lines(status: SystemStatus, look: Look) -> list[str]:
    """Give a running system's state, a fact a line."""
    return [
        f"{look.paint(status.name, 'bold')} is running",
        *_facts(
            [
                ("pid", str(status.pid)),
                ("version", status.version),
                ("since", f"{status.started_at} ({seconds_text(status.uptime_s)})"),
                ("configuration", status.config or "none, the defaults"),
                ("runtime folder", status.runtime_dir),
                ("conversations", str(status.conversations)),
            ]
        ),
    ]


def history_lines(events: Iterable[Event], look: Look) -> list[str]:
    """Give a conversation so far: what was asked, what was called, what was answered."""
    lines: list[str] = []
    for event in events:
        lines += event_lines(event, look)
    return lines or ["Nothing has been said yet."]


def event_lines(event: Event, look: Look) -> list[str]:
    """Give one event's lines in a conversation that is over; none for one that needs none."""
    match event:
        case TurnStarted():
            first, *more = clean(event.text).splitlines() or [""]
            return ["", look.paint(f"> {first}", "bold"), *(f"  {line}" for line in more)]
        case StepFinished(calls=calls) if calls and event.text.strip():
            return clean(event.text).splitlines()
        case ApprovalRequested():
            return [
                look.paint(f"{one_line(event.tool)} waited for a person: {one_line(event.reason)}", "yellow")
            ]
        case ApprovalDecided():
            told = "approved" if event.approved else "denied"
            told += f" by {one_line(event.by)}" if event.by else ""
            return [look.paint(f"{told}: {one_line(event.reason)}" if event.reason else told, "yellow")]
        case HistoryRepaired():
            return [look.paint(f"repaired: {one_line(repair)}", "dim") for repair in event.repairs]
        case TurnAnswered():
            return [*clean(event.text).splitlines(), *citation_lines(event.citations, look)]
        case ToolEnabled():
            return [look.paint(f"{one_line(event.tool)} was enabled", "dim")]
        case ToolDisabled():
            return [look.paint(f"{one_line(event.tool)} was disabled", "dim")]
        case ConversationClosed():
            return [look.paint("the conversation was closed", "dim")]
    line = activity_line(event, look)
    return [] if line is None else [line]


def _table(rows: Sequence[tuple[str, str, str]], look: Look) -> list[str]:
    first = max(cells(state) for state, _, _ in rows)
    second = min(max(cells(name) for _, name, _ in rows), max(8, look.width // 2 - first))
    room = look.width - first - second - 4
    return [
        (
            look.paint(pad(state, first), _STATES.get(state, "dim"))
            + f"  {pad(cut(name, second, look.ellipsis), second)}  {cut(told, room, look.ellipsis)}"
        ).rstrip()
        for state, name, told in rows
    ]


def _server_facts(server: ServerInfo) -> str:
    facts = [f"{server.tools} tools"]
    if server.pid is not None:
        facts.append(f"pid {server.pid}")
    if server.protocol:
        facts.append(f"protocol {one_line(server.protocol)}")
    if server.restarts:
        facts.append(f"{server.restarts} restarts")
    if server.last_error and server.state != "ready":
        facts.insert(0, one_line(server.last_error))
    return ", ".join(facts)


def _actor_line(depth: int, actor: ActorInfo, look: Look) -> str:
    name = f"{'  ' * min(depth, 12)}{one_line(actor.id)}"
    pid = "no process" if actor.pid is None else f"pid {actor.pid}"
    restarts = f", {actor.restarts} restarts" if actor.restarts else ""
    kind = "" if actor.kind == actor.id else f"{one_line(actor.kind)}, "
    memory = f", {actor.rss_mb:.0f} MB" if actor.rss_mb is not None else ""
    facts = f"{kind}{pid}, {one_line(actor.state)}{memory}{restarts}"
    head = cut(name, max(8, look.width - cells(facts) - 2), look.ellipsis)
    return f"{head}  {look.paint(cut(facts, look.width - cells(head) - 2, look.ellipsis), 'dim')}"


def _limit(value: object) -> str:
    return ", ".join(str(part) for part in value) if isinstance(value, tuple | list) else str(value)


def _facts(facts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {pad(name, 14)}  {one_line(value)}" for name, value in facts]


def _first_sentence(description: str) -> str:
    return description.strip().split("\n", 1)[0]
