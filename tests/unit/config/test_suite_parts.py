"""The keys and values of a suite, and what its files make together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config import suite_layers
from eval_factory.config.model_problems import problems_with
from eval_factory.config.suite_layers import (
    SuiteLayer,
    merged_section,
    name_of_type,
    name_with_variant,
    normal_form,
)
from eval_factory.config.suite_model import SuiteSection
from eval_factory.tasks.framework import load_framework
from facts import each_says, says
from suites import ENDPOINT, section


def layer(tree: dict[str, Any], **what_it_is: Any) -> SuiteLayer:
    return SuiteLayer("a.yml", tree, **what_it_is)


def form(tree: dict[str, Any], **what_it_is: Any) -> dict[str, Any]:
    problems: list[str] = []
    found = normal_form(layer(tree, **what_it_is), load_framework(), problems)
    assert problems == []
    return found


def problems(tree: dict[str, Any]) -> list[str]:
    found: list[str] = []
    normal_form(layer(tree), load_framework(), found)
    return found


def whole(*trees: dict[str, Any], strongest: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    weaker = [(layer(tree), tree) for tree in trees]
    return merged_section(
        [*weaker, *((layer(tree, is_command_line=True), tree) for tree in strongest)]
    )


def test_an_evaluation_has_a_name_and_keeps_its_own() -> None:
    own = {"type": "medec", "name": "hot", "params": {"top_p": 1}}
    found = form({"evaluations": ["helm.medec", own, {"name": "x"}]})["evaluations"]
    assert found == [{"name": "medec", "type": "helm.medec"}, own, {"name": "x"}]
    assert (
        form({"evaluations": [{"type": "medec", "name": None}]})["evaluations"][0]["name"]
        == "medec"
    )


def test_a_selection_stands_for_tasks() -> None:
    by_tag = form({"evaluations": [{"select": {"tags": ["bias"]}, "params": {"top_p": 1}}]})[
        "evaluations"
    ]
    assert by_tag == [{"name": "race_based_med", "type": "race_based_med", "params": {"top_p": 1}}]
    select = {
        "access": "public",
        "tags": ["medical-qa"],
        "not_tags": ["calculation"],
        "without": ["head_qa"],
    }
    names = [entry["name"] for entry in form({"evaluations": [{"select": select}]})["evaluations"]]
    assert "pubmed_qa" in names
    assert not {"medcalc_bench", "head_qa", "medec", "clear"} & set(names)
    both = form({"evaluations": [{"select": {"tags": ["medical-qa", "calculation"]}}]})[
        "evaluations"
    ]
    assert [entry["name"] for entry in both] == ["medcalc_bench"]


BOTH = {"api_key_name": "K", "api_key": "L"}
TWICE = (
    "{}[0] also has the name 'A'; give each entry its own `name` (capital and small letters count "
    "as the same)"
)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"evaluations": [{"select": {"tags": ["zzz"], "without": ["medecc"]}}]},
            [
                "evaluations[0].select.without: there is no task 'medecc', did you mean 'medec'?",
                (
                    "evaluations[0].select: matches no task; 'eval-factory ls --json' shows the "
                    "tags and the access of each task"
                ),
            ],
        ),
        (
            {"targets": [{"name": "a", "api_endpoint": BOTH}]},
            [
                "targets[0].api_endpoint: api_key and api_key_name are the same setting; give one of them"
            ],
        ),
        *(
            (
                {kind: [{"name": "a"}, {"name": "b"}, {"name": "A"}]},
                [f"{kind}[2]: {TWICE.format(kind)}"],
            )
            for kind in ("evaluations", "targets", "variants")
        ),
    ],
)
def test_what_is_wrong_with_an_entry(tree: dict[str, Any], said: list[str]) -> None:
    assert problems(tree) == [f"a.yml: suite.{text}" for text in said]


def test_an_unknown_task_has_a_hint_and_a_key_one_name() -> None:
    (found,) = problems({"evaluations": ["medec", {"type": "helm:mmul:subject=anatomy"}]})
    assert found.startswith("a.yml: suite.evaluations[1].type: HELM ")
    assert "did you mean 'mmlu'?" in found
    (target,) = form({"targets": [{"name": "a", "api_endpoint": {"api_key_name": "K"}}]})["targets"]
    assert target["api_endpoint"] == {"api_key": "K"}


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the current folder; a benchmark's also from the file's."""
    here = tmp_path / "here"
    there = tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (there / "b.yml").touch()
    monkeypatch.chdir(here)
    extra = {"data_path": "d", "data_dir": "~/e", "benchmark": "b.yml", "subject": "s"}
    entries = [{"type": "medec", "params": {"extra": extra}}, "helm:shc_bmt_med:data_path=x.csv"]
    found = form(
        {"output_dir": "o", "params": {"extra": {"data_dir": "x"}}, "evaluations": entries},
        folder=there,
    )
    assert (found["output_dir"], found["params"]["extra"]["data_dir"]) == (f"{here}/o", f"{here}/x")
    own, entry = found["evaluations"]
    assert own["params"]["extra"] == {
        "data_path": f"{here}/d",
        "data_dir": f"{os.path.expanduser('~')}/e",
        "benchmark": f"{there}/b.yml",
        "subject": "s",
    }
    assert extra["data_path"] == "d"
    assert entry == {
        "name": "helm-shc_bmt_med-data_path-x.csv",
        "type": f"helm:shc_bmt_med:data_path={here}/x.csv",
    }
    (here / "b.yml").touch()
    tree = {"params": {"extra": {"benchmark": "b.yml"}}}
    assert (
        form(tree, folder=there, is_preset=True)["params"]["extra"]["benchmark"] == f"{there}/b.yml"
    )
    (said,) = problems(
        {"targets": [{"name": "a", "params": {"extra": {"benchmark": "nowhere.yml"}}}]}
    )
    says(said, "a.yml: suite.targets[0].params.extra.benchmark", "no file")


