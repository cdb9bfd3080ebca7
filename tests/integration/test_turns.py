"""What a turn makes of a system that is stopped on purpose, over real processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from callboard.config import Config
from callboard.config_tables import StorageConfig
from callboard.testing.chaos.daemon import ChaosDaemon
from callboard.testing.turns import call, eventually


def test_a_turn_outlives_any_number_of_stops_on_purpose(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    """Two losses would be poison: docs/decisions/042."""
    state, file = tmp_path / "state", tmp_path / "notes"
    state.mkdir(mode=0o700)
    config = configured().model_copy(update={"storage": StorageConfig(path=state)})
    daemon = ChaosDaemon(config, f"c-{uuid.uuid4().hex[:8]}")
    try:
        with daemon.start() as system:
            conversation = system.conversation(conversation_id="c", linked=False)
            next(iter(conversation.ask(call("note_again", path=str(file), text="again", seconds=1.5))))
            for life in (1, 2):
                eventually(lambda life=life: file.exists() and len(file.read_text().split()) == life, 30.0)
                daemon.stop()
                daemon.start().close()
            eventually(lambda: any(e.terminal for e in conversation.history()), 30.0, "the turn ends")
            types = [event.type for event in conversation.history()]
            conversation.close()
    finally:
        daemon.end()
    assert types[-1] == "turn_answered"
    assert [t for t in types if t in ("turn_interrupted", "turn_resumed")] == [
        "turn_interrupted",
        "turn_resumed",
    ] * 2
