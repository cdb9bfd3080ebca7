"""The example tools load and work."""

from __future__ import annotations

import socket
from pathlib import Path

from callboard.tools.content import JsonBlock, TextBlock
from callboard.tools.contract import ToolContext
from callboard.tools.execute import execute
from callboard.tools.loader import load_tool, specs_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_tools.py"


def test_the_example_tools_do_what_they_say(tmp_path: Path) -> None:
    port, note, statistics = (load_tool(spec) for spec in specs_of(str(EXAMPLE)))
    (block,) = execute(statistics, {"text": "Some words, some more words."}, ToolContext()).content
    assert isinstance(block, JsonBlock)
    assert (block.value["words"], block.value["frequent"]["words"]) == (5, 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        opened = execute(port, {"host": "127.0.0.1", "port": number}, ToolContext())
    closed = execute(port, {"host": "127.0.0.1", "port": number}, ToolContext())
    assert opened.content == (TextBlock(f"127.0.0.1:{number} is open"),)
    assert "is closed" in str(closed.content)
    context = ToolContext(user="eva", settings={"file": str(tmp_path / "notes.txt")})
    assert not execute(note, {"text": "milk"}, context).is_error
    assert (tmp_path / "notes.txt").read_text().endswith("eva: milk\n")
