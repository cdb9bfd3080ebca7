from __future__ import annotations

import importlib.resources
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.embedded import serve

COMMAND = [sys.executable, "-m", "callboard.embedded.serve", "--weights"]


def run(weights: Path, **environment: str) -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != serve.ENV_KEY}
    done = subprocess.run(
        [*COMMAND, str(weights)], capture_output=True, text=True, timeout=60, env=inherited | environment
    )
    return done.returncode, done.stdout, done.stderr


def test_without_a_key_nothing_is_served(tmp_path: Path) -> None:
    code, said, complaint = run(tmp_path / "w.gguf")
    assert (code, said) == (2, "")
    assert complaint == "embedded model: set CALLBOARD_EMBEDDED_KEY to the key that clients must send\n"


def test_missing_weights_are_named_with_the_cure(tmp_path: Path) -> None:
    code, _, complaint = run(tmp_path / "w.gguf", CALLBOARD_EMBEDDED_KEY="k")
    assert code == 2
    assert str(tmp_path / "w.gguf") in complaint
    assert "callboard model pull" in complaint


def test_a_missing_extra_is_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "w.gguf"
    weights.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    with pytest.raises(serve.StartError, match=r"pip install 'callboard\[local\]'"):
        serve.start(weights, 0, "k")


def test_a_file_that_is_no_model_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    weights = tmp_path / "w.gguf"
    weights.write_bytes(b"not a model")
    code, said, complaint = run(weights, CALLBOARD_EMBEDDED_KEY="k")
    assert (code, said) == (2, "")
    assert f"llama.cpp could not serve {weights}" in complaint


def test_the_template_is_shipped_with_the_package() -> None:
    template = importlib.resources.files("callboard.embedded").joinpath("tools.jinja").read_text()
    assert "<function_call>" in template
