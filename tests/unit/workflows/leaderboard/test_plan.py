"""What a leaderboard's run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.helm.model_files import deployment_of
from eval_factory.workflows.leaderboard import plan as planning
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.plan import Job, make_job
from eval_factory.workflows.leaderboard.registry import find
from eval_factory.workflows.leaderboard.request import checked

ENTRIES = (
    ("pubmed_qa:model=text", 1),
    ("med_qa:model=text", 2),
    ("boolq:model=text", 9),
    ("harm_bench:model=text", 1),
    ("alrage:model=text", 9),
    ("vqa:model=vlm", 1),
)
GPT = "openai/gpt-4o-2024-05-13"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    lines = ", ".join(f'{{"description": "{text}", "priority": {priority}}}' for text, priority in ENTRIES)
    file = tmp_path / "x.conf"
    file.write_text(f'{{"entries": [{lines}]}}')
    return file


def made(**flags: Any) -> Job:
    given = {"name": "lite", "model": ("org/a", "org/b"), "model_url": "https://h/v1", **flags}
    return make_job(checked(given), {})


def named(entries: list[Any]) -> list[str]:
    return [entry.description.partition(":")[0] for entry in entries]


def test_each_model_has_a_plan_and_nothing_else_differs(conf: Path, tmp_path: Path) -> None:
    job = made(conf=conf, output_dir=str(tmp_path / "out"))
    assert [plan.model.model_id for plan in job.plans] == ["org/a", "org/b"]
    assert {plan.rundir for plan in job.plans} == {job.rundir}
    assert job.rundir.root == tmp_path / "out"
    assert (job.suite, job.origin) == ("lite", str(conf))
    assert Path(job.schema).name == job.row.schema_file


def test_entries_are_rewritten_for_the_model_and_chosen_by_priority(conf: Path) -> None:
    job = made(conf=conf)
    first, second = job.plans
    assert job.row.priority == 2
    assert len(job.entries(first)) == len(ENTRIES)
    assert named(job.of_priority(first)) == ["pubmed_qa", "med_qa", "harm_bench", "vqa"]
    assert named(job.to_run(first)) == ["pubmed_qa", "med_qa", "harm_bench"]
    assert named(job.left_out(first)) == ["vqa"]
    assert f"model={deployment_of(second.model)}" in job.to_run(second)[0].description
    assert deployment_of(first.model) not in job.to_run(second)[0].description


def test_judges_are_of_the_entries_that_run_once_for_all_models(conf: Path) -> None:
    job = made(conf=conf)
    assert [(judge.role, judge.helm_name) for judge in job.plans[0].prescribed] == [("gpt", GPT)]
    assert [endpoint.role for endpoint in job.endpoints] == ["model", "model", "gpt"]
    assert [endpoint.model_id for endpoint in job.endpoints[:2]] == ["org/a", "org/b"]


def test_how_many_instances_is_the_users_or_the_leaderboards(conf: Path) -> None:
    assert made(conf=conf).max_eval_instances == find("lite").max_eval_instances
    job = made(conf=conf, max_eval_instances=7, min_coverage=0.25)
    assert (job.max_eval_instances, job.min_coverage) == (7, 0.25)
    assert made(conf=conf).min_coverage == 1.0


def test_its_commands_are_of_this_suite(conf: Path) -> None:
    job = made(conf=conf, max_eval_instances=7, parallelism=3, debug=True)
    run = job.run_command(job.plans[1])
    for flag, value in (
        ("--suite", "lite"), ("--max-eval-instances", "7"), ("--num-threads", "3"),
        ("--priority", str(job.row.priority)), ("--num-train-trials", str(job.row.num_train_trials)),
    ):  # fmt: skip
        assert run[run.index(flag) + 1] == value
    assert str(job.rundir.run_entries_of(job.plans[1].model.slug)) in run
    assert deployment_of(job.plans[1].model) in run
    summarize = job.summarize_command()
    assert job.schema in summarize
    assert "lite" in summarize
    assert summarize != made(conf=conf).summarize_command(), "--debug is told to both"
    assert "lite" in job.server_command()


def test_what_nobody_can_run_is_refused_unless_another_conf_is_given(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = find("lite").model_copy(update={"lacks": "pictures"})
    monkeypatch.setattr(registry, "find", lambda _name: pictures)
    with pytest.raises(ConfigError, match="lite asks for pictures: nothing of it can be run"):
        made()
    assert made(conf=conf).row is pictures


def test_a_schema_that_helm_does_not_have_is_told(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "schema_path", lambda _row: None)
    monkeypatch.setattr(registry, "helm_version", lambda: "9.9")
    with pytest.raises(PrerequisiteError, match=f"lite: HELM 9.9 has no {find('lite').schema_file}\n  install"):
        made(conf=conf)


def test_a_dry_run_does_not_download_the_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def conf_of(_row: object, **said: Any) -> tuple[str | None, str]:
        asked.append(said)
        return None, "https://origin"

    monkeypatch.setattr(planning, "conf_of", conf_of)
    job = made(dry_run=True)
    assert (job.found, job.origin, job.entries(job.plans[0])) == (None, "https://origin", [])
    assert [judge.helm_name for judge in job.plans[0].prescribed] == list(find("lite").judges.values())
    with pytest.raises(PrerequisiteError, match=r"offline: .*lite.*\.conf is not here; give it with --conf FILE"):
        made(offline=True)
    assert [said["look_only"] for said in asked] == [True, True]


def test_the_bundle_of_a_run_config_is_where_the_conf_is(conf: Path, tmp_path: Path) -> None:
    """`~` in a file is nobody's but ours to replace."""
    file = tmp_path / "bundle" / "presentation" / find("lite").conf
    file.parent.mkdir(parents=True)
    file.write_bytes(conf.read_bytes())
    config = tmp_path / "run.yml"
    config.write_text(f"config: {{params: {{extra: {{data_dir: {tmp_path / 'bundle'}}}}}}}")
    assert made(run_config=config).origin == str(file)


def test_the_model_of_a_run_config_is_taken_where_none_is_named(conf: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.yml"
    config.write_text("target: {api_endpoint: {model_id: of/the-file}}")
    job = made(conf=conf, run_config=config, model=())
    assert [plan.model.model_id for plan in job.plans] == ["of/the-file"]


@pytest.mark.parametrize(("name", "value"), [("max_cost", 1.0), ("max_requests", 5), ("max_wall_s", 60.0)])
def test_a_limit_that_a_leaderboard_does_not_hold_is_refused(
    conf: Path, tmp_path: Path, name: str, value: float
) -> None:
    given = tmp_path / "run.yml"
    given.write_text(f"config: {{params: {{extra: {{{name}: {value}}}}}}}\n")
    with pytest.raises(ConfigError, match="a leaderboard has no max_cost, max_requests"):
        made(conf=conf, run_config=given)
