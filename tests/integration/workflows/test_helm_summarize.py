"""helm-summarize is tried once more where it ends badly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from builders import context
from eval_factory.core.errors import HelmError
from eval_factory.core.rundir import RunDir
from eval_factory.workflows.helm_run import SUMMARIZE_TRIES, run_helm_summarize
from facts import each_says, naming

FAKE = """
import pathlib, sys
tries = pathlib.Path(sys.argv[1])
tries.write_text(tries.read_text() + "x")
print("try", len(tries.read_text()))
sys.exit(1 if len(tries.read_text()) <= int(sys.argv[2]) else 0)
"""


@pytest.mark.parametrize(("deaths", "tries"), [(0, 1), (1, 2), (2, 2)])
def test_helm_summarize_is_tried_once_more(deaths: int, tries: int, tmp_path: Path) -> None:
    counter = tmp_path / "tries"
    rundir = RunDir(tmp_path / "out")
    rundir.create()
    counter.write_text("")

    def run() -> None:
        with rundir.locked() as lock:
            argv = [sys.executable, "-c", FAKE, str(counter), str(deaths)]
            run_helm_summarize(context(rundir, lock=lock), argv)

    if deaths < SUMMARIZE_TRIES:
        run()
    else:
        with pytest.raises(
            HelmError, match=naming("helm-summarize ended with 1", "| try 2")
        ) as caught:
            run()
        assert str(rundir.summarize_log) in str(caught.value)
    assert counter.read_text() == "x" * tries


def test_a_log_that_is_deleted_is_not_named(tmp_path: Path) -> None:
    counter = tmp_path / "tries"
    rundir = RunDir(tmp_path / "out")
    rundir.create()
    counter.write_text("")
    argv = [sys.executable, "-c", FAKE, str(counter), "9"]
    with rundir.locked() as lock, pytest.raises(HelmError) as caught:
        run_helm_summarize(context(rundir, lock=lock), argv, keeps_log=False)
    each_says(str(caught.value).splitlines(), ["helm-summarize ended with 1"], ["| try 2"])
