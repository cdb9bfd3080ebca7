"""Users' modules are loaded, described, and complained about."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from callboard.testing.tool_checks import faults_of
from callboard.tools.builtin import BUILTIN_MODULES
from callboard.tools.content import JsonBlock
from callboard.tools.contract import Annotations, ToolContext, ToolSpec
from callboard.tools.decorator import Tool
from callboard.tools.errors import ModuleFault
from callboard.tools.execute import execute
from callboard.tools.kept_source import MAX_BYTES, KeptSource, digest_of
from callboard.tools.loader import (
    Description,
    describe_module,
    load_module,
    load_tool,
    private_name,
    specs_of,
)
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


# ------------------------------------------------------------ what was described is what runs
def _kept(spec: ToolSpec, source: str) -> ToolSpec:
    """The spec as a catalogue gives it whose kept file is lost."""
    assert spec.module is not None
    module = sys.modules[spec.module if not spec.module.endswith(".py") else private_name(Path(spec.module))]
    return replace(spec, kept_source=f"/nowhere/{digest_of(module.__file__ or '', source.encode())}")


def _form(source: str | bytes) -> bytes:
    """What a catalogue keeps of this source, for a Python of another version."""
    return KeptSource(source.encode() if isinstance(source, str) else source, b"other").to_bytes()


def _sources(found: Description) -> dict[str, bytes]:
    return {digest: KeptSource.from_bytes(form).source for digest, form in found.kept.items()}


def _forget(module: str) -> None:
    sys.modules.pop(private_name(Path(module)), None)


@pytest.mark.parametrize("on_disk", ["1 / 0\n", "def broken(:\n", None, TWO_TOOLS.replace("a + b", "a - b")])
def test_a_tool_runs_from_its_source_as_described_whatever_lies_on_disk(
    tmp_path: Path, on_disk: str | None
) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    add, shout = describe_module(path).specs
    _forget(path)
    Path(path).unlink()
    if on_disk is not None:
        _write(tmp_path, on_disk)
    tool = load_tool(add, _form(TWO_TOOLS))
    assert execute(tool, {"a": 5, "b": 2}, ToolContext()).content == (JsonBlock(7),)
    assert load_tool(shout, _form(TWO_TOOLS)).execute({"text": "hi"}, ToolContext()) == "HI"
    module = sys.modules[private_name(Path(path))]
    assert (module.__file__, module.__name__) == (path, private_name(Path(path)))
    assert pickle.loads(pickle.dumps(module.Pair(3))) == module.Pair(3)


def test_a_traceback_shows_the_lines_that_ran(tmp_path: Path) -> None:
    source = HEADER + "@tool\ndef fail() -> None:\n    raise ValueError('old')  # the line as described\n"
    path = _write(tmp_path, source)
    (fail,) = specs_of(path)
    _forget(path)
    _write(tmp_path, "# nothing\n" * 9)
    tool = load_tool(fail, _form(source))
    with pytest.raises(ValueError, match="old") as raised:
        tool.execute({}, ToolContext())
    told = "".join(traceback.format_exception(raised.value))
    assert f'File "{path}", line 4, in fail' in told
    assert "# the line as described" in told
    assert "# the line as described" in inspect.getsource(sys.modules[private_name(Path(path))])


def test_source_in_another_encoding_is_kept_byte_for_byte(tmp_path: Path) -> None:
    source = (f"# -*- coding: latin-1 -*-\n{HEADER}@tool\ndef say() -> str:\n    return 'é'\n").encode(
        "latin-1"
    )
    path = str(tmp_path / "users_tools.py")
    Path(path).write_bytes(source)
    found = describe_module(path)
    assert _sources(found) == {found.digests["say"]: source}
    _forget(path)
    Path(path).unlink()
    assert load_tool(found.specs[0], _form(source)).execute({}, ToolContext()) == "é"


def test_the_digest_is_that_of_the_source_which_was_executed(tmp_path: Path) -> None:
    rewrite = "from pathlib import Path\nPath(__file__).write_text('# edited while it was imported')\n"
    path = _write(tmp_path, rewrite + TWO_TOOLS)
    found = describe_module(path)
    assert set(_sources(found).values()) == {(rewrite + TWO_TOOLS).encode()}


def test_a_source_that_is_too_large_is_not_kept_but_has_its_digest(tmp_path: Path) -> None:
    source = TWO_TOOLS + "#" * MAX_BYTES
    path = _write(tmp_path, source)
    found = describe_module(path)
    assert found.kept == {}
    assert found.digests == {name: digest_of(path, source.encode()) for name in ("add", "shout")}


def test_without_the_kept_source_the_file_must_be_as_described(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    add = _kept(specs_of(path)[0], TWO_TOOLS)
    _forget(path)
    assert load_tool(add).name == "add"
    _write(tmp_path, f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n" + TWO_TOOLS)
    _forget(path)
    with pytest.raises(ModuleFault, match=r"not what was described.*'callboard reload'"):
        load_tool(add)
    assert not (tmp_path / "ran").exists()
    Path(path).unlink()
    with pytest.raises(ModuleFault, match="'callboard reload'"):
        load_tool(add)
    _write(tmp_path, TWO_TOOLS.replace("Add.", "Sum."))
    assert load_tool(replace(add, kept_source="")).description == "Sum."  # no catalogue: the file as it is


def test_what_fails_beside_an_edited_file_names_the_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    _write(tmp_path, "word = 'old'\n", "users_beside.py")
    source = "from users_beside import word\n" + TWO_TOOLS
    path = _write(tmp_path, source)
    add = _kept(specs_of(path)[0], source)
    for name in ("users_beside", private_name(Path(path))):
        del sys.modules[name]
    _write(tmp_path, "words = 'renamed'\n", "users_beside.py")
    _write(tmp_path, source.replace("word", "words"))
    with pytest.raises(ModuleFault, match=r"cannot import name 'word'.*'callboard reload'"):
        load_tool(add, _form(source))


@pytest.mark.parametrize("init", ["", "from .tools import add\n"])
def test_a_module_of_a_package_runs_from_its_source_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str
) -> None:
    (tmp_path / "users_package").mkdir()
    package = tmp_path / "users_package"
    _write(package, init, "__init__.py")
    _write(package, "word = 'beside'\n", "words.py")
    source = TWO_TOOLS + "\nfrom .words import word\n@tool\ndef say() -> str:\n    return f'old {word}'\n"
    _write(package, source, "tools.py")
    monkeypatch.syspath_prepend(tmp_path)
    found = describe_module("users_package.tools")
    say = next(spec for spec in found.specs if spec.name == "say")
    assert (say.module, list(_sources(found).values())) == ("users_package.tools", [source.encode()])
    say = _kept(say, source)
    for name in [name for name in sys.modules if name.startswith("users_package")]:
        del sys.modules[name]
    _write(package, source.replace("old", "new") + "\n", "tools.py")
    with pytest.raises(ModuleFault, match="'callboard reload'"):
        load_tool(say)
    tool = load_tool(say, _form(source))
    assert tool.execute({}, ToolContext()) == "old beside"
    module = sys.modules["users_package.tools"]
    assert (module.__package__, module.__file__) == ("users_package", str(package / "tools.py"))
    assert sys.meta_path == [finder for finder in sys.meta_path if type(finder).__name__ != "_OneModule"]


HOOK = """
import sys
from importlib.machinery import SourceFileLoader

