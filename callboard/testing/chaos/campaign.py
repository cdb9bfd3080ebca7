"""One campaign: a workload of conversations, a nemesis beside it, then heal, probe, stop and the verdict."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from callboard.api import Conversation, System, connect
from callboard.config import Config, default_config
from callboard.config_tables import StorageConfig
from callboard.errors import CallboardError
from callboard.supervisor import log
from callboard.supervisor.process import is_running
from callboard.testing.chaos.history import History, read_history
from callboard.testing.chaos.invariants import violations
from callboard.testing.chaos.message_faults import message_faults
from callboard.testing.chaos.nemesis import FAULTS, Fault, Nemesis, check_leash
from callboard.testing.chaos.stored_log import read_log
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call

TOOLS = "callboard.testing.chaos.tools"
_SETTLE_S = 1.0
_STATE = "state"
_ALL = 100_000
_TOLD = ("seq", "type", "turn_id", "call_id", "tool", "outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What a campaign does: ``conversations`` at once for ``duration_s``, a fault about every ``every_s`` seconds."""

    seed: int
    duration_s: float = 30.0
    conversations: int = 4
    every_s: float = 1.0
    faults: tuple[Fault, ...] = FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How it went. ``violations`` empty: all held."""

    seed: int
    turns: int
    endings: dict[str, int]
    faults: dict[str, int]
    violations: tuple[str, ...]
    history: Path


def run_campaign(campaign: Campaign, folder: Path) -> Verdict:
    """Run it on a private system of its own, with everything it writes in ``folder``. Raises LeashOn."""
    check_leash()
    history = History(folder / "history.jsonl")
    history.write("begin", seed=campaign.seed, duration_s=campaign.duration_s)
    try:
        with ScriptedModelServer(gap_s=0.01) as model:
            config = default_config({}).with_flags(
                base_url=model.base_url, model="scripted", api_key="chaos", tools_from=[TOOLS]
            )
            config = config.model_copy(update={"storage": StorageConfig(path=folder / _STATE)})
            _run(campaign, config, history, folder)
            _tell_what_was_shown(model, history)
        _tell_what_is_stored(folder, history)
    finally:
        history.close()
    return _verdict(campaign, history.path)


def _run(campaign: Campaign, config: Config, history: History, folder: Path) -> None:
    system = connect(config=config, private=True)
    runtime_dir = Path(system.status().runtime_dir)
    outermost = psutil.Process(system.status().pid)
    over = threading.Event()
    nemesis = Nemesis(runtime_dir, history, campaign.seed, campaign.faults)
    workers = [
        threading.Thread(target=_converse, args=(system, history, folder, campaign.seed * 1000 + n, over))
        for n in range(campaign.conversations)
    ]
    observer = threading.Thread(target=_observe, args=(system, history, over))
    for thread in (*workers, observer):
        thread.start()
    pace = random.Random(campaign.seed)
    ends_at = time.monotonic() + campaign.duration_s
    try:
        while time.monotonic() < ends_at:
            over.wait(pace.uniform(0.5, 1.5) * campaign.every_s)
            nemesis.strike()
    finally:
        nemesis.heal()
        over.set()
        for thread in (*workers, observer):
            thread.join(120)
    _probe(system, history)
    _count_starts(runtime_dir, history)
    _stop(system, outermost, runtime_dir, history)


def _converse(system: System, history: History, folder: Path, seed: int, over: threading.Event) -> None:
    choose = random.Random(seed)
    conversation: Conversation | None = None
    while not over.is_set():
        if conversation is None:
            try:
                conversation = system.conversation(linked=False)
            except CallboardError as refused:
                history.write("not_opened", reason=str(refused))
                continue
        _turn(conversation, history, folder, choose)


def _turn(conversation: Conversation, history: History, folder: Path, choose: random.Random) -> None:
    turn_id = uuid.UUID(int=choose.getrandbits(128)).hex
    note = _note(folder, turn_id)
    text = choose.choice(
        [
            "just say something",
            call("note_down", path=str(note), seconds=choose.uniform(0, 0.5)),
            "\n".join(
                [call("note_down", path=str(note)), call("nap", seconds=0.2), call("nap", seconds=0.1)]
            ),
        ]
    )
    began = time.monotonic()
    history.write("turn", id=turn_id, conversation=conversation.id)
    try:
        for event in conversation.ask(text, request_id=turn_id):
            if event.type != "text_delta":
                history.write("turn_event", id=turn_id, type=event.type, seq=event.seq)
            if event.terminal and getattr(event, "turn_id", None) == turn_id:
                history.write(
                    "turn_end",
                    id=turn_id,
                    conversation=conversation.id,
                    ending=event.type,
                    reason=getattr(event, "reason", ""),
                    took_s=round(time.monotonic() - began, 3),
                )
    except CallboardError as refused:
        history.write("turn_refused", id=turn_id, reason=str(refused))
    history.write("effect", id=turn_id, times=_times(note))


def _note(folder: Path, turn_id: str) -> Path:
    return folder / f"effect-{turn_id}"


def _times(note: Path) -> int:
    return len(note.read_text().splitlines()) if note.exists() else 0


def _tell_what_was_shown(model: ScriptedModelServer, history: History) -> None:
    faults = [fault for request in model.requests for fault in message_faults(request.messages)]
    history.write("shown", requests=len(model.requests), faults=faults)


def _tell_what_is_stored(folder: Path, history: History) -> None:
    """Read the journal as it lies on disk, and count all effects once more."""
    turns = [entry.facts for entry in read_history(history.path) if entry.kind == "turn"]
    with read_log(folder / _STATE) as journal:
        history.write("journal", complaints=[str(complaint) for complaint in journal.check()])
        for conversation in sorted({turn["conversation"] for turn in turns}):
            records, _ = journal.read(conversation, "", limit=_ALL)
            history.write("log", conversation=conversation, events=[_in_short(r) for r in records])
    for turn in turns:
        history.write("effect", id=turn["id"], times=_times(_note(folder, turn["id"])))


def _in_short(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in _TOLD if name in record}


def _observe(system: System, history: History, over: threading.Event) -> None:
    """Look again and again for a conversation with two live clients (by the process titles, not the table)."""
    outermost = psutil.Process(system.status().pid)
    while not over.wait(0.25):
        owners: dict[str, list[int]] = defaultdict(list)
        for process in outermost.children(recursive=True):
            conversation = _owned_by(process)
            if conversation is not None:
                owners[conversation].append(process.pid)
        for conversation, pids in owners.items():
            if len(pids) > 1:
                history.write("owners", conversation=conversation, pids=pids)


def _owned_by(process: psutil.Process) -> str | None:
    """Give the conversation whose client this process is: by its title, and that of its parent.

    A worker that was just forked still has its client's title, but not its parent.
    """
    try:
        parent = process.parent()
        if parent is None or _title(parent) != "conversations" or process.status() == psutil.STATUS_STOPPED:
            return None
        title = _title(process)
    except psutil.NoSuchProcess:
        return None
    return title.removeprefix("conversations.") if title.startswith("conversations.") else None


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline()).strip().removeprefix("callboard: ").partition(" (")[0]


def _probe(system: System, history: History) -> None:
    began = time.monotonic()
    ok, why = False, ""
    try:
        *_, last = system.conversation(linked=False).ask(call("nap", seconds=0.01))
        ok, why = last.type == "turn_answered", last.type
    except CallboardError as fault:
        why = str(fault)
    history.write("probe", ok=ok, why=why, took_s=round(time.monotonic() - began, 3))


def _count_starts(runtime_dir: Path, history: History) -> None:
    """From the system's own log: the most starts of one child in any one second."""
    starts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in (runtime_dir / log.FILE_NAME).read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        if fact.get("event") == "started":
            starts[fact["subject"]][fact["timestamp"][:19]] += 1
    for id, seconds in starts.items():
        history.write("starts", id=id, per_second=max(seconds.values()))


def _stop(system: System, outermost: psutil.Process, runtime_dir: Path, history: History) -> None:
    pids = [outermost.pid, *(p.pid for p in outermost.children(recursive=True))]
    began = time.monotonic()
    code = system.close()
    history.write("stopped", code=code, took_s=round(time.monotonic() - began, 3))
    give_up_at = time.monotonic() + _SETTLE_S
    while any(is_running(pid) for pid in pids) and time.monotonic() < give_up_at:
        os.sched_yield()
    history.write(
        "left",
        processes=[pid for pid in pids if is_running(pid)],
        files=[str(runtime_dir)] if runtime_dir.exists() else [],
    )


def _verdict(campaign: Campaign, path: Path) -> Verdict:
    entries = read_history(path)
    return Verdict(
        seed=campaign.seed,
        turns=sum(1 for e in entries if e.kind == "turn"),
        endings=dict(Counter(e.facts["ending"] for e in entries if e.kind == "turn_end")),
        faults=dict(Counter(f"{e.facts['fault']} {e.facts['victim']}" for e in entries if e.kind == "fault")),
        violations=tuple(violations(entries)),
        history=path,
    )
