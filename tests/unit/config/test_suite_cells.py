from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.suite import Combination, combinations, group_of_url, limit_group_of, origins_of
from eval_factory.core.errors import ConfigError
from eval_factory.demo.example import write_example
from suites import ENDPOINT, params, section, suite, target

VARIANTS = [{"name": "default"}, {"name": "hot", "params": {"temperature": 1.0}}]


def names(**changes: Any) -> list[str]:
    return [cell.name for cell in suite(**changes).cells]


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        suite(**changes)
    return raised.value.problems


def test_the_variants_params_beat_the_targets_those_the_evaluations_and_those_the_suites() -> None:
    found = suite(
        params={"parallelism": 1, "top_p": 0.1, "request_timeout": 1, "max_retries": 1},
        evaluations=[{"type": "medec", "params": {"parallelism": 2, "top_p": 0.2, "request_timeout": 2}}],
        targets=[target("a", params={"parallelism": 3, "top_p": 0.3, "extra": {"on_failure": "zero"}})],
        variants=[{"name": "v", "params": {"parallelism": 4, "extra": {"min_coverage": 0.5}}}],
    )
    assert params(found)["a/medec_v"] == {
        "parallelism": 4, "top_p": 0.3, "request_timeout": 2, "max_retries": 1,
        "extra": {"on_failure": "zero", "min_coverage": 0.5},
    }  # fmt: skip


EVERY = {"variants": VARIANTS, "targets": [target("a"), target("b")]}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"variants": VARIANTS, "targets": [target("a")]}, ["a/pubmed_qa", "a/pubmed_qa_hot", "a/medec", "a/medec_hot"]),
        ({**EVERY, "include": [{"evaluation": "med*", "target": "a"}]}, ["a/medec", "a/medec_hot"]),
        ({**EVERY, "include": [{"evaluation": "medec_hot"}]}, ["a/medec_hot", "b/medec_hot"]),
        ({**EVERY, "include": [{"variant": "hot"}], "exclude": [{"evaluation": "pubmed_qa"}]}, ["a/medec_hot", "b/medec_hot"]),
        ({**EVERY, "exclude": [{"target": "[!a]"}, {"variant": "d*"}]}, ["a/pubmed_qa_hot", "a/medec_hot"]),
        ({"include": [{"variant": "default", "evaluation": "medec"}, {"target": "small"}]}, ["small/pubmed_qa", "small/medec", "big/medec"]),
        ({"include": [], "exclude": [{"target": "big"}]}, ["small/pubmed_qa", "small/medec"]),
    ],
)  # fmt: skip
def test_include_and_exclude(changes: dict[str, Any], left: list[str]) -> None:
    assert names(**changes) == left


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exclude": [{"evaluation": "medec"}, {"evaluation": "medec", "target": "smal", "variant": "q"}]},
         "suite.exclude[1]: fits no cell (target 'smal', did you mean 'small'?) (variant 'q'; known: default)"),
        ({"include": [{"evaluation": "x*"}]}, "suite.include[0]: fits no cell"),
        ({"exclude": [{"target": "*"}]}, "suite: `include` and `exclude` leave no cell (there are 4 without them)"),
    ],
)  # fmt: skip
def test_a_pattern_that_fits_nothing_is_a_mistake(changes: dict[str, Any], said: str) -> None:
    assert problems(**changes) == [said]


def test_two_cells_with_one_folder_are_a_mistake_said_once() -> None:
    clash = [{"name": "a", "params": {}}, {"name": "default"}]
    (found,) = problems(evaluations=["medec"], variants=clash)
    assert found.startswith(
        "suite: medec with variant a and medec with variant default would have the same folder, 'medec'"
    )
    assert names(evaluations=["medec"], variants=clash, exclude=[{"variant": "a"}]) == ["small/medec", "big/medec"]


JURY = [{"name": "gpt", "model_id": "x"}, {"name": "mine", "model_id": "y"}]


def judges(evaluation: Any, **changes: Any) -> Any:
    (found,) = params(suite(evaluations=[evaluation], targets=[target("a")], judges=JURY, **changes)).values()
    return found.get("extra", {}).get("judges")


OWN = [{"name": "own", "model_id": "z"}]


@pytest.mark.parametrize(
    ("evaluation", "handed"),
    [
        ("pubmed_qa", None), ("aci_bench", JURY), ({"type": "aci_bench", "params": {"extra": {"judges": OWN}}}, OWN),
        ("helm:mmlu:subject=anatomy", None), ("helm:aci_bench", JURY), ("helm:harm_bench", JURY[:1]),  # the role it prescribes
    ],
)  # fmt: skip
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
    assert found.document["suite"]["targets"][0]["api_endpoint"] == {**ENDPOINT, "model_id": "org/small"}


@pytest.mark.parametrize(
    ("url", "group"),
    [
        ("https://h.example/v1", "h.example/v1"), ("https://H.example/v1/", "h.example/v1"),
        ("https://h.example/v1/chat/completions", "h.example/v1"),
        ("https://h.example/v1/completions/", "h.example/v1"),
        ("https://h.example:8000/v1?api-version=1", "h.example:8000/v1"), ("http://h.example", "h.example"),
        ("http://h.example/completions/chat/completions", "h.example/completions"),
        ("demo://baseline", "demo://baseline"),
    ],
)  # fmt: skip
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
    (one,) = combinations(whole, [])
    assert one == Combination(whole["evaluations"][0], whole["variants"][0], whole["targets"][0])
    assert origins_of(one, whole) == {
        "parallelism": ("variant v", 2), "top_p": ("evaluation e", 0.5), "extra.on_failure": ("target t", "zero"),
    }  # fmt: skip
