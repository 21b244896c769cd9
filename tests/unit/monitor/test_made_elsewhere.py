"""A panel that another program asks: its results are imported, and taken as looks."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.monitor.asking import MonitorOutcome, Outcome, RunOptions
from eval_factory.monitor.change import decide_change
from eval_factory.monitor.ledger import Ledger
from eval_factory.monitor.look import make_baseline_or_look
from eval_factory.monitor.panel import Panel, load_panel
from eval_factory.monitor.verification import verify_panel
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions
from foreign_results import inspect_sample, write_json_log

QUESTIONS = 60
MODEL = "org/model"


def agent_result(folder: Path, right: float, seed: int, **changes: Any) -> Path:
    """An imported log; the share `right` of its answers is right."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    samples = []
    for number in range(QUESTIONS):
        place = number if chance.random() < right else number + 1
        samples.append(inspect_sample(number, f"ANSWER: {'ABCD'[place % 4]}"))
    log = write_json_log(folder.with_suffix(".json"), samples, **changes)
    import_results(log, folder)
    return folder


def panel_in(tmp_path: Path, **changes: Any) -> Panel:
    task = {"type": "imported", "name": "agent", "size": QUESTIONS, "max_drop": 0.05}
    section = {
        "output_dir": str(tmp_path / "panel"),
        "looks": 10,
        "baseline": {"repeats": 2},
        "tasks": [{**task, **changes}],
        "target": {"api_endpoint": {"model_id": MODEL}},
    }
    file = tmp_path / "panel.yml"
    file.write_text(to_yaml({"monitor": section}))
    return load_panel(file, {})


def looked(panel: Panel, *made: Path) -> MonitorOutcome:
    asking = RunOptions(
        {}, lambda _text: None, lambda _folder: nullcontext(SuiteObserver()), SuiteOptions(), made
    )
    return make_baseline_or_look(panel, asking)


@pytest.fixture
def watched(tmp_path: Path) -> Panel:
    panel = panel_in(tmp_path)
    runs = [agent_result(tmp_path / f"base{number}", 0.95, number) for number in (1, 2)]
    assert looked(panel, *runs).outcome == Outcome.BASELINE
    return panel


def test_results_of_agents_are_looks(watched: Panel, tmp_path: Path) -> None:
    found = looked(watched, agent_result(tmp_path / "look1", 0.95, 3))
    assert (found.outcome, found.exit_code) == (Outcome.IN_CONTROL, 0)
    outcomes = []
    for seed in range(4, 8):
        worse = agent_result(tmp_path / f"look{seed}", 0.3, seed)
        outcomes.append(looked(watched, worse).outcome)
    assert outcomes[-1] == Outcome.ALARM
    assert verify_panel(watched.folder) == []


def test_a_result_is_taken_once(watched: Panel, tmp_path: Path) -> None:
    result = agent_result(tmp_path / "look1", 0.9, 3)
    looked(watched, result)
    with pytest.raises(ConfigError, match="looks/0001"):
        looked(watched, result)
    assert len(Ledger(watched.folder).read().looks) == 1


def test_other_questions_are_another_panel(watched: Panel, tmp_path: Path) -> None:
    samples = [inspect_sample(number, "ANSWER: A") for number in range(QUESTIONS)]
    samples[3]["messages"][0]["content"] += " Think first."
    log = write_json_log(tmp_path / "other.json", samples)
    import_results(log, tmp_path / "other")
    with pytest.raises(ConfigError, match="--new_baseline"):
        looked(watched, tmp_path / "other")
    assert not (watched.folder / "looks").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "cancelled"}, "cancelled"),
        ({"eval": {"task": "fruit", "model": "org/other"}}, "org/other"),
    ],
)
def test_a_result_that_is_no_evidence_is_not_taken(
    watched: Panel, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    result = agent_result(tmp_path / "look1", 0.9, 3, **changes)
    with pytest.raises(ConfigError, match=words):
        looked(watched, result)


def test_a_panel_of_another_size_says_so(watched: Panel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="size"):
        looked(panel_in(tmp_path, size=50), agent_result(tmp_path / "look1", 0.9, 3))


def test_a_baseline_needs_as_many_different_results_as_it_has_repeats(tmp_path: Path) -> None:
    panel = panel_in(tmp_path)
    result = agent_result(tmp_path / "base", 0.9, 1)
    with pytest.raises(ConfigError, match=r"baseline\.repeats"):
        looked(panel, result)
    with pytest.raises(ConfigError, match="already has this result"):
        looked(panel, result, result)
    with pytest.raises(ConfigError, match="--from"):
        looked(panel)
    with pytest.raises(PrerequisiteError):
        looked(panel, tmp_path / "nothing", result)
    assert Ledger(panel.folder).read().lines == ()


def test_a_change_of_the_model_needs_a_panel_that_is_asked_here(
    watched: Panel, tmp_path: Path
) -> None:
    options = RunOptions({}, print, nullcontext, SuiteOptions())  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        decide_change(watched, tmp_path / "target.yml", options)


def test_a_changed_copy_is_found(watched: Panel) -> None:
    file = next(watched.folder.glob("baseline/1/1/*/agent/results.jsonl"))
    file.write_text(file.read_text().replace("ANSWER: B", "ANSWER: C", 1))
    assert any("results.jsonl" in finding for finding in verify_panel(watched.folder))


def test_tasks_of_two_kinds_are_two_panels(tmp_path: Path) -> None:
    panel = panel_in(tmp_path)
    section = {**panel.document}
    section["tasks"] = [*section["tasks"], {"type": "pubmed_qa", "size": 10, "max_drop": 0.1}]
    panel.file.write_text(to_yaml({"monitor": section}))
    with pytest.raises(ConfigError, match="imported"):
        load_panel(panel.file, {})
