from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config import suite as suite_module
from eval_factory.config.evaluation import build_evaluation
from eval_factory.config.suite import (
    Combination,
    Suite,
    build_suite,
    group_of_url,
    limit_group_of,
    selected_combinations,
)
from eval_factory.core.budget import Budget
from eval_factory.core.errors import ConfigError
from eval_factory.demo.example import write_example
from eval_factory.plan.run_plan import identity_of
from eval_factory.tasks.framework import load_framework
from facts import each_says, says
from suites import ENDPOINT, params, section, suite, target


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        suite(**changes)
    return raised.value.problems


def test_each_evaluation_of_each_target_is_a_run_config() -> None:
    found = suite(params={"limit_samples": 3})
    assert [cell.name for cell in found.cells] == [
        "small/pubmed_qa",
        "big/pubmed_qa",
        "small/medec",
        "big/medec",
    ]
    cell = found.cells[3]
    assert (cell.target, cell.evaluation, cell.folder) == (
        "big",
        "medec",
        Path("/results/suite/big/medec"),
    )
    assert cell.document == {
        "config": {
            "type": "medec",
            "output_dir": "/results/suite/big/medec",
            "params": {"limit_samples": 3},
        },
        "target": {"api_endpoint": {**ENDPOINT, "model_id": "org/big"}},
    }
    assert build_evaluation(cell.request, load_framework(), {}).run.config.params.limit_samples == 3


def test_limits_are_the_users_and_a_null_leaves_the_default() -> None:
    usual = suite()
    defaults = load_framework().defaults.suite
    cores = os.cpu_count() or 1
    assert (usual.budget, usual.max_processes) == (Budget(), min(2 * cores, 8))
    assert (
        (usual.max_attempts, usual.max_outage_s)
        == (defaults["max_attempts"], defaults["max_outage_s"])
        == (2, 3600)
    )
    limits: dict[str, Any] = {
        "max_cost": 2.5,
        "max_requests": 10,
        "max_tokens_total": 4 * 10**9,
        "max_wall_s": 60,
    }
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
        evaluations=[
            {"type": "medec", "params": {"limit_samples": 7, "extra": {"min_coverage": 0.5}}}
        ],
        targets=[
            {
                "name": "t",
                "api_endpoint": ENDPOINT,
                "params": {"limit_samples": 8, "parallelism": 2},
            }
        ],
        flags={
            "suite.output_dir": "/flag",
            "suite.params.limit_samples": 1,
            "suite.max_attempts": 4,
        },
        overrides=("suite.max_attempts=6,suite.params.extra.min_coverage=0.25",),
        params={"limit_samples": 2},
    )
    assert (found.folder.root, found.max_attempts) == (Path("/flag"), 6)
    assert [*params(found).values()] == [
        {"limit_samples": 1, "parallelism": 2, "extra": {"min_coverage": 0.25}}
    ]
    assert build_suite(None, document=found.document, env={}) == found


def test_all_that_is_missing_is_said_at_once() -> None:
    found = problems(output_dir=None, evaluations=None, targets=None)
    assert [problem.split(":")[0] for problem in found] == [
        "suite.output_dir",
        "suite.evaluations",
        "suite.targets",
    ]
    found = problems(
        evaluations=[{"name": "x"}], targets=[{"name": "t", "api_endpoint": {"url": None}}]
    )
    says(found, "suite.evaluations: x", "`type`", "eval-factory ls")
    says(found, "suite.targets: t", "no api_endpoint.url")
    says(found, "suite.targets: t", "no api_endpoint.model_id")


def test_what_a_file_does_not_say_is_said_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    for text in (
        "{output_dir: x, evaluations: [medec]}",
        "{preset: smoke, output_dir: x, exclude: [{target: zzz}]}",
    ):
        file.write_text(f"suite: {text}\n")
        with pytest.raises(ConfigError) as raised:
            build_suite(file, env={})
        assert [problem.startswith(f"{file}: suite.") for problem in raised.value.problems] == [
            True
        ]


