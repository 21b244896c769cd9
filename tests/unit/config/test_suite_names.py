from __future__ import annotations

import pytest

from eval_factory.config.suite_layers import name_of_type, name_with_variant
from eval_factory.tasks.framework import load_framework


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("pubmed_qa", "pubmed_qa"),
        ("helm.pubmed_qa", "pubmed_qa"),
        ("helm:mmlu:subject=anatomy", "helm-mmlu-subject-anatomy"),
        ("helm:ifeval", "helm-ifeval"),
    ],
)
def test_the_name_of_a_task(given: str, name: str) -> None:
    assert name_of_type(given, load_framework()) == name


def test_a_long_one_is_cut_and_still_its_own() -> None:
    names = {name_of_type(f"helm:mmlu:subject={'a' * 80}{end}", load_framework()) for end in "bc"}
    assert len(names) == 2
    assert {len(name) for name in names} == {69}


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ({"name": "default"}, "medec"),
        ({"name": "default", "params": {"top_p": 1}}, "medec"),
        ({"name": "cold"}, "medec"),
        ({"name": "cold", "params": {}}, "medec"),
        ({"name": "cold", "params": {"temperature": 0.0}}, "medec_cold"),
    ],
    ids=str,
)
def test_the_name_with_a_variant(variant: dict[str, object], name: str) -> None:
    assert name_with_variant("medec", variant) == name
