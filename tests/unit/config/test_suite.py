from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.evaluation import build_evaluation
from eval_factory.config.suite import Suite, build_suite
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import identity_of
from eval_factory.tasks.framework import load_framework
from suites import ENDPOINT, params, suite, target


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        suite(**changes)
    return raised.value.problems


def test_each_evaluation_of_each_target_is_a_run_config() -> None:
    found = suite(params={"limit_samples": 3})
    assert [cell.name for cell in found.cells] == ["small/pubmed_qa", "big/pubmed_qa", "small/medec", "big/medec"]
    cell = found.cells[3]
    assert (cell.target, cell.evaluation, cell.folder) == ("big", "medec", Path("/results/suite/big/medec"))
    assert cell.document == {
        "config": {"type": "medec", "output_dir": "/results/suite/big/medec", "params": {"limit_samples": 3}},
        "target": {"api_endpoint": {**ENDPOINT, "model_id": "org/big"}},
    }
    assert build_evaluation(cell.request, load_framework(), {}).run.config.params.limit_samples == 3


def test_limits_are_the_users_and_a_null_leaves_the_default() -> None:
    usual, defaults = suite(), load_framework().defaults.suite
    assert (usual.budget, usual.max_processes) == (Budget(), min(2 * (os.cpu_count() or 1), 8))
    assert (usual.max_attempts, usual.max_outage_s) == (defaults["max_attempts"], defaults["max_outage_s"]) == (2, 3600)
    limits: dict[str, Any] = {"max_cost": 2.5, "max_requests": 10, "max_tokens_total": 4 * 10**9, "max_wall_s": 60}
    found = suite(**limits, max_processes=3, max_attempts=None, max_outage_s=7)
    assert found.budget == Budget(**limits)
    assert (found.max_processes, found.max_attempts, found.max_outage_s) == (3, 2, 7.0)


def test_the_document_is_the_suite_as_it_is_run() -> None:
    found = suite(preset="quick", max_cost=1)
    document = found.document["suite"]
    assert document["evaluations"][0] == {"name": "medcalc_bench", "type": "medcalc_bench"}
    assert (document["params"], document["max_attempts"]) == ({"limit_samples": 20}, 2)
    assert "preset" not in document
    assert build_suite(None, document=found.document, env={}) == found


def test_flags_beat_the_file_and_overrides_beat_flags() -> None:
    """Parameters of a flag or an override hold for every cell, whatever stands nearer to it."""
    found = suite(
        evaluations=[{"type": "medec", "params": {"limit_samples": 7, "extra": {"min_coverage": 0.5}}}],
        targets=[{"name": "t", "api_endpoint": ENDPOINT, "params": {"limit_samples": 8, "parallelism": 2}}],
        flags={"suite.output_dir": "/flag", "suite.params.limit_samples": 1, "suite.max_attempts": 4},
        overrides=("suite.max_attempts=6,suite.params.extra.min_coverage=0.25",),
        params={"limit_samples": 2},
    )
    assert (found.folder.root, found.max_attempts) == (Path("/flag"), 6)
    assert [*params(found).values()] == [{"limit_samples": 1, "parallelism": 2, "extra": {"min_coverage": 0.25}}]
    assert build_suite(None, document=found.document, env={}) == found


def test_all_that_is_missing_is_said_at_once() -> None:
    found = problems(output_dir=None, evaluations=None, targets=None)
    assert [problem.split(":")[0] for problem in found] == ["suite.output_dir", "suite.evaluations", "suite.targets"]
    found = problems(evaluations=[{"name": "x"}], targets=[{"name": "t", "api_endpoint": {"url": None}}])
    assert "suite.evaluations: x has no `type`, the task ('eval-factory ls' lists them)" in found
    assert "suite.targets: t has no api_endpoint.url" in found
    assert "suite.targets: t has no api_endpoint.model_id" in found


def test_what_a_file_does_not_say_is_said_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    for text in ("{output_dir: x, evaluations: [medec]}", "{preset: smoke, output_dir: x, exclude: [{target: zzz}]}"):
        file.write_text(f"suite: {text}\n")
        with pytest.raises(ConfigError) as raised:
            build_suite(file, env={})
        assert [problem.startswith(f"{file}: suite.") for problem in raised.value.problems] == [True]


