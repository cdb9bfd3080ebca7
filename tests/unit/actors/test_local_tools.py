"""Which module has a name, and what a reload changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from callboard.actors.catalogue_record import Recorded
from callboard.actors.local_tools import LocalTools
from callboard.actors.messages import Reloaded
from callboard.tools.contract import ToolSpec
from callboard.tools.describe import specs_in_a_process
from callboard.tools.errors import ModuleFault
from callboard.tools.kept_source import KeptSources, read_kept


def _spec(name: str, module: str = "m", digest: str = "1") -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={}, module=module, attribute=name, digest=digest)


def test_a_reload_tells_what_came_changed_and_went() -> None:
    local = LocalTools([_spec("builtin", "b")])
    local.take({"m": (_spec("stays"), _spec("changes"), _spec("goes"))})
    changes = local.take({"m": (_spec("stays"), _spec("changes", digest="2"), _spec("comes"))})
    assert changes == Reloaded(added=("comes",), changed=("changes",), removed=("goes",))
    assert set(local.tools) == {"builtin", "stays", "changes", "comes"}


def test_a_broken_module_keeps_its_tools_and_is_told() -> None:
    local = LocalTools([])
    local.take({"m": (_spec("a"),), "n": (_spec("b", "n"),)})
    changes = local.take({"m": ModuleFault("m", "SyntaxError"), "n": (_spec("b", "n", "2"),)})
    assert changes.changed == ("b",)
    assert set(local.tools) == {"a", "b"}
    assert "SyntaxError" in local.faults["m"]
    assert "stay: a" in local.faults["m"]
    local.take({"m": (_spec("a", digest="2"),), "n": (_spec("b", "n", "2"),)})
    assert local.faults == {}


def test_a_module_that_never_loaded_has_no_tools() -> None:
    local = LocalTools([])
    changes = local.take({"m": ModuleFault("m", "no such file")})
    assert changes == Reloaded(faults={"m": "tool module 'm': no such file"})
    assert local.tools == {}


def test_a_module_that_is_not_named_any_more_is_gone() -> None:
    local = LocalTools([])
    local.take({"m": (_spec("a"),), "n": (_spec("b", "n"),)})
    assert local.take({"n": (_spec("b", "n"),)}).removed == ("a",)


def test_of_two_tools_of_one_name_the_first_wins_and_the_other_module_is_at_fault() -> None:
    local = LocalTools([_spec("x", "builtin")])
    local.take({"m": (_spec("x"), _spec("y")), "n": (_spec("y", "n"),)})
    assert (local.tools["x"].module, local.tools["y"].module) == ("builtin", "m")
    assert "already defined by builtin" in local.faults["m"]
    assert "already defined by m" in local.faults["n"]


def test_a_tool_that_two_modules_import_from_a_third_is_one_tool() -> None:
    local = LocalTools([])
    local.take({"m": (_spec("x", "home"),), "n": (_spec("x", "home"),)})
    assert local.faults == {}


def test_a_catalogue_that_follows_another_has_what_that_one_had() -> None:
    first = LocalTools([_spec("builtin", "b")])
    first.take({"m": (_spec("a"),), "n": (_spec("a", "n"),), "o": ModuleFault("o", "broken")})
    next_one = LocalTools([_spec("builtin", "b")], Recorded(modules=first.modules, faults=first.faults))
    assert (next_one.tools, next_one.faults) == (first.tools, first.faults)
    report = next_one.take({"m": ModuleFault("m", "broken"), "n": (), "o": ()})
    assert (report.added, report.changed, report.removed) == ((), (), ())
    assert "the tools that it had stay: a" in report.faults["m"]


def test_a_broken_module_keeps_the_source_that_its_tools_are_run_from() -> None:
    local = LocalTools([])
    local.take({"m": (replace(_spec("a"), kept_source="/kept/1"),)})
    local.take({"m": ModuleFault("m", "broken")})
    assert local.kept_sources == {"/kept/1"}
    local.take({"m": (replace(_spec("a"), kept_source="/kept/2"),)})
    assert local.kept_sources == {"/kept/2"}


def test_an_import_that_hangs_at_a_reload_leaves_the_tools_and_their_source(tmp_path: Path) -> None:
    kept, local = KeptSources(tmp_path / "kept"), LocalTools([])
    file = tmp_path / "users.py"
    file.write_text("from callboard.tools.decorator import tool\n@tool\ndef f() -> None: ...\n")
    local.take(specs_in_a_process([str(file)], 30.0, kept))
    before = local.kept_sources
    file.write_text("import time\ntime.sleep(600)")
    changes = local.take(specs_in_a_process([str(file)], 1.0, kept))
    assert "still being imported after 1 s (the tools that it had stay: f)" in changes.faults[str(file)]
    assert local.kept_sources == before
    assert all(read_kept(path) for path in before)
