#!/usr/bin/env bash
# Mutation testing of the supervisor's pure core (docs/mutation.md): needs mutmut 3.8 beside the development extras.
# mutmut wants a package without links and a setup.cfg of its own, so it works in a scratch copy.
#   scripts/mutation.sh [FOLDER]     the copy's place, by default a new temporary one; kept, with all mutants in it
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-$(mktemp -d -t callboard-mutants.XXXXXX)}
python=${PYTHON:-python}
mkdir -p "$work/tests/unit/supervisor"
cp -RL callboard "$work/"
cp -R tests/unit/otp "$work/tests/unit/"
cp tests/unit/conftest.py "$work/tests/unit/"
cp tests/unit/supervisor/test_{core,intensity,backoff}.py "$work/tests/unit/supervisor/"
rm -f "$work"/tests/unit/otp/test_{tasks,manifest}.py
cat > "$work/setup.cfg" <<'CFG'
[mutmut]
source_paths = callboard
only_mutate =
    callboard/supervisor/core*.py
    callboard/supervisor/intensity.py
    callboard/supervisor/backoff.py
pytest_add_cli_args_test_selection =
    tests/unit
pytest_add_cli_args =
    -x
    --import-mode=importlib
    -p
    no:cacheprovider
    --deselect
    tests/unit/otp/test_shutdown.py::test_the_core_carries_a_hundred_thousand_children
    --deselect
    tests/unit/otp/test_shutdown.py::test_the_operations_per_child_do_not_grow_with_their_number
    --deselect
    tests/unit/otp/test_restarts.py::test_short_lived_children_leave_nothing_in_the_core
use_git_change_detection = false
CFG
cd "$work"
echo "in $work"
"$python" -m mutmut run --max-children "${JOBS:-2}" | tail -n 3
"$python" -m mutmut results
"$python" - <<'PY'
"""The score: killed (a timeout is a kill) of all mutants that were tested."""
import json
from pathlib import Path

KILLED, TIMEOUT = {1, 3}, {-24, 24, 36, 152, 255}
files = sorted(Path("mutants/callboard/supervisor").glob("*.meta"))
total = dead = 0
for path in files:
    codes = list(json.loads(path.read_text())["exit_code_by_key"].values())
    if codes:
        killed = sum(code in KILLED | TIMEOUT for code in codes)
        print(f"{path.stem:20} {killed:4} of {len(codes):4}  {killed / len(codes):.1%}")
        total, dead = total + len(codes), dead + killed
print(f"{'all':20} {dead:4} of {total:4}  {dead / total:.1%}")
PY
