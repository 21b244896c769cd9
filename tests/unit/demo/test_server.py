from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
import requests

from eval_factory.demo.server import DemoServer, baseline_answer, embedded_judgement
from eval_factory.helm.criteria import criterion_prompt, parse_decisions
from eval_factory.tasks.rubric_case import Criterion

QUESTION = "Which?\nA. short\nB. the longest of them\nC. middle one\nAnswer:"


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    """Yield a server for all tests, because a server takes half a second to stop."""
    with DemoServer() as server:
        yield server


def test_the_rule() -> None:
    assert baseline_answer(QUESTION) == "B"
    assert baseline_answer("A. aa\nB. bb\n") == "A"
    assert baseline_answer(f"A. an example with long text\nB. x\nAnswer: A\n\n{QUESTION}") == "B"
    assert baseline_answer("first\n\n" + "word " * 50) == " ".join(["word"] * 40)
    assert baseline_answer("") == ""


def test_both_endpoints(server: DemoServer) -> None:
    with requests.Session() as session:
        chat: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
        first, again = (
            session.post(f"{server.base_url}/chat/completions", json=chat, timeout=10).json()
            for _ in "12"
        )
        assert (first["choices"][0]["message"]["content"], again["id"]) == ("B", first["id"])
        assert first["usage"] == {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13}
        body = {"prompt": "one two three", "max_tokens": 2}
        cut = session.post(f"{server.base_url}/completions", json=body, timeout=10).json()[
            "choices"
        ][0]
        assert (cut["text"], cut["finish_reason"]) == ("one two", "length")


def test_a_picture_is_refused(server: DemoServer) -> None:
    body = {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
        ]
    }
    answer = requests.post(f"{server.base_url}/chat/completions", json=body, timeout=10)
    assert (answer.status_code, "no picture" in answer.json()["error"]["message"]) == (400, True)


def test_the_questions() -> None:
    text = (resources.files("eval_factory.demo") / "sample" / "data.csv").read_text("utf-8")
    questions = list(csv.DictReader(text.splitlines()))
    assert len(questions) == len({question["id"] for question in questions}) == 40
    assert {len({question[f"option_{letter}"] for letter in "abcd"}) for question in questions} == {
        4
    }
    assert Counter(question["correct_answer"] for question in questions) == dict.fromkeys(
        "ABCD", 10
    )
    lengths = [
        {letter.upper(): len(question[f"option_{letter}"]) for letter in "abcd"}
        for question in questions
    ]
    longest = [
        max(of, key=of.__getitem__) == one["correct_answer"]
        for of, one in zip(lengths, questions, strict=True)
    ]
    assert 0.15 <= sum(longest) / 40 <= 0.5


SPOKEN = ("user", "Aspirin?"), ("assistant", "Fever?"), ("user", "No")
MESSAGES = [{"role": role, "content": content} for role, content in SPOKEN]
HALF = Criterion("Names aspirin", 5)
NONE = Criterion("Recommends paracetamol instead", -3)


def test_half_of_the_longer_words_are_enough() -> None:
    def told(answer: str, criterion: Criterion) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            str(embedded_judgement(criterion_prompt(MESSAGES, answer, [criterion])))
        )
        return found

    half = {"explanation": "1 of its 2 longer words stand in the answer", "criteria_met": True}
    assert told("It is ASPIRIN.", HALF) == half
    for answer, criterion in (
        ("Paracetamol.", NONE),
        ("x", HALF),
        ("a", Criterion("a b", 1)),
    ):
        assert told(answer, criterion)["criteria_met"] is False


def test_several_criteria_and_prompts_that_have_none() -> None:
    said = embedded_judgement(criterion_prompt(MESSAGES, "Aspirin names", [NONE, HALF]))
    assert [one.met for one in parse_decisions(str(said), 2, "Aspirin names")] == [False, True]
    for other in ("A. one\nB. another", "<conversation>\nx\n</conversation>\n"):
        assert embedded_judgement(other) is None
