"""HealthBench's published files are the same for a run and for `data pull`."""

from __future__ import annotations

from pathlib import Path

from eval_factory.data.run_data import task_sources
from eval_factory.data.sources import load_sources
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.rubric_case import PUBLISHED_RUBRICS, published_url
from unit.builders import evaluation, plan


def test_a_run_downloads_what_data_pull_pulls() -> None:
    sources = load_sources()
    tasks = [task for task in load_framework().evaluations if task.helm.run_spec == "healthbench"]
    assert [task.helm.parameters["subset"].fixed for task in tasks] == list(PUBLISHED_RUBRICS)
    for task in tasks:
        subset = str(task.helm.parameters["subset"].fixed)
        (file,) = sources.tasks[task.name].files
        assert (file.path, sources.url(file.url)) == (PUBLISHED_RUBRICS[subset], published_url(subset))
        assert str(task.about.revision) in file.path
        assert sources.tasks[task.name].scenario == task.helm.scenario


def test_the_users_own_file_takes_its_place(tmp_path: Path) -> None:
    flags = {"config.type": "healthbench", "config.params.extra.data_path": str(tmp_path / "x.jsonl")}
    assert task_sources(plan(flags), load_sources()).files == ()
    assert len(task_sources(plan({"config.type": "healthbench"}), load_sources()).files) == 1
    assert evaluation({"config.type": "healthbench"}).task.helm.judges == ("gpt",)