def test_mistakes_of_every_kind_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    file.write_text(
        "suite:\n  output_dir: x\n  excludes: []\n  params: {limit_sample: 3}\n  evaluations: [pubmed_q]\n"
        "  targets: [{name: a, api_endpoint: {url: host, modelid: b}}]\n"
    )
    with pytest.raises(ConfigError) as raised:
        build_suite(file, overrides=("suite.max_procesess=2",), env={})
    assert raised.value.problems == [
        f"{file}: unknown key suite.excludes, did you mean 'exclude'?",
        "--overrides: unknown key suite.max_procesess, did you mean 'max_processes'?",
        f"{file}: unknown key suite.params.limit_sample, did you mean 'limit_samples'?",
        f"{file}: suite.targets[0].api_endpoint.url: needs a scheme: https://... or http://..., or demo://baseline for the embedded endpoint",
        f"{file}: unknown key suite.targets[0].api_endpoint.modelid, did you mean 'model_id'?",
        f"{file}: suite.evaluations[0].type: there is no task 'pubmed_q', did you mean 'pubmed_qa'?; 'eval-factory ls' lists them",
    ]


SECRET = "sk-canary0123456789abcdef"


@pytest.mark.parametrize(
    "changes",
    [
        *({"targets": [{"name": "a", "api_endpoint": {**ENDPOINT, **wrong}}]} for wrong in (
            {"api_key": SECRET}, {"url": f"https://h/v1?key={SECRET}"}, {"adapter_config": {"params_to_add": {"token": SECRET}}},
        )),
        {"targets": [{"name": SECRET, "api_endpoint": ENDPOINT}]}, {"judges": [{"name": "gpt", "model_id": "x", "api_key": SECRET}]},
        {"params": {"extra": {"gpt_judge_api_key": SECRET}}}, {"preset": SECRET}, {"evaluations": [SECRET]}, {SECRET: 1}, {"params": {SECRET: 1}},
        *({"include": [{part: SECRET}]} for part in ("evaluation", "target", "variant")),
        {"targets": [{"name": "a", "api_endpoint": ENDPOINT, "limit_group": SECRET}]},
    ],
)  # fmt: skip
def test_a_key_written_out_is_refused_and_not_shown(changes: dict[str, Any]) -> None:
    assert "canary" not in "".join(problems(**changes))


def of_preset(name: str, **changes: Any) -> Suite:
    return suite(preset=name, evaluations=[], **changes)


def types(found: Suite) -> set[str]:
    return {cell.document["config"]["type"] for cell in found.cells}


def test_the_public_presets_take_their_tasks_from_framework_yml() -> None:
    public = {task.name: task for task in load_framework().evaluations if task.about.access == "public"}
    expected = set(public) - {"sample_medical_qa", "med_dialog"}  # med_dialog is med_dialog_healthcaremagic
    assert types(of_preset("quick")) == expected - {"mmlu_clinical_afr"}, "which needs a language"
    expected = {name for name in expected if "beyond-medhelm" not in public[name].about.tags}
    assert not expected & {"healthbench", "careqa", "med_qa"}
    assert types(of_preset("medhelm_public")) == expected
    without_jury = {name for name in expected if not public[name].helm.judges}
    assert types(of_preset("medhelm_rules_only")) == without_jury
    assert 5 < len(without_jury) < len(expected)
    assert {cell["limit_samples"] for cell in params(of_preset("quick")).values()} == {20}


def test_a_preset_takes_more_evaluations_and_targets() -> None:
    document = {"suite": {"preset": "smoke", "evaluations": ["medec"], "targets": [target("own")]}}
    found = build_suite(None, document=document, flags={"suite.output_dir": "/x"}, env={})
    assert types(found) == {"sample_medical_qa", "custom", "medec"}
    assert {cell.target for cell in found.cells} == {"demo_chat", "demo_completions", "own"}


def test_smoke_needs_an_output_folder_alone() -> None:
    found = build_suite(None, flags={"suite.preset": "smoke", "suite.output_dir": "/x"}, env={})
    assert len(found.cells) == 4
    for cell in found.cells:
        evaluation = build_evaluation(cell.request, load_framework(), {})
        assert evaluation.run.target.api_endpoint.is_demo
        assert evaluation.task.about.source == "in the package" or evaluation.benchmark is not None


def test_a_cell_stays_what_it_was_when_more_are_added() -> None:
    """So that what is finished is only collected."""

    def identities(**changes: Any) -> dict[str, str]:
        cells = suite(params={"limit_samples": 3}, **changes).cells
        return {cell.name: identity_of(build_evaluation(cell.request, load_framework(), {})) for cell in cells}

    before = identities()
    after = identities(
        evaluations=["pubmed_qa", "aci_bench", "medec"], targets=[target("new"), target("small"), target("big")],
        variants=[{"name": "default"}, {"name": "hot", "params": {"temperature": 1}}],
        judges=[{"name": "gpt", "model_id": "x"}], max_cost=3, max_processes=1,
    )  # fmt: skip
    assert len(set(before.values())) == 4
    assert {name: after[name] for name in before} == before
