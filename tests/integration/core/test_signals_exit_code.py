"""An interrupt in generated code, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("forgets", "code"), [("", -signal.SIGINT), ("forget_interrupts()", 130)])
def test_an_interrupt_in_generated_code_does_not_change_the_exit_code(forgets: str, code: int, tmp_path: Path) -> None:
    """The first case is CPython's own behaviour: once it is gone, `forget_interrupts` can go."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from eval_factory.core.this_process import forget_interrupts\n"
        "try:\n    exec('raise KeyboardInterrupt')\nexcept KeyboardInterrupt:\n    pass\n"
        f"{forgets}\n"
        "sys.exit(130)\n"
    )
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)
    assert ended.returncode == code
