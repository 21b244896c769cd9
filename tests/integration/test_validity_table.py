"""scripts/validity_table.py on the sample benchmark: bare helm-run and run_eval on the same answers, and the page of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from facts import says
from programs import Finished, ran

# parity with bare HELM: test_real_data and test_any_run_spec, and `nox -s validity`
pytestmark = pytest.mark.more_data
INSTANCES = 6
SAMPLE = "sample_medical_qa"


def table(root: Path, folder: Path, *arguments: str) -> Finished:
    argv = [
        sys.executable,
        "scripts/validity_table.py",
        SAMPLE,
        "--limit",
        str(INSTANCES),
        "--kind",
        "gold",
        "--keep",
        str(folder / "runs"),
        "--page",
        str(folder / "validity.md"),
        *arguments,
    ]
    return ran(argv, root, HF_HUB_OFFLINE="1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table of two kinds of answers, gold and empty."""
    folder = tmp_path_factory.mktemp("validity")
    finished = table(Path(__file__).resolve().parents[2], folder)
    assert finished.returncode == 0, finished.stderr
    return folder


def test_the_sample_has_a_line_that_equals_bare_helm(made: Path) -> None:
    (line,) = [
        line
        for line in (made / "validity.md").read_text("utf-8").splitlines()
        if line.startswith(f"| `{SAMPLE}")
    ]
    task, metric, n, parity, gold, corrected, empty, *left_out = [
        cell.strip() for cell in line.strip("|").split("|")
    ]
    assert (task, metric, n) == (f"`{SAMPLE}`", "`exact_match`", str(INSTANCES))
    same, compared = parity.split(" of ")
    assert same == compared
    assert int(compared) >= 2
    assert (gold, corrected, empty) == ("1.0000", "- (1)", "0.0000")
    assert left_out == ["-", "-", "-", "- (1)", "-", "-"]
    says((made / "validity.md").read_text("utf-8"), "1. No known defect")


def test_another_score_of_bare_helm_fails(made: Path, root: Path) -> None:
    (file,) = (made / "runs" / "bare" / "runs").glob("*/*gold/stats.json")
    kept = file.read_text("utf-8")
    stats = json.loads(kept)
    own = [
        one
        for one in stats
        if one["name"]["name"] == "exact_match" and "perturbation" not in one["name"]
    ]
    (stat,) = (one for one in own if one["name"]["split"] == "test")
    stat["mean"] = 1 - 2**-53
    file.write_text(json.dumps(stats), "utf-8")
    finished = table(root, made, "--reuse", "--page", str(made / "failed.md"))
    file.write_text(kept, "utf-8")
    assert finished.returncode == 1
    says(finished.stderr, f"{SAMPLE}, gold: parity", "exact_match is 1.0", "0.9999999999999999")
    assert "1 of " in (made / "failed.md").read_text("utf-8")
