"""How a result looks in a line and in a notebook, of a run and of a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import StoredResult
from eval_factory.report.result_views import instances_frame, scores_frame
from eval_factory.workflows.evaluate import Evaluated
from stored_results import PROVENANCE, instance, result


def both(made: TaskResult, folder: Path = Path("results/x")) -> tuple[Evaluated, StoredResult]:
    return Evaluated(made, RunDir(folder), "summary", None), StoredResult(made, folder, "helm-run", {}, {})


def test_a_line() -> None:
    made = result([instance("q0", 1.0)])
    run, stored = both(made)
    assert repr(run) == "<Evaluated pubmed_qa: exact_match = 0.5000 over 4 instances; results/x>"
    assert repr(stored) == "<StoredResult pubmed_qa: exact_match = 0.5000 over 4 instances; results/x>"
    (refused, _) = both(replace(made, reportable=False))
    assert repr(refused) == (
        "<Evaluated pubmed_qa: exact_match = 0.5000 over 4 instances; NOT REPORTABLE: coverage 1.0000; results/x>"
    )


def test_a_line_is_one_line_and_short_whatever_others_wrote() -> None:
    made = result([instance("q0", 1.0)], task="a\x1b[2J\nb" * 1000, provenance=PROVENANCE)
    for record in both(made):
        assert repr(record).isprintable()
        assert len(repr(record)) < 600


def test_frames() -> None:
    made = result([instance("q0", 1.0)])
    for record in both(made):
        assert record.to_frame().equals(scores_frame(made))
        assert record.to_frame(instances=True).equals(instances_frame(made))
        assert record.instances_frame().equals(instances_frame(made))
        assert record.folder == Path("results/x")
