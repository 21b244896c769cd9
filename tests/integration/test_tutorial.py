"""The first half of docs/tutorial.md, followed as it is written, on the embedded endpoint."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from program_runs import TIMEOUT_S, program_environment

NOT_FOLLOWED = "eval-factory verify results/first\n"
VERIFIED = "results/first: intact"
"""tests/integration/test_altered_results.py verifies a run."""
VARIES = re.compile(r"[\d.]+/s")
"""How quick the machine was."""


def sections(root: Path) -> str:
    """From the first run to the comparison: what needs neither key nor model."""
    text = (root / "docs" / "tutorial.md").read_text("utf-8")
    return text[text.index("## 2. ") : text.index("## 6. ")]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that the commands print, in their order."""
    root = Path(__file__).resolve().parents[2]
    blocks = re.findall(r"^```bash\n(.*?)^```$", sections(root), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    script = "".join(blocks)
    assert NOT_FOLLOWED in script
    env = program_environment()
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(NOT_FOLLOWED, "")],
        cwd=tmp_path_factory.mktemp("tutorial"),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return VARIES.sub("N/s", ran.stdout)


def test_it_prints_what_the_tutorial_shows(said: str, root: Path) -> None:
    """Line by line, where the lines are broken apart from; `...` stands for what is left out."""
    text = re.sub(r"^```bash\n.*?^```$", "", sections(root), flags=re.MULTILINE | re.DOTALL)
    shown = [VARIES.sub("N/s", line) for line in re.findall(r"^ {4}(.+)$", text, re.MULTILINE)]
    followed = [line for line in shown if line != VERIFIED]
    assert len(followed) == len(shown) - 1 > 12
    printed = " ".join(said.split())
    parts = [
        " ".join(part.split())
        for part in chain.from_iterable(line.split("...") for line in followed)
    ]
    assert [part for part in parts if part not in printed] == []
