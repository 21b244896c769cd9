"""Endpoint and judges of a leaderboard, from flags and a run config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from eval_factory.core.errors import ConfigError
from eval_factory.helm.names import DEFAULT_JURY
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.workflows.leaderboard.bundle_data import place_entries_data
from eval_factory.workflows.leaderboard.plan import Job, make_job
from eval_factory.workflows.leaderboard.request import checked
from unit.builders import context

GPT = "openai/gpt-4o-2024-05-13"


def job(folder: Path, *entries: str, config: Mapping[str, object] | None = None, **flags: object) -> Job:
    conf = folder / "x.conf"
    conf.write_text(
        '{"entries": [' + ", ".join(f'{{"description": "{text}", "priority": 1}}' for text in entries) + "]}"
    )
    given: dict[str, object] = {"name": "lite", "conf": conf, "model": ("org/m",), "model_url": "https://h/v1", **flags}
    if config is not None:
        file = folder / "run.yml"
        file.write_text(yaml.safe_dump(dict(config)))
        given["run_config"] = file
    return make_job(checked({name: value for name, value in given.items() if value is not None}), {})


def judges(made: Job) -> dict[str, EndpointPlan]:
    return {judge.role: judge for judge in made.plans[0].prescribed}


def test_judges_are_those_of_the_entries_that_run(tmp_path: Path) -> None:
    assert judges(job(tmp_path, "pubmed_qa:model=text")) == {}
    (gpt,) = judges(job(tmp_path, "harm_bench:model=text", "pubmed_qa:model=text")).values()
    assert (gpt.role, gpt.helm_name, gpt.url, gpt.model_id) == ("gpt", GPT, "https://h/v1", "gpt-4o-2024-05-13")
    assert gpt.key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")
    jury = judges(job(tmp_path, "aci_bench:model=x/y"))
    assert {role: judge.helm_name for role, judge in jury.items()} == DEFAULT_JURY
    assert jury["llama"].model_id == "meta/llama-3.3-70b-instruct"


def test_a_judge_that_an_entry_chooses(tmp_path: Path) -> None:
    chosen = "air_bench_2024:annotator_model=mistral/m,annotator_model_deployment=mistral/m-v2,model=text"
    own = {"name": "mistral", "model_id": "served-as", "url": "https://judge/v1"}
    config = {"config": {"params": {"extra": {"judges": [own]}}}}
    (judge,) = judges(job(tmp_path, chosen, config=config)).values()
    assert (judge.helm_name, judge.url, judge.model_id) == ("mistral/m-v2", "https://judge/v1", "served-as")


def test_two_judges_of_one_family_have_two_roles(tmp_path: Path) -> None:
    found = judges(job(tmp_path, "alrage:model=text", "live_qa:model=text"))
    assert {role: judge.helm_name for role, judge in found.items()} == {
        "gpt": "openai/gpt-4o-2024-11-20", "gpt-4o-2024-05-13": GPT
    }  # fmt: skip


def test_a_run_config_says_where_judges_are(tmp_path: Path) -> None:
    own = {"name": "gpt", "model_id": "my-judge", "url": "http://127.0.0.1:9/v1", "api_key": "JUDGE_KEY"}
    config = {
        "config": {
            "type": "pubmed_qa",
            "output_dir": "somewhere",
            "params": {"limit_samples": 7, "extra": {"judges": [own]}},
        },
        "target": {"api_endpoint": {"url": "https://of.the.file/v1", "model_id": "of/the-file", "api_key": "MY_KEY"}},
    }
    made = job(tmp_path, "aci_bench:model=x/y", config=config, model=(), model_url=None, parallelism=3)
    model, found = made.plans[0].model, judges(made)
    assert (model.url, model.model_id, model.parallelism, model.key_names) == (
        "https://of.the.file/v1",
        "of/the-file",
        3,
        ("MY_KEY",),
    )
    assert (found["gpt"].url, found["gpt"].model_id) == ("http://127.0.0.1:9/v1", "my-judge")
    assert found["gpt"].key_names == ("JUDGE_KEY",)  # the model's key goes to the model's host only
    assert found["claude"].url == "https://of.the.file/v1"
    assert {"JUDGE_KEY", "CLAUDE_JUDGE_API_KEY", "MY_KEY"} <= set(made.plans[0].evaluation.key_names())
    assert made.max_eval_instances == 7
    assert made.rundir.root.name == "somewhere"
    with pytest.raises(ConfigError, match="lite has no judge 'gpt5'; HELM prescribes gpt, llama, claude"):
        job(
            tmp_path,
            "aci_bench:model=x/y",
            config={"config": {"params": {"extra": {"judges": [{**own, "name": "gpt5"}]}}}},
        )


def test_several_models(tmp_path: Path) -> None:
    made = job(tmp_path, "pubmed_qa:model=text", model=("a", "b"))
    assert [plan.model.model_id for plan in made.plans] == ["a", "b"]
    assert [made.entries(plan)[0].argument("model") for plan in made.plans] == ["endpoint/a", "endpoint/b"]
    assert len({made.run_command(plan)[2] for plan in made.plans}) == 2


def test_what_its_entries_read_is_pinned_as_in_a_run_of_one(tmp_path: Path) -> None:
    entries = ("head_qa:language=en,model=text", "medcalc_bench:model=text", "nonsense:model=text")
    made = job(tmp_path, *entries, output_dir=str(tmp_path / "out"))
    told = place_entries_data(context(made.rundir), made.plans[0], made.to_run(made.plans[0])).pins
    assert told is not None
    assert set(told.hub) == {"dvilares/head_qa", "ncbi/MedCalc-Bench"}
    assert all(len(revision) == 40 for revision in told.hub.values())
