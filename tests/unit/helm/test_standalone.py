"""Models and judges beside a run config."""

from __future__ import annotations

from scripts.generate_dynamic_model_configs import standalone_judges, standalone_model

from eval_factory.plan.run_plan import slug_of
from eval_factory.tasks.framework import load_framework

FRAMEWORK = load_framework()
MODEL = standalone_model(FRAMEWORK, url="https://h/v1", model_id="m")


def test_helms_judges_have_helms_names_and_keys_of_their_own() -> None:
    (judge,) = standalone_judges(FRAMEWORK, MODEL, {"gpt": "openai/gpt-4o-2024-05-13"})
    assert (judge.role, judge.helm_name, judge.url) == (
        "gpt",
        "openai/gpt-4o-2024-05-13",
        "https://h/v1",
    )
    assert judge.key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")
    demo = standalone_model(FRAMEWORK, url="demo://baseline", model_id="m")
    assert demo.key_names == ()
    assert [j.key_names for j in standalone_judges(FRAMEWORK, demo)] == [(), (), ()]


def test_a_standalone_model_is_named_by_its_alias() -> None:
    named = standalone_model(FRAMEWORK, url="https://h/v1", model_id="m", alias="org/name")
    assert (named.model_id, named.slug, MODEL.slug) == ("m", slug_of("org/name"), "m")
    assert [judge.alias for judge in standalone_judges(FRAMEWORK, named)] == ["org/name"] * 3
