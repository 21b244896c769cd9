"""Tests of what was asked for, and what the answers themselves state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import endpoint_settings
from eval_factory.core.results import AskedEndpoint
from eval_factory.endpoint.response_cache import Answer
from eval_factory.scoring.model_names import same_model
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.reportable import other_model_reasons
from eval_factory.scoring.stated_models import (
    MAX_LISTED,
    MAX_MODEL,
    StatedModels,
    host_in,
    notes_on_models,
    sampling_fields_of,
    stated_model,
)
from facts import says

SAME = [
    ("gpt-4o", "gpt-4o"),
    ("Org/Model", "org/model"),
    ("openai/gpt-4o", "gpt-4o"),
    ("gpt-4o", "azure/gpt-4o"),
    ("meta/llama-3.3-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"),
    ("gpt-4o", "gpt-4o-2024-08-06"),
    ("gpt-4o-2024-08-06", "gpt-4o"),
    ("openai/gpt-4o", "gpt-4o-2024-08-06"),
    ("claude-3-7-sonnet", "claude-3-7-sonnet-20250219"),
    ("claude-3-7-sonnet@20250219", "claude-3-7-sonnet-20250219"),
    ("claude-3-7-sonnet-20250219", "us.anthropic.claude-3-7-sonnet-20250219-v1:0"),
    ("claude-3-7-sonnet-latest", "claude-3-7-sonnet-20250219"),
    ("gpt-4", "gpt-4-0613"),
    ("gpt-4", "gpt-4-1106"),
    ("gpt-4", "gpt-4-1231"),
    ("mistral-large-latest", "mistral-large-2411"),
    ("gemini-2.0-flash", "gemini-2.0-flash-001"),
    ("command-r", "command-r-08-2024"),
    ("llama3:latest", "llama3"),
    (" gpt-4o ", "gpt-4o"),
    ("org/model", "org/model@main"),  # what `transformers serve` states
    ("org/model@main", "org/model@0123abc"),  # a branch moves, as `latest` does
    ("model", "org/model@refs/pr/1"),
    ("org/model-2024-08-06@main", "model"),
    ("org/model-0613@0123abc", "model-0613"),
    ("@cf/meta/llama-3.1-8b-instruct", "llama-3.1-8b-instruct@main"),
    ("gemini-2.0-flash", "models/gemini-2.0-flash"),
    ("llama-v3p1-8b-instruct", "accounts/fireworks/models/llama-v3p1-8b-instruct"),
    ("anthropic/claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"),
]
OTHERS = [
    ("gpt-4o", "gpt-4o-mini"),
    ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
    ("gpt-4-0613", "gpt-4-1106"),
    ("gpt-4", "gpt-4-1306"),  # no month
    ("gpt-4", "gpt-4-0632"),  # no day
    ("gpt-4", "gpt-4-0600"),
    ("gpt-4", "gpt-4-2024-13-06"),
    ("gpt-4", "gpt-4-1106-preview"),
    ("gpt-4", "gpt-4-32k"),
    ("llama-3.1-8b", "llama-3.1-70b"),
    ("org/model", "other"),
    ("org/model", "org/other"),
    ("model", "mode"),
    ("gemini-1.5-pro-001", "gemini-1.5-pro-002"),
    ("x/", "y/"),
    ("phi-4", "phi-5"),
    ("gpt-3.5-turbo", "gpt-4-turbo"),
    ("x-20251319", "x"),
    ("org/model@main", "org/other@main"),
    ("org/model@0123abc", "org/model@4567def"),
    ("model-0613@0123abc", "model-1106"),
    ("@cf/meta/llama-3.1-8b-instruct", "@cf/meta/llama-3.1-70b-instruct"),
    ("llama-3.1-8b@main", "llama-3.1-8b-instruct@main"),
    ("openai/gpt-4o", "openai/gpt-4o-mini-2024-07-18"),
    ("models/gemini-2.0-flash", "models/gemini-2.0-flash-lite"),
    ("main", "latest"),
]


def test_names_of_one_model_and_of_two() -> None:
    both = SAME + OTHERS
    assert (
        [names for names in both if same_model(*names)]
        == [one for one in both if same_model(*one[::-1])]
        == SAME
    )


def answer(role: str, stated: object = None, **request: Any) -> Answer:
    response: dict[str, Any] = {"choices": [], **({} if stated is None else {"model": stated})}
    body = {"model": "m", "messages": [], "temperature": 0.0, **request}
    return Answer("key", role, "m", body, response, 1.0, 0.1)


ASKED = (
    endpoint_settings(
        role="model",
        model_id="org/m",
        url="https://user:pass@Host.example:8443/v1?key=${GATEWAY_KEY}",
    ),
    endpoint_settings(role="gpt", model_id="gpt-4o", url="http://[::1]/v1"),
)


def endpoints_of(*answers: Answer, **judge_prompts: tuple[str, ...]) -> dict[str, AskedEndpoint]:
    stated = StatedModels(ASKED, {"key"})
    for one in answers:
        stated.add(one)
    return stated.endpoints(judge_prompts)


def test_each_endpoint_is_described_by_its_own_answers() -> None:
    answers = [
        answer("model", "fallback"),
        answer("model", "m"),
        answer("model", "M"),
        answer("model", "m"),
        answer("model"),
        answer("model", ["no text"]),
        answer("model", "  "),
        answer("gpt", "gpt-4o-2024-08-06", max_tokens=9),
        answer("gpt", "gpt-4o-2024-08-06"),
        answer("gpt", "gpt-4o", max_tokens=9),
        answer("somebody else", "x"),
    ]
    found = endpoints_of(*answers, gpt=("a" * 64,))
    assert list(found) == ["model", "gpt"]
    at: dict[str, Any] = {
        "first_answer": "1970-01-01T00:00:01Z",
        "last_answer": "1970-01-01T00:00:01Z",
    }
    assert found["model"] == AskedEndpoint(
        model="org/m",
        host="Host.example:8443",
        sampling=({"temperature": 0.0},),
        answers=7,
        stated_models={"m": 2, "fallback": 1, "M": 1},
        other_model=1,
        prompt_sha256=None,
        **at,
    )
    assert found["gpt"] == AskedEndpoint(
        model="gpt-4o",
        host="[::1]",
        sampling=({"max_tokens": 9, "temperature": 0.0}, {"temperature": 0.0}),
        answers=3,
        stated_models={"gpt-4o-2024-08-06": 2, "gpt-4o": 1},
        other_model=0,
        prompt_sha256=("a" * 64,),
        **at,
    )
    assert (found["model"].main_model, found["gpt"].main_model) == ("m", "gpt-4o-2024-08-06")
    assert (host_in("demo://baseline"), host_in("https://a@b:c@h:1/v1")) == ("baseline", "h:1")


def test_an_endpoint_that_was_asked_days_apart_is_noted() -> None:
    """Each answer came when its request had been under way for 0.1 s; 86,400 s are a day."""
    times = (86_400 * 3 + 0.95, 0.95, 86_400.0 * 7 + 0.95)
    found = endpoints_of(*(replace(answer("gpt"), created=one) for one in times))
    assert (found["gpt"].first_answer, found["gpt"].last_answer) == (
        "1970-01-01T00:00:01Z",
        "1970-01-08T00:00:01Z",
    )
    assert (
        found["gpt"].days_of_asking,
        found["model"].days_of_asking,
        found["model"].first_answer,
    ) == (7, 0, None)
    (note,) = notes_on_models(found, ["gpt"])
    says(note.text, "judge gpt", "7 days", "1970-01-01T00:00:01Z to 1970-01-08T00:00:01Z")
    nearer = endpoints_of(*(replace(answer("model"), created=one) for one in (0.95, 86_400.0 * 7)))
    assert (nearer["model"].days_of_asking, list(notes_on_models(nearer, []))) == (6, [])
    wrong = endpoints_of(replace(answer("model"), created=1e300))["model"]
    assert (wrong.first_answer, wrong.days_of_asking) == (None, 0), "an altered store names no time"


def test_answers_that_the_result_is_not_made_of_do_not_count_and_who_never_answered_is_described() -> (
    None
):
    found = endpoints_of(replace(answer("gpt", "other"), key="of an earlier run"), answer("gpt"))[
        "gpt"
    ]
    assert (found.answers, found.stated_models) == (1, {})
    silent = endpoints_of()["gpt"]
    assert (silent.answers, silent.sampling, silent.stated_models, silent.main_model) == (
        0,
        (),
        {},
        "gpt-4o",
    )


def test_what_an_endpoint_states_is_cut_and_on_one_line() -> None:
    many = (
        answer("gpt", f"other\x1b {number} " + "x" * 999, seed=number)
        for number in range(MAX_LISTED + 3)
    )
    found = endpoints_of(*many)["gpt"]
    assert (
        len(found.stated_models),
        len(found.sampling),
        found.other_model,
    ) == (MAX_LISTED, MAX_LISTED, MAX_LISTED + 3)
    assert all(len(stated) <= MAX_MODEL and "\x1b" not in stated for stated in found.stated_models)


def described(model: str, answers: int = 10, /, **stated: int) -> AskedEndpoint:
    other = sum(count for name, count in stated.items() if not same_model(model, name))
    return AskedEndpoint(model, "h", (), answers, stated, other, None)


def test_another_model_is_told_and_too_many_of_them_not_reportable() -> None:
    endpoints = {
        "model": described("m", m=8, fallback=2),
        "gpt": described("g", g=9, f=1),
        "none": described("n", 0),
    }
    (reason,) = other_model_reasons(endpoints, 0.1)
    told = reason.partition(", and ")[0]
    says(told, "2 of 10 answers", "another model than m", "fallback (2)")
    says(reason, "max_model_mismatch is 0.1")
    assert "--fresh" in reason
    assert "extra.max_model_mismatch" in reason
    assert (
        other_model_reasons(endpoints, 0.2),
        len(other_model_reasons(endpoints, 0)),
    ) == ((), 2)
    of_model, of_gpt = notes_on_models(endpoints, ())
    assert of_model == (Importance.DOUBTFUL, told)
    assert of_gpt[0] is Importance.DOUBTFUL
    says(of_gpt[1], "judge gpt", "1 of 10 answers", "f (1)")


def test_judges_that_are_one_model_are_told() -> None:
    endpoints = {
        "model": described("m", m=10),
        "a": described("a", x=9, a=1),
        "b": described("B-latest"),
        "c": described("c", x=10),
        "d": described("b-0613"),
        "e": described("e"),
        "f": described("f", X=10),
    }
    told = [
        note.text
        for note in notes_on_models(endpoints, "abcdef")
        if " are the same model" in note.text
    ]
    same = (
        "judges a, c and f are the same model, x",
        "judges b and d are the same model, B-latest",
    )
    assert [text.partition(":")[0] for text in told] == list(same)
    assert not [
        note for note in notes_on_models(endpoints, "ae") if " are the same model" in note.text
    ]


def test_a_judge_that_is_the_evaluated_model_is_told() -> None:
    endpoints = {"model": described("org/m"), "a": described("a", m=10), "b": described("b")}
    _, told = notes_on_models(endpoints, "ab")
    says(told.text, "judge a", "evaluated model itself", "m")
    assert list(notes_on_models({"a": described("a"), "b": described("b")}, "ab")) == []


def test_the_model_that_an_answer_states_and_sampling_which_is_neither_model_nor_question() -> None:
    assert stated_model({"model": " org/m "}) == "org/m"
    for silent in ({}, {"model": None}, {"model": ["m"]}, {"model": "  "}, "text", None):
        assert stated_model(silent) is None
    body = {"model": "m", "messages": [1], "prompt": "p", "temperature": 0.0, "stop": ["\n"]}
    assert sampling_fields_of(body) == {"temperature": 0.0, "stop": ["\n"]}
    assert sampling_fields_of("text") == {}
