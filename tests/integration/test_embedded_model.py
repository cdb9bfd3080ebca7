"""The embedded model, for real: one fixed question with one tool call, and its process killed."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import psutil
import pytest

import callboard
from callboard.config import default_config
from callboard.testing.turns import eventually, finished_calls

WEIGHTS = os.environ.get("CALLBOARD_WEIGHTS", "")
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not WEIGHTS or not Path(WEIGHTS).is_file() or importlib.util.find_spec("xllamacpp") is None,
        reason="CALLBOARD_WEIGHTS names no weights ('callboard model pull'), or the extra 'local' is not installed",
    ),
]


def test_it_answers_a_question_with_a_tool_call_and_survives_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CALLBOARD_WEIGHTS", WEIGHTS)
    with callboard.connect(config=default_config({}), private=True) as system:
        conversation = system.conversation(tools=["calculate"])
        events = list(conversation.ask("What is 17 * 23?"))
        assert [e.tool for e in finished_calls(events)][:1] == ["calculate"]
        assert events[-1].type == "turn_answered"
        assert "391" in events[-1].text  # type: ignore[attr-defined]

        outermost = psutil.Process(system.status().pid)
        serving = [p for p in outermost.children(recursive=True) if "callboard.embedded.serve" in p.cmdline()]
        assert len(serving) == 1
        os.kill(serving[0].pid, signal.SIGKILL)
        eventually(lambda: not serving[0].is_running(), what="the model's process is gone")
        again = list(conversation.ask("What is 12 * 12?"))
        assert again[-1].type == "turn_answered"
        assert "144" in again[-1].text  # type: ignore[attr-defined]