def test_mistakes_of_every_kind_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    file.write_text(
        "suite:\n  output_dir: x\n  excludes: []\n  params: {limit_sample: 3}\n  evaluations: [pubmed_q]\n"
        "  targets: [{name: a, api_endpoint: {url: host, modelid: b}}]\n"
    )
    with pytest.raises(ConfigError) as raised:
        build_suite(file, overrides=("suite.max_procesess=2",), env={})
    each_says(
        raised.value.problems,
        [f"{file}: ", "suite.excludes", "'exclude'?"],
        ["--overrides: ", "suite.max_procesess", "'max_processes'?"],
        [f"{file}: ", "suite.params.limit_sample", "'limit_samples'?"],
        [
            f"{file}: suite.targets[0].api_endpoint.url: ",
            "https://... or http://...",
            "demo://baseline",
        ],
        [f"{file}: ", "suite.targets[0].api_endpoint.modelid", "'model_id'?"],
        [f"{file}: suite.evaluations[0].type: ", "'pubmed_q'", "'pubmed_qa'?", "eval-factory ls"],
    )


SECRET = "sk-canary0123456789abcdef"


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"targets": [{"name": "a", "api_endpoint": {**ENDPOINT, **wrong}}]}
            for wrong in (
                {"api_key": SECRET},
                {"url": f"https://h/v1?key={SECRET}"},
                {"adapter_config": {"params_to_add": {"token": SECRET}}},
            )
        ),
        {"targets": [{"name": SECRET, "api_endpoint": ENDPOINT}]},
        {"judges": [{"name": "gpt", "model_id": "x", "api_key": SECRET}]},
        {"params": {"extra": {"gpt_judge_api_key": SECRET}}},
        {"preset": SECRET},
        {"evaluations": [SECRET]},
        {SECRET: 1},
        {"params": {SECRET: 1}},
        *({"include": [{part: SECRET}]} for part in ("evaluation", "target", "variant")),
        {"targets": [{"name": "a", "api_endpoint": ENDPOINT, "limit_group": SECRET}]},
    ],
)
def test_a_key_written_out_is_refused_and_not_shown(changes: dict[str, Any]) -> None:
    assert "canary" not in "".join(problems(**changes))


def of_preset(name: str, **changes: Any) -> Suite:
    return suite(preset=name, evaluations=[], **changes)


def types(found: Suite) -> set[str]:
    return {cell.document["config"]["type"] for cell in found.cells}


def test_the_public_presets_take_their_tasks_from_framework_yml() -> None:
    public = {
        task.name: task for task in load_framework().evaluations if task.about.access == "public"
    }
    expected = set(public) - {
        "sample_medical_qa",
        "med_dialog",
    }  # med_dialog is med_dialog_healthcaremagic
    assert types(of_preset("quick")) == expected - {"mmlu_clinical_afr"}, "which needs a language"
    expected = {name for name in expected if "beyond-medhelm" not in public[name].about.tags}
    assert not expected & {"healthbench", "careqa", "med_qa"}
    assert types(of_preset("medhelm_public")) == expected
    without_jury = {name for name in expected if not public[name].helm.judges}
    assert types(of_preset("medhelm_rules_only")) == without_jury
    assert 5 < len(without_jury) < len(expected)
    assert {cell["limit_samples"] for cell in params(of_preset("quick")).values()} == {20}


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
        return {
            cell.name: identity_of(build_evaluation(cell.request, load_framework(), {}))
            for cell in cells
        }

    before = identities()
    after = identities(
        evaluations=["pubmed_qa", "aci_bench", "medec"],
        targets=[target("new"), target("small"), target("big")],
        variants=[{"name": "default"}, {"name": "hot", "params": {"temperature": 1}}],
        judges=[{"name": "gpt", "model_id": "x"}],
        max_cost=3,
        max_processes=1,
    )
    assert len(set(before.values())) == 4
    assert {name: after[name] for name in before} == before


