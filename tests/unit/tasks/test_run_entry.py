"""`config.type: helm:<run entry>`."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import evaluation, plan
from eval_factory.config.own_data import own_data_of
from eval_factory.core.errors import ConfigError
from eval_factory.helm.command import run_entry
from eval_factory.plan.run_plan import identity_of
from eval_factory.tasks.framework import load_framework
from facts import says

PHILOSOPHY = "helm:mmlu:subject=philosophy"


def refused(type_: str, **flags: object) -> str:
    with pytest.raises(ConfigError) as raised:
        evaluation(
            {
                "config.type": type_,
                **{name.replace("__", "."): value for name, value in flags.items()},
            }
        )
    return str(raised.value)


def test_a_task_of_any_run_spec() -> None:
    task = evaluation({"config.type": PHILOSOPHY}).task
    assert (task.name, task.helm.run_spec, task.helm.scenario) == (PHILOSOPHY, "mmlu", "mmlu")
    assert (task.helm.main_metric, task.helm.main_split, task.helm.judges) == (
        "exact_match",
        "test",
        (),
    )
    assert "Massive Multitask" in task.description
    assert task.helm.cluster is None
    ours = load_framework().task("medcalc_bench")
    assert ours is not None
    assert ours.helm.cluster is not None
    same = evaluation({"config.type": "helm:medcalc_bench:version=v1.0"}).task
    assert same.helm.cluster == ours.helm.cluster, (
        "instances share the sources of our own task of the run spec"
    )


def test_the_run_entry_that_helm_gets() -> None:
    params = {"config.params.temperature": 0.5, "config.params.extra.num_output_tokens": 7}
    here = plan({"config.type": PHILOSOPHY, **params})
    model = f"model=endpoint/{here.model.slug}"
    assert run_entry(here) == f"mmlu:subject=philosophy,num_output_tokens=7,temperature=0.5,{model}"
    of_every_run_spec = "boolq:data_augmentation=robustness,temperature=0.5,max_train_instances=0"
    assert run_entry(plan({"config.type": f"helm:{of_every_run_spec}"})).startswith(
        f"{of_every_run_spec},model="
    )


def test_a_jury_is_the_frameworks_or_a_custom_one() -> None:
    here = plan({"config.type": "helm:aci_bench"})
    assert [judge.role for judge in here.judges] == list(load_framework().judges)
    assert f"jury_config_path={here.rundir.model_configs}/judges.yaml" in run_entry(here)
    own = plan(
        {
            "config.type": "helm:aci_bench",
            "config.params.extra.judges": [{"name": "me", "model_id": "a/b"}],
        }
    )
    assert [judge.role for judge in own.judges] == ["me"]
    (note,) = evaluation({"config.type": "helm:harm_bench"}).task.about.notes
    assert "openai/gpt-4o-2024-05-13" in note, "a judge that HELM prescribes is told"


def test_what_makes_no_sense_with_pictures() -> None:
    url = "target__api_endpoint__type"
    extra = "config__params__extra__"
    says(
        refused("helm:mme:subject=OCR", **{url: "completions"}),
        "helm:mme:subject=OCR",
        "chat",
        "not on completions",
    )
    says(refused("helm:mme:subject=OCR", **{f"{extra}pushback": 1}), "pushback: ", "text alone")
    assert "helm:boolq shows no pictures" in refused("helm:boolq", **{f"{extra}max_image_side": 64})
    assert evaluation(
        {"config.type": "helm:mme:subject=OCR", "config.params.extra.max_image_side": 64}
    )


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        ("helm:mmul:subject=x", "no run spec 'mmul', did you mean 'mm"),
        ("helm:MMLU:subject=a", "no run spec 'MMLU', did you mean 'mmlu'?"),
        ("helm:mmlu", "mmlu needs subject: write helm:mmlu:subject=..."),
        ("helm:mmlu:", "'' does not"),
        ("helm:mmlu:subject=a,subject=b", "subject is set twice"),
        ("helm:mmlu:subjekt=a", "no parameter 'subjekt', did you mean 'subject'?"),
        (
            "helm:mmlu:subjekt=a",
            "its parameters: subject (str, needed), method=multiple_choice_joint",
        ),
        (
            "helm:med_qa:reeval_parameters=1",
            (
                "reeval_parameters cannot be set in a run entry; eval-factory does not run HELM's "
                "adaptive testing"
            ),
        ),
        (
            "helm:med_qa:model_ability=0.0",
            "is not the benchmark's; config.params.extra.stop_when asks fewer",
        ),
        (
            "helm:reeval_run:model_ability=0.0",
            "config.type: eval-factory does not run HELM's adaptive testing (reeval_run.py)",
        ),
        (
            "helm:boolq:model=x/y",
            "model cannot be set in a run entry; eval-factory names the model",
        ),
        ("helm:aci_bench:jury_config_path=x", "give config.params.extra.judges"),
        ("helm:msr_vtt", "asks a model for videos"),
        ("helm:wikitext_103", "asks a model for log probabilities"),
        ("helm:sample_medical_qa", "is a task of eval-factory's own: write it without 'helm:'"),
        ("helm:", "no run spec ''"),
        ("mmlu:subject=x", "HELM has a run spec of that name: helm:mmlu:subject=x"),
    ],
)
def test_refused(type_: str, said: str) -> None:
    told = refused(type_)
    assert said in told
    if "subjekt" in type_:
        every = told.partition("every run spec takes: ")[2]
        assert every.startswith("add_to_stop, ")
        assert "output_format_instructions" in every
        assert "model_deployment" not in every


@pytest.mark.parametrize(
    ("argument", "path", "value"),
    [
        ("num_output_tokens=3", "config__params__max_new_tokens", 4),
        ("num_output_tokens=3", "config__params__extra__num_output_tokens", 4),
        ("temperature=0.5", "config__params__temperature", 0.0),
        ("max_eval_instances=3", "config__params__limit_samples", 4),
        ("num_train_trials=3", "config__params__extra__num_train_trials", 4),
    ],
)
def test_one_setting_in_two_places(argument: str, path: str, value: object) -> None:
    says(refused(f"helm:boolq:{argument}", **{path: value}), "the same setting")


def test_a_path_is_absolute_for_helm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    here = plan({"config.type": "helm:clear:condition=c,data_path=mine"})
    assert f"data_path={tmp_path}/mine" in run_entry(here)
    own = own_data_of(here.evaluation)
    assert own is not None
    assert own.path == tmp_path / "mine"
    assert here.task_name == "helm:clear:condition=c,data_path=mine"
    first = here.identity
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert plan({"config.type": "helm:clear:condition=c,data_path=mine"}).identity != first


def test_identity_by_the_arguments() -> None:
    identities = {
        identity_of(evaluation({"config.type": f"helm:mmlu:subject={name}"}))
        for name in ("a", "b", "a")
    }
    assert len(identities) == 2
    assert identity_of(evaluation({"config.type": "helm:pubmed_qa"})) != identity_of(evaluation())


def test_a_judge_that_the_entry_chooses_is_asked_by_our_client() -> None:
    chosen = "annotator_model=my/judge-1,annotator_model_deployment=my/judge-1"
    (judge,) = plan({"config.type": f"helm:air_bench_2024:{chosen}"}).prescribed
    assert (judge.helm_name, judge.model_id) == ("my/judge-1", "judge-1")
