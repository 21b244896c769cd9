"""The shape of a merged configuration, value by value."""

from __future__ import annotations

from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.config.model import ApiEndpoint, Extra, Judge, RunConfig
from eval_factory.core.errors import ConfigError
from facts import refusal, says


def test_a_judge_signs_in_one_way() -> None:
    for said in ({"api_key": "K"}, {"api_key_name": "K"}, {"oauth": "openai"}):
        judge = Judge.model_validate({"name": "a", "model_id": "m", **said})
        assert (judge.api_key, judge.oauth) == (
            (None, "openai") if "oauth" in said else ("K", None)
        )
    both = {"name": "a", "model_id": "m", "api_key": "K", "oauth": "openai"}
    says(refusal(Judge, both), "judge a", "api_key and oauth")


def test_what_a_judge_says_of_its_key_is_written_again_as_it_was() -> None:
    """A null says that no key is sent, and nothing that the main key may be."""
    for said in ({}, {"api_key": None}, {"api_key": "K"}):
        judge = Judge.model_validate({"name": "a", "model_id": "m", **said})
        again = Judge.model_validate(judge.model_dump(mode="json"))
        assert again.sends_no_key == judge.sends_no_key == (said == {"api_key": None})
        assert again.api_key == judge.api_key == said.get("api_key")
    assert Judge.model_validate({"name": "a", "model_id": "m", "api_key_name": None}).sends_no_key


def merged(**extra: Any) -> dict[str, Any]:
    """A whole configuration, with other values of `config.params.extra`."""
    document = evaluation().as_dict()
    document["config"]["params"]["extra"].update(extra)
    return document


@pytest.mark.parametrize(
    "section",
    [
        (),
        ("config",),
        ("config", "params"),
        ("config", "params", "extra"),
        ("target",),
        ("target", "api_endpoint"),
        ("target", "api_endpoint", "adapter_config"),
    ],
)
def test_a_key_that_nobody_knows_is_an_error_in_every_section(section: tuple[str, ...]) -> None:
    document = tree = merged()
    for name in section:
        tree = tree[name]
    tree["surprise"] = 1
    assert ".".join([*section, "surprise"]) in refusal(RunConfig, document)


def test_nothing_has_a_default_here() -> None:
    """Defaults stand in framework.yml; only what a judge leaves out is open."""
    for model in (RunConfig, Extra, ApiEndpoint):
        assert all(field.is_required() for field in model.model_fields.values()), model


def test_judges_have_different_names() -> None:
    two = [{"name": "a", "model_id": "m"}, {"name": "b", "model_id": "m"}]
    assert RunConfig.model_validate(merged(judges=two)).config.params.extra.judges
    assert "names a twice" in refusal(RunConfig, merged(judges=[*two, two[0]]))
    assert refusal(RunConfig, merged(judges=[]))


EXTRA = "config.params.extra"
ROW = {"model_id": "m", "input_per_million": 0, "output_per_million": 1.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_cost", 0),
        ("max_cost", -1),
        ("max_cost", True),
        ("max_requests", 0),
        ("max_requests", 1.5),
        ("max_tokens_total", 0),
        ("max_wall_s", 0),
        ("max_wall_s", float("inf")),
        ("prices", []),
        ("prices", [ROW, ROW]),
        ("prices", [{"model_id": "m", "input_per_million": 1}]),
        ("prices", [{**ROW, "output_per_million": -1}]),
        ("prices", [{**ROW, "per_image": 1}]),
    ],
)
def test_what_is_no_limit_and_no_price_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        evaluation({f"{EXTRA}.{name}": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_cost", 0.01),
        ("max_requests", 1),
        ("max_tokens_total", 10**12),
        ("max_wall_s", 0.5),
        ("prices", [ROW]),
    ],
)
def test_a_raised_limit_goes_on_with_the_same_run(name: str, value: Any) -> None:
    assert plan({f"{EXTRA}.{name}": value}).identity == plan().identity
    assert (
        evaluation({f"{EXTRA}.{name}": value}).as_dict()["config"]["params"]["extra"][name]
        is not None
    )