VARIANTS = [{"name": "default"}, {"name": "hot", "params": {"temperature": 1.0}}]


def names(**changes: Any) -> list[str]:
    return [cell.name for cell in suite(**changes).cells]


def test_the_variants_params_beat_the_targets_those_the_evaluations_and_those_the_suites() -> None:
    found = suite(
        params={"parallelism": 1, "top_p": 0.1, "request_timeout": 1, "max_retries": 1},
        evaluations=[
            {"type": "medec", "params": {"parallelism": 2, "top_p": 0.2, "request_timeout": 2}}
        ],
        targets=[
            target("a", params={"parallelism": 3, "top_p": 0.3, "extra": {"on_failure": "zero"}})
        ],
        variants=[{"name": "v", "params": {"parallelism": 4, "extra": {"min_coverage": 0.5}}}],
    )
    assert params(found)["a/medec_v"] == {
        "parallelism": 4,
        "top_p": 0.3,
        "request_timeout": 2,
        "max_retries": 1,
        "extra": {"on_failure": "zero", "min_coverage": 0.5},
    }


EVERY = {"variants": VARIANTS, "targets": [target("a"), target("b")]}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (
            {"variants": VARIANTS, "targets": [target("a")]},
            ["a/pubmed_qa", "a/pubmed_qa_hot", "a/medec", "a/medec_hot"],
        ),
        ({**EVERY, "include": [{"evaluation": "med*", "target": "a"}]}, ["a/medec", "a/medec_hot"]),
        ({**EVERY, "include": [{"evaluation": "medec_hot"}]}, ["a/medec_hot", "b/medec_hot"]),
        (
            {**EVERY, "include": [{"variant": "hot"}], "exclude": [{"evaluation": "pubmed_qa"}]},
            ["a/medec_hot", "b/medec_hot"],
        ),
        (
            {**EVERY, "exclude": [{"target": "[!a]"}, {"variant": "d*"}]},
            ["a/pubmed_qa_hot", "a/medec_hot"],
        ),
        (
            {"include": [{"variant": "default", "evaluation": "medec"}, {"target": "small"}]},
            ["small/pubmed_qa", "small/medec", "big/medec"],
        ),
        ({"include": [], "exclude": [{"target": "big"}]}, ["small/pubmed_qa", "small/medec"]),
    ],
)
def test_include_and_exclude(changes: dict[str, Any], left: list[str]) -> None:
    assert names(**changes) == left


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {
                "exclude": [
                    {"evaluation": "medec"},
                    {"evaluation": "medec", "target": "smal", "variant": "q"},
                ]
            },
            "suite.exclude[1]: fits no cell, did you mean 'small'?",
        ),
        ({"include": [{"evaluation": "x*"}]}, "suite.include[0]: fits no cell"),
        (
            {"exclude": [{"target": "*"}]},
            "suite: `include` and `exclude` leave no cell (there are 4 without these keys)",
        ),
    ],
)
def test_a_pattern_that_fits_nothing_is_a_mistake(changes: dict[str, Any], said: str) -> None:
    assert problems(**changes) == [said]


def test_two_cells_with_one_folder_are_a_mistake_said_once() -> None:
    clash = [{"name": "a", "params": {}}, {"name": "default"}]
    (found,) = problems(evaluations=["medec"], variants=clash)
    says(found, "suite: medec", "variant a", "variant default", "'medec'")
    assert names(evaluations=["medec"], variants=clash, exclude=[{"variant": "a"}]) == [
        "small/medec",
        "big/medec",
    ]


def test_folders_that_differ_in_capital_letters_are_one_folder() -> None:
    """Some file systems do not tell them apart."""
    two = ["medec", {"name": "medec_q", "type": "pubmed_qa"}]
    variants = [{"name": "default"}, {"name": "Q", "params": {"temperature": 1.0}}]
    (found,) = problems(evaluations=two, variants=variants)
    says(found, "suite: medec", "variant Q", "medec_q", "variant default")


