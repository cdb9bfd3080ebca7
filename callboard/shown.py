"""From what actors answer and what the process table and the journal hold to the views that callers get.

Used by ``callboard.api``, and by commands that work without a daemon.
"""

from __future__ import annotations

import dataclasses

from callboard.actors.messages import ToolState
from callboard.storage.journal_terms import Summary
from callboard.supervisor.figures import figures_of
from callboard.supervisor.table import Row
from callboard.views import ActorInfo, ConversationInfo, ToolListing


def actor_info(row: Row) -> ActorInfo:
    """Show one row of the process table, with what its process uses now."""
    used = figures_of(row.pid) if row.pid is not None else None
    return ActorInfo(
        id=row.id,
        kind=row.kind,
        pid=row.pid,
        parent=row.parent,
        state=row.state,
        restarts=row.restarts,
        rss_mb=used.rss_mb if used else None,
        cpu_s=used.cpu_s if used else None,
        threads=used.threads if used else None,
        descriptors=used.descriptors if used else None,
    )


def tool_listing(state: ToolState) -> ToolListing:
    """Show one tool of the registry."""
    spec = state.spec
    flags = ("read_only", "destructive", "idempotent", "open_world")
    source = spec.server or spec.module or ""
    return ToolListing(
        name=spec.name,
        description=spec.description,
        state=state.state,
        reason=state.reason,
        source="built-in" if source.startswith("callboard.tools.builtin") else source,
        annotations=tuple(flag for flag in flags if getattr(spec.annotations, flag)),
        limits={"deadline_s": spec.deadline_s, **(dataclasses.asdict(spec.limits) if spec.is_local else {})},
        parameters=dict(spec.parameters),
    )


def conversation_info(summary: Summary) -> ConversationInfo:
    """Show one conversation of the journal."""
    fields = dataclasses.asdict(summary)
    return ConversationInfo(conversation_id=fields.pop("conversation"), **fields)
