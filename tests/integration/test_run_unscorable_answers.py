"""One answer on which a metric of HELM's raises: its instance fails, the run does not, and the folder stays usable."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from facts import says
from program_runs import Outcome, Run
from scripted_endpoint import PROBE, ScriptedEndpoint

PlaceData = Callable[[Path, str], None]
ENOUGH = 20
TOO_MANY_DIGITS = "7" * 5000
REASON = "HELM cannot score this answer: ValueError in MedecMetric (medec_metrics.py:"


def failed_of(outcome: Outcome) -> list[dict[str, Any]]:
    lines = (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["error"]]


def journal(outcome: Outcome) -> list[str]:
    with closing(sqlite3.connect(outcome.output_dir / "cache.db")) as connection:
        return [
            row[0]
            for row in connection.execute("SELECT error FROM attempts WHERE outcome = 'unscorable'")
        ]


def answering(chosen: Callable[[int], bool]) -> Callable[[str], str]:
    """Too many digits for the prompts whose number in the order of arrival is chosen."""
    order: dict[str, int] = {}

    def answer(prompt: str) -> str:
        if prompt == PROBE:
            return "pong"
        return TOO_MANY_DIGITS if chosen(order.setdefault(prompt, len(order))) else "CORRECT"

    return answer


@pytest.mark.medical_data
def test_one_unscorable_answer_costs_one_instance(
    run_program: Run, place_data: PlaceData, tmp_path: Path
) -> None:
    place_data(tmp_path / "out" / "helm", "medec")
    with ScriptedEndpoint(answering(lambda number: number == 3)) as endpoint:
        outcome = run_program("medec", endpoint.url, params={"limit_samples": ENOUGH})
        asked = len(endpoint.requests)
        again = run_program("medec", endpoint.url, params={"limit_samples": ENOUGH})
        assert len(endpoint.requests) == asked == ENOUGH
    for each in (outcome, again):
        assert each.returncode == 1, each.stderr
        assert "Traceback" not in each.stderr
        says(each.stderr, "nothing is left")
        document = each.document()
        counts = document["validity"]["instances"]
        assert (counts["requested"], counts["scored"], counts["failed"]) == (ENOUGH, ENOUGH - 1, 1)
        (failed,) = failed_of(each)
        assert failed["error"].startswith(REASON)
        assert failed["completion"] is None
        assert failed["metrics"] == {}
        says(document["validity"]["notes"], "1 of the failed", "HELM cannot score")
        scores = document["results"]["tasks"]["medec"]["metrics"]["score"]["scores"]
        assert scores["medec_error_flag_accuracy"]["stats"]["count"] == ENOUGH - 1
        assert scores["medec_error_sentence_accuracy.corrected"]["stats"]["count"] == ENOUGH - 1
        low, high = document["validity"]["bounds"]["medec_error_flag_accuracy"]
        assert high - low == pytest.approx(1 / ENOUGH)
    assert TOO_MANY_DIGITS in (tmp_path / "out" / "responses" / "model.jsonl").read_text("utf-8")
    assert [error[: len(REASON)] for error in journal(again)] == [REASON]
