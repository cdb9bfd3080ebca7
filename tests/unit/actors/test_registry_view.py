"""The catalogue is asked when the registry's mark is another one, or none, and only then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.actors.messages import GetRegistry, Registry, RegistryUnchanged
from callboard.actors.registry_mark import RegistryMark
from callboard.actors.registry_view import RegistryView
from callboard.supervisor.envelope import Failure


class Host:
    """An actor with a catalogue that answers when the test says so."""

    def __init__(self, runtime_dir: Path) -> None:
        self.init = SimpleNamespace(runtime_dir=str(runtime_dir))
        self.log = SimpleNamespace(warning=lambda *_, **__: None)
        self.asked: list[tuple[GetRegistry, Callable[[Any], None]]] = []

    def ask(self, _target: str, body: GetRegistry, then: Callable[[Any], None], *, deadline_s: float) -> None:
        self.asked.append((body, then))

    def then_continue(self, action: Callable[[], None]) -> None:
        action()

    def answer(self, answer: object) -> None:
        self.asked.pop(0)[1](answer)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def look(view: RegistryView) -> list[str]:
    seen: list[str] = []
    view.look(lambda registry: seen.append(registry.version))
    return seen


def test_an_unchanged_mark_saves_the_question(host: Host, tmp_path: Path) -> None:
    mark, view = RegistryMark(str(tmp_path)), RegistryView(host)  # type: ignore[arg-type]
    mark.put("1")
    seen = look(view)
    host.answer(Registry(version="1"))
    assert seen == ["1"]
    assert look(view) == ["1"]
    assert host.asked == []
    mark.put("2")
    assert look(view) == []
    assert host.asked[0][0].known == "1"


def test_a_change_between_the_question_and_its_answer_is_seen_at_the_next_look(
    host: Host, tmp_path: Path
) -> None:
    mark, view = RegistryMark(str(tmp_path)), RegistryView(host)  # type: ignore[arg-type]
    mark.put("1")
    look(view)
    mark.put("2")
    host.answer(Registry(version="1"))
    assert look(view) == []
    host.answer(Registry(version="2"))
    assert look(view) == ["2"]


def test_without_a_mark_the_catalogue_is_asked_each_time(host: Host, tmp_path: Path) -> None:
    mark, view = RegistryMark(str(tmp_path)), RegistryView(host)  # type: ignore[arg-type]
    for version in "12":
        look(view)
        host.answer(Registry(version=version))
    look(view)
    host.answer(RegistryUnchanged())
    mark.put("2")
    assert look(view) == ["2"]
    mark.remove()
    assert look(view) == []


def test_a_catalogue_that_is_away_is_asked_again(host: Host, tmp_path: Path) -> None:
    mark, view = RegistryMark(str(tmp_path)), RegistryView(host)  # type: ignore[arg-type]
    mark.put("1")
    look(view)
    host.answer(Registry(version="1"))
    mark.put("2")
    seen = look(view)
    host.answer(Failure(kind="unanswered", message="away"))
    assert seen == ["1"], "what was seen last will do"
    assert look(view) == []


def test_a_mark_that_cannot_be_set_is_none(tmp_path: Path) -> None:
    mark = RegistryMark(str(tmp_path))
    mark.put("1")
    (tmp_path / "registry.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        mark.put("2")
    assert mark.version() == ""
