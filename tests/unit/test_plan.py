from __future__ import annotations

import re

import pytest

from eval_factory.plan import slug_of
from unit.builders import plan

MODEL_IDS = [
    "gpt-4", "o3-mini", "gpt-5", "org/model", "a/b/c", "org/model:free", "a,b", "k=v", "with space", "модель", "模型",
    "Org/Model", "org-model", "x" * 300, "..", "-", "UPPER",
]  # fmt: skip


@pytest.mark.parametrize("model_id", MODEL_IDS)
def test_slug_is_a_name_that_helm_and_file_systems_take(model_id: str) -> None:
    slug = slug_of(model_id)
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", slug)
    assert len(slug) <= 80


def test_slugs_differ() -> None:
    assert len({slug_of(model_id) for model_id in MODEL_IDS}) == len(MODEL_IDS)


def test_a_plain_id_is_its_own_slug() -> None:
    assert slug_of("o3-mini") == "o3-mini"


def test_demo_needs_no_key() -> None:
    assert plan({"target.api_endpoint.url": "demo://baseline"}).model.key_names == ()


def test_judges_fall_back_to_the_main_key() -> None:
    judges = plan({"config.type": "aci_bench"}).judges
    assert [judge.role for judge in judges] == ["gpt", "llama", "claude"]
    assert judges[0].key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")


def test_max_length_is_the_scenarios_where_it_has_one() -> None:
    here = plan({"config.params.extra.max_length": 2048})
    assert here.model.max_length == 2048
    assert "max_length" not in here.scenario_arguments
    there = plan(
        {"config.type": "medalign", "config.params.extra.data_path": "/d", "config.params.extra.max_length": 2048}
    )
    assert there.model.max_length is None
    assert there.scenario_arguments == {"data_path": "/d", "max_length": 2048}