def test_entries_of_one_name_are_merged_and_new_ones_put_behind() -> None:
    found = whole(
        {
            "targets": [{"name": "a", "params": {"x": 1, "y": 1}}, {"name": "b"}],
            "exclude": [{"target": "a"}],
        },
        {
            "targets": [{"name": "c"}, {"name": "A", "params": {"x": 2}}],
            "exclude": [{"target": "b"}],
            "params": {"x": 3},
        },
    )
    assert found["targets"] == [
        {"name": "A", "params": {"x": 2, "y": 1}},
        {"name": "b"},
        {"name": "c"},
    ]
    assert found["exclude"] == [{"target": "b"}]
    of_an_override = whole(
        {"targets": [{"name": "a"}, {"name": "b"}]},
        strongest=({"targets": [{"name": "b", "x": 1}]},),
    )
    assert of_an_override["targets"] == [{"name": "b", "x": 1}]


def test_params_of_an_override_take_back_what_stands_nearer_to_a_cell() -> None:
    kinds = ("evaluations", "targets", "variants")
    near = {"limit_samples": 3, "extra": {"min_coverage": 1, "language": "en"}}
    said = {"limit_samples": None, "extra": {"min_coverage": 0.5}, "top_p": 1}
    found = whole(
        {kind: [{"name": "a", "params": near}, {"name": "b"}] for kind in kinds},
        strongest=({"params": said},),
    )
    left = [{"name": "a", "params": {"extra": {"language": "en"}}}, {"name": "b"}]
    assert found == {"params": said, **dict.fromkeys(kinds, left)}
    assert near["limit_samples"] == 3


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("pubmed_qa", "pubmed_qa"),
        ("helm.pubmed_qa", "pubmed_qa"),
        ("helm:ifeval", "helm-ifeval"),
        ("helm:mmlu:subject=anatomy", "helm-mmlu-subject-anatomy"),
    ],
)
def test_the_name_of_a_task(given: str, name: str) -> None:
    assert name_of_type(given, load_framework()) == name


