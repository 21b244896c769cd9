"""Any JSON, and any bytes, as answers of a model and of judges: no run ends with a defect, every instance is counted.

`EVAL_FACTORY_FUZZ_FACTOR` multiplies the examples, for a longer look.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from program_runs import program_environment

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "answer_fuzz.py"
TESTS = PROGRAM.parents[1]
EXAMPLES = {"chat": 4, "completions": 4, "jury": 3}
FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))
TIMEOUT_S = 300


@pytest.mark.parametrize("kind", EXAMPLES)
def test_any_answer_costs_its_own_instance_at_most(kind: str, tmp_path: Path) -> None:
    examples = max(1, round(EXAMPLES[kind] * FACTOR))
    finished = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(examples)],
        env=program_environment(PYTHONPATH=str(TESTS), TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * max(1.0, FACTOR),
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[:4000]
    assert f"{kind}: {examples} runs of" in finished.stderr
