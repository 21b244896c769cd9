"""Models and judges beside a run config."""

from __future__ import annotations

from eval_factory.helm.standalone import standalone_judges, standalone_model
from eval_factory.tasks.framework import load_framework

MODEL = standalone_model(load_framework(), url="https://h/v1", model_id="m")


def test_helms_judges_have_helms_names_and_keys_of_their_own() -> None:
    framework = load_framework()
    (judge,) = standalone_judges(framework, MODEL, {"gpt": "openai/gpt-4o-2024-05-13"})
    assert (judge.role, judge.helm_name, judge.url) == ("gpt", "openai/gpt-4o-2024-05-13", "https://h/v1")
    assert judge.key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")
    demo = standalone_model(framework, url="demo://baseline", model_id="m", key_name="X")
    assert demo.key_names == ()
    assert [j.key_names for j in standalone_judges(framework, demo)] == [(), (), ()]