JURY = [{"name": "gpt", "model_id": "x"}, {"name": "mine", "model_id": "y"}]


def judges(evaluation: Any, **changes: Any) -> Any:
    (found,) = params(
        suite(evaluations=[evaluation], targets=[target("a")], judges=JURY, **changes)
    ).values()
    return found.get("extra", {}).get("judges")


OWN = [{"name": "own", "model_id": "z"}]


@pytest.mark.parametrize(
    ("evaluation", "handed"),
    [
        ("pubmed_qa", None),
        ("aci_bench", JURY),
        ({"type": "aci_bench", "params": {"extra": {"judges": OWN}}}, OWN),
        ("helm:mmlu:subject=anatomy", None),
        ("helm:aci_bench", JURY),
        ("helm:harm_bench", JURY[:1]),  # the role it prescribes
    ],
)
def test_judges_are_handed_to_cells_with_a_jury(evaluation: Any, handed: Any) -> None:
    assert judges(evaluation) == handed


@pytest.mark.parametrize("kind", ["choice", "jury", "unreadable"])
def test_a_custom_benchmark_has_a_jury_where_it_says_so(tmp_path: Path, kind: str) -> None:
    """One that cannot be read is left to the check of the cell."""
    file = tmp_path / "own" / "benchmark.yaml"
    write_example(file.parent, "jury" if kind == "jury" else "choice")
    if kind == "unreadable":
        file.write_text("[")
    evaluation = {"type": "custom", "params": {"extra": {"benchmark": str(file)}}}
    assert judges(evaluation) == (JURY if kind == "jury" else None)


def test_cells_share_no_part_of_their_run_configs() -> None:
    found = suite(params={"extra": {"language": "en"}}, judges=JURY, evaluations=["aci_bench"])
    first, second = (cell.document for cell in found.cells)
    assert first["config"]["params"]["extra"] is not second["config"]["params"]["extra"]
    first["target"]["api_endpoint"]["url"] = "changed"
    assert found.document["suite"]["targets"][0]["api_endpoint"] == {
        **ENDPOINT,
        "model_id": "org/small",
    }


@pytest.mark.parametrize(
    ("url", "group"),
    [
        ("https://h.example/v1", "h.example/v1"),
        ("https://H.example/v1/", "h.example/v1"),
        ("https://h.example/v1/chat/completions", "h.example/v1"),
        ("https://h.example/v1/completions/", "h.example/v1"),
        ("https://h.example:8000/v1?api-version=1", "h.example:8000/v1"),
        ("http://h.example", "h.example"),
        ("http://h.example/completions/chat/completions", "h.example/completions"),
        ("demo://baseline", "demo://baseline"),
    ],
)
def test_the_group_of_a_url(url: str, group: str) -> None:
    assert group_of_url(url) == group
    assert limit_group_of({"api_endpoint": {"url": url}}) == group
    assert limit_group_of({"api_endpoint": {"url": url}, "limit_group": "mine"}) == "mine"


def test_who_says_a_parameter() -> None:
    whole = section(
        params={"parallelism": 1, "top_p": 1, "max_retries": 2},
        evaluations=[{"type": "medec", "name": "e", "params": {"top_p": 0.5}}],
        targets=[target("t", params={"max_retries": None, "extra": {"on_failure": "zero"}})],
        variants=[{"name": "v", "params": {"parallelism": 2}}],
    )
    (one,) = selected_combinations(whole, [])
    assert one == Combination(whole["evaluations"][0], whole["variants"][0], whole["targets"][0])
    assert suite_module.cell_parameters(one, whole) == {
        "parallelism": ("variant v", 2),
        "top_p": ("evaluation e", 0.5),
        "extra.on_failure": ("target t", "zero"),
    }