class Loader(SourceFileLoader):
    def source_to_code(self, data, path, **more):
        return super().source_to_code(bytes(data).replace(b"plain", b"hooked"), path)

class Finder:
    def find_spec(self, name, path, target=None):
        for finder in sys.meta_path:
            if finder is not self and name == "users_hooked.tools" and type(finder).__name__ != "_OneModule":
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    spec.loader = Loader(spec.name, spec.origin)
                    return spec

sys.meta_path.insert(0, Finder())
"""


def test_a_module_that_an_import_hook_changes_runs_through_it_while_its_file_is_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "users_hooked"
    package.mkdir()
    _write(package, HOOK, "__init__.py")
    source = HEADER + "@tool\ndef say() -> str:\n    return 'plain'\n"
    path = _write(package, source, "tools.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = describe_module("users_hooked.tools")
    assert (found.digests, found.kept) == ({"say": digest_of(path, source.encode())}, {})
    say = replace(found.specs[0], kept_source=f"/nowhere/{found.digests['say']}")

    def load_anew() -> Tool:
        for name in [name for name in sys.modules if name.startswith("users_hooked")]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "Finder"]
        return load_tool(say)

    assert load_anew().execute({}, ToolContext()) == "hooked"
    _write(package, source + "\n", "tools.py")
    with pytest.raises(ModuleFault, match="'callboard reload'"):
        load_anew()


def test_a_module_in_an_archive_runs_while_it_is_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "users.zip"

    def write(source: str) -> None:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("users_zipped/__init__.py", "#" * len(source))
            file.writestr("users_zipped/tools.py", source)

    write(TWO_TOOLS)
    monkeypatch.syspath_prepend(archive)
    found = describe_module("users_zipped.tools")
    digest = digest_of(str(archive / "users_zipped" / "tools.py"), TWO_TOOLS.encode())
    assert (found.digests, found.kept) == ({"add": digest, "shout": digest}, {})
    add = replace(found.specs[0], kept_source=f"/nowhere/{digest}")

    def load_anew() -> Tool:
        for name in [name for name in sys.modules if name.startswith("users_zipped")]:
            del sys.modules[name]
        return load_tool(add)

    assert execute(load_anew(), {"a": 5, "b": 2}, ToolContext()).content == (JsonBlock(7),)
    write(TWO_TOOLS.replace("a + b", "a - b - 0"))
    with pytest.raises(ModuleFault, match="'callboard reload'"):
        load_anew()


def test_what_is_in_memory_gives_way_to_what_was_described_and_stays_when_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    _write(tmp_path, TWO_TOOLS, "users_dotted.py")
    path = _write(tmp_path, TWO_TOOLS)
    for ref in ("users_dotted", path):
        add, _ = specs_of(ref)
        first = load_module(ref)
        assert load_module(ref, source=KeptSource(TWO_TOOLS.encode())) is first
        with pytest.raises(ModuleFault, match="ZeroDivisionError"):
            load_tool(add, _form("1 / 0"))
        assert load_module(ref) is first
        assert load_tool(add, _form(TWO_TOOLS.replace("Add.", "Sum."))).description == "Sum."


def test_a_tool_of_another_module_comes_with_that_module_s_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, TWO_TOOLS, "users_first.py")
    monkeypatch.syspath_prepend(tmp_path)
    own = HEADER + "from users_first import add\n@tool\ndef mine() -> None: ...\n"
    found = describe_module(_write(tmp_path, own, "users_second.py"))
    sources = {name: _sources(found)[digest] for name, digest in found.digests.items()}
    assert sources == {"add": TWO_TOOLS.encode(), "mine": own.encode()}


def test_what_it_compiles_to_is_kept_too_and_is_what_runs(tmp_path: Path) -> None:
    path = _write(tmp_path, TWO_TOOLS)
    found = describe_module(path)
    kept = KeptSource.from_bytes(found.kept[found.digests["add"]])
    _forget(path)
    tool = load_tool(found.specs[0], KeptSource(b"not what was compiled", kept.compiled).to_bytes())
    assert execute(tool, {"a": 1, "b": 2}, ToolContext()).content == (JsonBlock(3),)


def test_a_function_without_a_docstring_has_no_description_and_not_its_class_one(tmp_path: Path) -> None:
    file = tmp_path / "poor.py"
    file.write_text("from callboard import tool\n\n@tool\ndef poor(a: int) -> int:\n    return a\n")
    (spec,) = specs_of(str(file))
    assert spec.description == ""


def test_the_products_own_tools_pass_the_check_that_others_are_given() -> None:
    specs = [spec for module in BUILTIN_MODULES for spec in specs_of(module)]
    assert [(spec.name, faults_of(spec)) for spec in specs if faults_of(spec)] == []
