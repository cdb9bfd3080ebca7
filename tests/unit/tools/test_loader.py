"""Users' modules are loaded, described, and complained about."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.tools.builtin import BUILTIN_MODULES
from callboard.tools.content import JsonBlock
from callboard.tools.contract import Annotations, ToolContext
from callboard.tools.errors import ModuleFault
from callboard.tools.execute import execute
from callboard.tools.loader import load_module, load_tool, private_name, specs_of
from callboard.tools.names import BUILTIN_NAMES

HEADER = "from callboard.tools.decorator import Tool, tool\n"
TWO_TOOLS = (
    HEADER
    + """
from dataclasses import dataclass
from callboard.tools.contract import Annotations

@dataclass
class Pair:
    a: int

@tool(deadline_s=2.0, memory_mb=64, read_only=True)
def add(a: int, b: int) -> int:
    '''Add.'''
    return a + b

class Shout(Tool):
    '''Shout it.'''

    name = "shout"
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    annotations = Annotations(idempotent=True)

    def execute(self, arguments, context):
        return arguments["text"].upper()
"""
)


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("_callboard_tools_", "users_")):
            del sys.modules[name]


def _write(folder: Path, source: str, name: str = "users_tools.py") -> str:
    file = folder / name
    file.write_text(source)
    return str(file)


def test_a_file_of_tools_is_described(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    add, shout = specs_of(path)
    assert (add.name, add.description, add.module, add.attribute) == ("add", "Add.", path, "add")
    assert (add.deadline_s, add.limits.memory_mb, add.annotations) == (2.0, 64, Annotations(read_only=True))
    assert add.parameters["required"] == ["a", "b"]
    assert (shout.name, shout.description, shout.attribute) == ("shout", "Shout it.", "Shout")
    assert shout.repeatable
    assert pickle.loads(pickle.dumps(add)) == add


def test_a_spec_leads_back_to_its_tool(tmp_path: Path) -> None:
    add, shout = specs_of(_write(tmp_path, TWO_TOOLS))
    assert execute(load_tool(add), {"a": 1, "b": 2}, ToolContext()).content == (JsonBlock(3),)
    assert load_tool(shout).execute({"text": "hi"}, ToolContext()) == "HI"


def test_what_a_file_defines_can_be_pickled(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    module = load_module(path)
    assert module.__name__ == private_name(Path(path))
    assert pickle.loads(pickle.dumps(module.Pair(3))) == module.Pair(3)


def test_the_digest_changes_with_the_source_and_with_nothing_else(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    first = specs_of(path)
    assert first == specs_of(path)
    assert len({spec.digest for spec in first}) == 2
    # The same length and the same second: a cache of compiled code would not notice.
    _write(tmp_path, TWO_TOOLS.replace("Add.", "Sum."))
    changed = specs_of(path)
    assert changed[0].description == "Sum."
    assert all(new.digest != old.digest for new, old in zip(changed, first, strict=True))
    assert [file.name for file in tmp_path.iterdir()] == ["users_tools.py"]


def test_a_module_is_loaded_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, TWO_TOOLS, "users_dotted.py")
    monkeypatch.syspath_prepend(tmp_path)
    specs = specs_of("users_dotted")
    assert [(spec.name, spec.module) for spec in specs] == [
        ("add", "users_dotted"),
        ("shout", "users_dotted"),
    ]


def test_a_tool_from_another_module_belongs_to_that_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, TWO_TOOLS, "users_first.py")
    monkeypatch.syspath_prepend(tmp_path)
    path = _write(tmp_path, "from users_first import add, Shout\n", "users_second.py")
    (spec,) = specs_of(path)
    assert (spec.name, spec.module, spec.attribute) == ("add", "users_first", "add")


def test_an_instance_stands_for_its_class(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS + "\nloud = Shout()\nloud.name = 'loud'\n_hidden = Shout()\n")
    specs = specs_of(path)
    assert [(spec.name, spec.attribute) for spec in specs] == [("add", "add"), ("loud", "loud")]


def test_one_tool_under_two_names_is_one_tool(tmp_path: Path) -> None:
    assert len(specs_of(_write(tmp_path, TWO_TOOLS + "\nplus = add\n"))) == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\n", ["no tools", "@tool"]),
        ("def broken(:\n", ["SyntaxError"]),
        ("\nimport nothing_like_this\n", ["nothing_like_this", "line 2"]),
        ("\n\n1 / 0\n", ["ZeroDivisionError", "line 3"]),
        ("import sys\nsys.exit(3)\n", ["exit (3)"]),
        (HEADER + "@tool\ndef f(x):\n    pass\n", ["'f'", "'x'", "annotation"]),
        (
            HEADER + "@tool(name='same')\ndef f() -> None: ...\n@tool(name='same')\ndef g() -> None: ...\n",
            ["two tools", "'same'", "f", "g"],
        ),
        (HEADER + "class T(Tool):\n    def execute(self, arguments, context): ...\n", ["'T'", "name"]),
        (
            HEADER + "class T(Tool):\n    def __init__(self, x): ...\n    def execute(self, a, c): ...\n",
            ["class T", "without arguments"],
        ),
        (
            HEADER
            + "class T(Tool):\n    name = 't'\n    parameters = {'type': 'object', 'default': {1, 2}}\n"
            "    def execute(self, arguments, context): ...\n",
            ["'t'", "not JSON"],
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_a_fault_that_says_why(
    tmp_path: Path, source: str, words: list[str]
) -> None:
    path = _write(tmp_path, source)
    with pytest.raises(ModuleFault) as fault:
        specs_of(path)
    assert fault.value.module == path
    assert all(word in fault.value.reason for word in words), fault.value.reason


@pytest.mark.parametrize(
    ("module", "word"), [("/nowhere/tools.py", "no such file"), ("nothing_like_this.at_all", "installed")]
)
def test_a_module_that_is_not_there_is_a_fault(module: str, word: str) -> None:
    with pytest.raises(ModuleFault, match=word):
        specs_of(module)


def test_a_failed_load_leaves_the_former_module_in_place(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    (add, _) = specs_of(path)
    _write(tmp_path, "1 / 0\n")
    with pytest.raises(ModuleFault):
        specs_of(path)
    assert load_tool(add).name == "add"


def test_a_tool_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    (add, _) = specs_of(path)
    _write(tmp_path, TWO_TOOLS.replace("def add", "def plus"))
    specs_of(path)
    with pytest.raises(ModuleFault, match="no longer holds"):
        load_tool(add)


def test_a_fault_survives_pickling() -> None:
    fault = ModuleFault("m", "why")
    copy = pickle.loads(pickle.dumps(fault))
    assert (copy.module, copy.reason, str(copy)) == ("m", "why", str(fault))


def test_the_built_in_modules_hold_just_the_reserved_names() -> None:
    specs = [spec for module in BUILTIN_MODULES for spec in specs_of(module)]
    assert {spec.name for spec in specs} == BUILTIN_NAMES
    assert all(spec.annotations.read_only and spec.annotations.idempotent for spec in specs)
    assert all(spec.description and spec.parameters["additionalProperties"] is False for spec in specs)


def test_loading_one_tool_loads_no_other_module_of_tools() -> None:
    check = (
        "import sys; from callboard.tools.contract import ToolSpec;"
        "from callboard.tools.loader import load_tool;"
        "load_tool(ToolSpec(name='calculate', description='', parameters={}, attribute='calculate',"
        " module='callboard.tools.builtin.calculate'));"
        "sys.exit('callboard.tools.builtin.documents' in sys.modules or 'jsonschema' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=30, check=False).returncode == 0