def test_a_long_one_is_cut_and_still_its_own() -> None:
    names = {name_of_type(f"helm:mmlu:subject={'a' * 80}{end}", load_framework()) for end in "bc"}
    assert [len(name) for name in names] == [69, 69]


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ({"name": "default"}, "medec"),
        ({"name": "default", "params": {"top_p": 1}}, "medec"),
        ({"name": "cold"}, "medec"),
        ({"name": "cold", "params": {}}, "medec"),
        ({"name": "cold", "params": {"temperature": 0.0}}, "medec_cold"),
    ],
)
def test_the_name_with_a_variant(variant: dict[str, object], name: str) -> None:
    assert name_with_variant("medec", variant) == name


def of_shape(**changes: Any) -> list[str]:
    return list(problems_with(section(**changes), "suite", SuiteSection))


def of_values(**changes: Any) -> list[str]:
    return list(suite_layers.problems_of_values(section(**changes), load_framework()))


def of_endpoint(**changes: Any) -> list[str]:
    return of_values(targets=[{"name": "a", "api_endpoint": {**ENDPOINT, **changes}}])


def test_unknown_keys_have_a_hint_at_every_depth() -> None:
    wrong = {
        "evaluations": [{"type": "medec", "parms": {}}],
        "exclude": [{"evaluation": "x", "targt": "y"}],
        "jugdes": [],
    }
    each_says(
        of_shape(**wrong, variants=[{"name": "a", "zzz": 1}]),
        ["suite.evaluations[0].parms", "'params'?"],
        ["suite.variants[0].zzz", "known here: name, params"],
        ["suite.exclude[0].targt", "'target'?"],
        ["suite.jugdes", "'judges'?"],
    )
    each_says(
        of_values(judges=[{"name": "gpt", "model": "x"}]),
        ["suite.judges[0].model_id: is missing"],
        ["suite.judges[0].model", "'model_id'?"],
    )
    each_says(
        of_endpoint(adapter_config={"use_nvfc": True}),
        ["suite.targets[0].api_endpoint.adapter_config.use_nvfc", "'use_nvcf'?"],
    )


def test_wrong_values_say_what_is_expected() -> None:
    assert of_shape(targets=[{"api_endpoint": {}}]) == ["suite.targets[0].name: is missing"]
    each_says(
        of_shape(max_processes="two", params=[1]),
        ["suite.params: ", "a list"],
        ["suite.max_processes: ", "a whole number", "'two'"],
    )
    each_says(of_shape(include=[{}]), ["suite.include[0]: ", "`evaluation`, `target` or `variant`"])


def test_parameters_are_checked_wherever_they_stand() -> None:
    wrong = {"paralelism": 1}
    found = of_values(
        params=wrong,
        evaluations=["medec", {"type": "medec", "params": wrong}],
        variants=[{"name": "v", "params": {"extra": {"on_failure": "stop"}}}],
        targets=[{"name": "a", "params": {"temperature": -1}}],
    )
    each_says(
        found,
        ["suite.params.paralelism", "'parallelism'?"],
        ["suite.evaluations[1].params.paralelism", "'parallelism'?"],
        ["suite.targets[0].params.temperature: ", "equal to 0", "-1"],
        ["suite.variants[0].params.extra.on_failure: ", "'exclude' or 'zero'", "'stop'"],
    )


def test_a_null_is_a_default_and_no_mistake() -> None:
    """And what another file may say is not missing."""
    assert of_shape() == of_values() == []
    assert of_values(params={"parallelism": None, "extra": None}) == []
    assert of_endpoint(adapter_config=None, api_key=None) == []
    assert (
        of_values(
            targets=[{"name": "a"}, {"name": "b", "api_endpoint": {"url": None, "type": None}}]
        )
        == []
    )
