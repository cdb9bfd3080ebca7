"""The tree, as data: which actors live, under whom, and by which restart policy. The whole system on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from callboard.actors import names
from callboard.actors.settings import Settings
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.supervisor import SUPERVISOR

_WORKERS_NEED = "callboard.tools.signature:preload"
_QUICK = Backoff(min_s=0.01, max_s=2.0)
_SHUTDOWN_S = 1.0
_PATIENT = Backoff(min_s=0.05, max_s=30.0, reset_after_s=30.0)


def root_args(settings: Settings) -> dict[str, object]:
    """Give the root supervisor's start arguments: its flags and its children, in start order."""
    args, slim = {"settings": settings}, {"settings": settings.without_secrets()}
    return {
        "flags": SupervisorFlags(intensity=Intensity(limit=10, period_s=10.0)),
        "children": (
            _permanent(names.JOURNAL, "callboard.actors.journal.JournalActor", "journal", args),
            _permanent(names.CATALOGUE, "callboard.actors.catalogue.CatalogueActor", "catalogue", slim),
            _permanent(names.LIMITS, "callboard.actors.limits.LimitsActor", "limits", {}),
            _supervisor(names.MODELS, _models(settings), preload=("openai",)),
            _supervisor(names.SERVERS, _servers(settings)),
            _supervisor(
                names.CONVERSATIONS,
                (),
                dynamic=True,
                max_children=settings.max_conversations,
                preload=("callboard.actors.client", "callboard.tools.runner", "asyncio", _WORKERS_NEED),
            ),
            _permanent(names.CALLER, "callboard.actors.caller.CallerActor", "caller", slim),
            _permanent(
                names.DIRECTORY,
                "callboard.actors.directory.DirectoryActor",
                "directory",
                {"client": _client(settings)},
            ),
        ),
    }


def _client(settings: Settings) -> ChildSpec:
    """What the spec of every conversation's client is made of, by the directory."""
    return ChildSpec(
        id="client",
        actor="callboard.actors.client.ClientActor",
        kind="client",
        args={"settings": settings.without_secrets()},
        restart="transient",
        shutdown_s=_SHUTDOWN_S,
        backoff=_QUICK,
        max_consecutive=5,
        on_exhausted="drop",
    )


def _permanent(id: str, actor: str, kind: str, args: Mapping[str, object]) -> ChildSpec:
    return ChildSpec(id=id, actor=actor, kind=kind, args=args, shutdown_s=_SHUTDOWN_S, backoff=_QUICK)


def _supervisor(
    id: str,
    children: tuple[ChildSpec, ...],
    *,
    dynamic: bool = False,
    max_children: int | None = None,
    preload: tuple[str, ...] = (),
) -> ChildSpec:
    flags = SupervisorFlags(intensity=Intensity(10, 10.0), dynamic=dynamic, max_children=max_children)
    args = {"flags": flags, "children": children, "preload": preload}
    return ChildSpec(
        id=id,
        actor=SUPERVISOR,
        kind="supervisor",
        args=args,
        type="supervisor",
        shutdown_s=2.0,
        start_s=45.0,
        backoff=_QUICK,
    )


def _models(settings: Settings) -> tuple[ChildSpec, ...]:
    args = {"settings": settings}
    actors = tuple(
        _permanent(f"m{number}", "callboard.actors.model.ModelActor", "model", args)
        for number in range(settings.model_actors)
    )
    if settings.model.fallback is not None:
        spare = {"settings": replace(settings, model=settings.model.fallback)}
        actors += (_permanent("fallback", "callboard.actors.model.ModelActor", "model", spare),)
    if settings.model.kind != "embedded":
        return actors
    embedded = ChildSpec(
        id="embedded",
        actor="callboard.actors.embedded.EmbeddedActor",
        kind="embedded_model",
        args=args,
        shutdown_s=_SHUTDOWN_S,
        backoff=_PATIENT,
        max_consecutive=5,
        on_exhausted="park",
    )
    return (embedded, *actors)


def _servers(settings: Settings) -> tuple[ChildSpec, ...]:
    return tuple(
        ChildSpec(
            id=server.name,
            actor="callboard.actors.external_server.ExternalServerActor",
            kind="external_server",
            args={"server": server},
            shutdown_s=2.5,
            backoff=_PATIENT,
            max_consecutive=5,
            on_exhausted="park",
        )
        for server in settings.servers
    )
