"""Tests of what a panel's file may hold, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.errors import ConfigError
from eval_factory.monitor.panel import Panel, digest_of, load_panel

TARGET = {
    "api_endpoint": {
        "url": "http://127.0.0.1:9/v1",
        "model_id": "m",
        "type": "chat",
        "api_key": None,
    }
}
TASK = {"type": "pubmed_qa", "size": 10, "max_drop": 0.02}


def panel(folder: Path, **section: Any) -> Panel:
    file = folder / "panel.yml"
    whole = {"output_dir": "out", "tasks": [TASK], "target": TARGET, **section}
    file.write_text(yaml.safe_dump({"monitor": whole}))
    return load_panel(file, {"PLACE": "there"})


def problems(folder: Path, **section: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        panel(folder, **section)
    return str(raised.value)


def test_paths_are_the_files_wherever_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    extra = {"data_path": "data.json", "data_dir": str(tmp_path / "bundle")}
    found = panel(tmp_path, params={"extra": extra}, output_dir="${PLACE}")
    assert found.folder == tmp_path / "there"
    (cell,) = found.suite(found.folder / "looks" / "1").cells
    params = cell.document["config"]["params"]
    assert params["extra"]["data_path"] == str(tmp_path / "data.json")
    assert params["extra"]["data_dir"] == str(tmp_path / "bundle")
    assert cell.folder == tmp_path / "there" / "looks" / "1" / "model" / "pubmed_qa"


def test_each_task_asks_a_sample_of_its_size_by_the_panels_seed(tmp_path: Path) -> None:
    tasks = [
        TASK,
        {
            **TASK,
            "name": "again",
            "size": 7,
            "params": {"temperature": 0.5, "extra": {"max_requests": 9}},
        },
    ]
    found = panel(
        tmp_path, tasks=tasks, seed=3, params={"temperature": 1.0, "extra": {"offline": True}}
    )
    first, second = [
        cell.document["config"]["params"] for cell in found.suite(tmp_path / "x").cells
    ]
    assert (first["limit_samples"], first["temperature"]) == (10, 1.0)
    assert first["extra"] == {"offline": True, "sample_seed": 3}
    assert (second["limit_samples"], second["temperature"]) == (7, 0.5)
    assert second["extra"] == {"offline": True, "max_requests": 9, "sample_seed": 3}


def test_limits_are_those_of_tasks_and_groups(tmp_path: Path) -> None:
    groups = {"topic": {"heart": {"max_drop": 0.1}, "skin": {"max_drop": 0.2}}}
    found = panel(tmp_path, tasks=[{**TASK, "groups": groups, "metric": "exact_match"}]).limits
    assert [
        (one.name, one.task, one.metric, one.max_drop, one.field, one.value) for one in found
    ] == [
        ("pubmed_qa", "pubmed_qa", "exact_match", 0.02, None, None),
        ("pubmed_qa, topic=heart", "pubmed_qa", "exact_match", 0.1, "topic", "heart"),
        ("pubmed_qa, topic=skin", "pubmed_qa", "exact_match", 0.2, "topic", "skin"),
    ]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"tasks": []}, "monitor.tasks"),
        ({"taskz": []}, "did you mean 'tasks'"),
        ({"alpha": 0.5}, "monitor.alpha"),
        ({"looks": 0}, "monitor.looks"),
        ({"baseline": {"repeats": 1}}, "monitor.baseline.repeats"),
        ({"alarm_on": ["refusals"]}, "monitor.alarm_on"),
        ({"tasks": [TASK, TASK]}, "two tasks with the name 'pubmed_qa'"),
        ({"tasks": [{**TASK, "max_drop": -0.1}]}, "monitor.tasks[0].max_drop"),
        ({"tasks": [{**TASK, "params": {"limit_samples": 5}}]}, "set limit_samples;"),
        ({"tasks": [{**TASK, "params": {"extra": {"sample_seed": 5}}}]}, "set sample_seed;"),
        ({"params": {"extra": {"stop_when": {"half_width": 0.1}}}}, "set stop_when;"),
        (
            {"params": {"limit_samples": 5}},
            "monitor.params: the panel's `size` and `seed` set limit_samples",
        ),
        ({"target": {"api_endpont": {}}}, "api_endpoint"),
        ({"output_dir": "${NOWHERE}"}, "NOWHERE is not set"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    assert said in problems(tmp_path, **section)


def test_what_is_wrong_in_a_run_is_said_in_the_panels_words(tmp_path: Path) -> None:
    found = panel(tmp_path, tasks=[{**TASK, "type": "pubmed_q"}], params={"temprature": 1})
    with pytest.raises(ConfigError) as raised:
        found.suite(tmp_path / "x")
    text = str(raised.value)
    assert "monitor.tasks[0].type" in text
    assert "monitor.params.temprature" in text
    assert "suite" not in text


def test_a_file_that_is_no_panel(tmp_path: Path) -> None:
    file = tmp_path / "run.yml"
    file.write_text("config: {type: pubmed_qa}\n")
    with pytest.raises(ConfigError) as raised:
        load_panel(file, {})
    assert "unknown key config" in str(raised.value)
    assert "`monitor:` is missing" in str(raised.value)


def test_what_a_baseline_holds_for(tmp_path: Path) -> None:
    """What changes what is asked or decided needs another one; what changes how it is asked does not."""

    def digest(**section: Any) -> str:
        found = panel(tmp_path, **section)
        return digest_of(found.fixed_settings(found.identities(tmp_path / "x")))

    one = digest()
    same = (
        {"params": {"parallelism": 2}},
        {"max_look_hours": 3},
        {"max_cost": None},
        {"params": {"max_retries": 1}},
    )
    for section in same:
        assert digest(**section) == one
    others: tuple[dict[str, Any], ...] = (
        {"seed": 1},
        {"alpha": 0.1},
        {"looks": 10},
        {"baseline": {"repeats": 6}},
        {"alarm_on": ["changed"]},
        {"tasks": [{**TASK, "size": 9}]},
        {"tasks": [{**TASK, "max_drop": 0.03}]},
        {"tasks": [{**TASK, "metric": "exact_match"}]},
        {"params": {"temperature": 1.0}},
        {"target": {"api_endpoint": {**TARGET["api_endpoint"], "model_id": "n"}}},
    )
    assert len({one, *(digest(**section) for section in others)}) == 1 + len(others)
