"""Thespian's own test suite, from the installed package, with our system base in the place of ``multiprocTCPBase``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import thespian.test

_SUITE = Path(thespian.test.__file__).parent
_FILES = sorted(path.name for path in _SUITE.glob("test_*.py"))
_LIMIT_S = 280


@pytest.mark.integration
@pytest.mark.thespian_suite
@pytest.mark.timeout(_LIMIT_S + 20)
@pytest.mark.parametrize("file", _FILES)
def test_thespians_own_tests_pass_on_our_base(file: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    environment["THESPLOG_FILE"] = str(tmp_path / "thespian.log")
    options = [
        "-q",
        "--no-header",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "suite_plugin",
        "-c",
        os.devnull,
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        "--rootdir",
        str(_SUITE),
        "--timeout=120",
        str(_SUITE / file),
    ]
    with (tmp_path / "output").open("w+") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, timeout=_LIMIT_S, env=environment, cwd=tmp_path
        )
        output.seek(0)
        assert done.returncode == 0, output.read()[-6000:]
