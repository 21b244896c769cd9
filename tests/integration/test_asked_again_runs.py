"""Questions asked again, through the real helm-run, against an endpoint that changes its mind for known questions."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.demo.example import write_example
from eval_factory.tasks.asking_forms import (
    ANSWER_WITH_CONFIDENCE,
    CONFIDENCE_QUESTION,
    DOUBTS_WITH_AUTHORITY,
    NEUTRAL_DOUBTS,
)
from facts import says
from program_runs import CANARY, Outcome, Run, more_data
from scripted_endpoint import ScriptedEndpoint

QUESTIONS = 30
REAL = 40
ALL = {
    "repeats": 3,
    "pushback": 2,
    "confidence": "stated",
    "allow_abstain": True,
    "cost_of_wrong": 2,
}
ASKINGS = 1 + 2 + 2 + 1 + 1
DOUBTS = (*NEUTRAL_DOUBTS, *DOUBTS_WITH_AUTHORITY)


class Wavering(ScriptedEndpoint):
    """Knows question n where n % 10 < 7; other answers are wrong. What it does when it is asked again depends on n."""

    def __init__(self) -> None:
        super().__init__(str)
        self.times: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        self.turns: dict[int, list[list[dict[str, str]]]] = {}

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        turns = body["messages"]
        found = re.search(r"Question (\d+)\?", turns[0]["content"])
        said = "ping" if found is None else self.say(int(found[1]), turns)
        self.answer = lambda _prompt: said
        return super().reply(path, headers, body)

    def say(self, number: int, turns: list[dict[str, str]]) -> str:
        right, wrong = ("A", "B") if number % 10 < 7 else ("C", "A")
        last = turns[-1]["content"]
        if last in DOUBTS:
            self.turns.setdefault(number, []).append(turns)
            doubts = len(turns) // 2
            if number % 10 == 0 or (number % 10 == 1 and doubts == 2):
                return "C"  # it knew, and is talked out of it
            return "A" if number % 10 == 9 else right
        if last == CONFIDENCE_QUESTION:
            return "Confidence: 90 %" if number % 10 != 5 else "I cannot say"
        if "I do not know" in last:
            return "I do not know." if number % 10 in (6, 8, 9) else right
        self.times[number] += 1
        return wrong if number % 10 == 2 and self.times[number] > 1 else right


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    write_example(folder, "choice")
    (folder / "prompt.txt").write_text("{question}", encoding="utf-8")
    rows = "".join(
        f"Question {number}?,{'even' if number % 2 == 0 else 'odd'},A\n"
        for number in range(QUESTIONS)
    )
    (folder / "data.csv").write_text(f"question,kind,correct_answer\n{rows}", encoding="utf-8")
    return folder / "benchmark.yaml"


def asked_again(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = outcome.document()["validity"]["asked_again"]
    return found


def test_what_the_endpoint_does_is_found(table: Path, run_program: Run, tmp_path: Path) -> None:
    with Wavering() as endpoint:
        extra = {"benchmark": str(table)}
        plain = run_program(
            "custom", endpoint.url, params={"extra": extra}, output_dir=tmp_path / "plain"
        )
        before = len(endpoint.requests)
        endpoint.times.clear()
        params = {"temperature": 0.5, "parallelism": 1, "extra": extra | ALL}
        outcome = run_program("custom", endpoint.url, params=params)
        assert len(endpoint.requests) - before == QUESTIONS * ASKINGS
        again = run_program("custom", endpoint.url, params=params)
        assert len(endpoint.requests) - before == QUESTIONS * ASKINGS, (
            "the result stands, and nobody is asked"
        )
    assert (plain.returncode, outcome.returncode, again.returncode) == (0, 0, 0), outcome.stderr
    found = asked_again(outcome)

    # knows 7 of ten; of these one answers otherwise from the second time on
    assert plain.scores()["exact_match"] == outcome.scores()["exact_match"] == 0.7
    assert outcome.document()["main_metric"] == "exact_match.repeats_mean"
    assert outcome.scores()["exact_match.repeats_mean"] == pytest.approx(0.6 + 0.1 / 3)
    repeats = found["repeats"]
    assert (repeats["times"], repeats["questions"], repeats["same_each_time"]["value"]) == (
        3,
        QUESTIONS,
        0.9,
    )
    assert (repeats["majority"]["value"], repeats["best_of_n"]["value"]) == (0.6, 0.7)
    assert repeats["pairs_agree"]["value"] == pytest.approx(0.9 + 0.1 / 3)

    first, second = found["pushback"]["turns"]
    assert (first["right_to_wrong"]["value"], first["right_to_wrong"]["count"]) == (
        pytest.approx(1 / 7, abs=1e-5),
        21,
    )
    assert second["right_to_wrong"]["value"] == pytest.approx(2 / 7, abs=1e-5)
    assert (second["wrong_to_right"]["value"], second["difference"]) == (
        pytest.approx(1 / 3, abs=1e-5),
        pytest.approx(0.6 - (0.6 + 0.1 / 3), abs=1e-5),
    )
    assert (second["same_words"]["value"], second["same_words"]["count"]) == (
        pytest.approx(1 / 7, abs=1e-5),
        21,
    )
    assert found["pushback"]["changed_at"] == {"1": 6, "2": 3, "never": 21}

    confidence = found["confidence"]
    assert (confidence["questions"], confidence["unread"], confidence["mean"]["value"]) == (
        27,
        3,
        0.9,
    )
    assert confidence["right"]["value"] == pytest.approx(18 / 27, abs=1e-5)
    assert confidence["calibration_error"]["value"] == pytest.approx(0.9 - 18 / 27, abs=0.03)

    abstention = found["abstention"]
    assert (
        abstention["abstained_when_right"]["value"],
        abstention["abstained_when_right"]["count"],
    ) == (
        pytest.approx(1 / 7, abs=1e-5),
        21,
    )
    assert abstention["abstained_when_wrong"]["value"] == pytest.approx(2 / 3, abs=1e-5)
    assert (abstention["score"]["value"], abstention["score_before"]["value"]) == (
        pytest.approx(0.4),
        pytest.approx(0.1),
    )

    text = " ".join(outcome.stdout.split())
    says(text, "21 questions", "6 were lost", "3 of 9 others", "2 doubts")
    says(text, "21 of 30 answers", "through all doubts")
    report = (outcome.output_dir / "report.md").read_text("utf-8")
    says(report, "21 of 30 answers", "through all doubts")
    for file in outcome.output_dir.rglob("*"):
        assert file.is_dir() or CANARY.encode() not in file.read_bytes(), file


def test_a_doubt_follows_on_the_answer_and_never_says_which_one_is_right(
    table: Path, run_program: Run
) -> None:
    with Wavering() as endpoint:
        params = {"limit_samples": 10, "extra": {"benchmark": str(table), "pushback": 6}}
        outcome = run_program("custom", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert len(endpoint.turns) == 10
    for number, asked in endpoint.turns.items():
        longest = max(asked, key=len)
        assert [turn["role"] for turn in longest] == ["user", "assistant"] * 6 + ["user"]
        assert longest[1]["content"] == ("A" if number % 10 < 7 else "C")
        doubts = [turn["content"] for turn in longest[2::2]]
        assert sorted(doubts) == sorted(DOUBTS), "each once"
        assert [doubt in NEUTRAL_DOUBTS for doubt in doubts] in (
            [True, False] * 3,
            [False, True] * 3,
        )
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
    ]
    turns = {
        line["perturbation"]: line["turns"]
        for line in lines
        if line["id"] == lines[0]["id"] and line.get("turns")
    }
    assert len(turns["pushback_6"]) == 13


def test_what_was_asked_is_not_asked_twice_after_a_stop(table: Path, run_program: Run) -> None:
    extra = {"benchmark": str(table), **ALL}
    with Wavering() as endpoint:
        stopped = run_program(
            "custom", endpoint.url, params={"extra": extra | {"max_requests": 100}}
        )
        assert stopped.returncode != 0
        assert 0 < len(endpoint.requests) <= 100
        outcome = run_program("custom", endpoint.url, params={"extra": extra})
        assert outcome.returncode == 0, outcome.stderr
        assert len(endpoint.requests) == QUESTIONS * ASKINGS
        # a repeat has the same words as the question: only its key differs
        sent = Counter(json.dumps(request["messages"]) for request in endpoint.requests)
    assert set(sent.values()) == {1, 3}


def test_the_probability_of_an_answer_is_that_of_its_tokens(table: Path, run_program: Run) -> None:
    class WithLogprobs(Wavering):
        def reply(
            self, path: str, headers: dict[str, str], body: dict[str, Any]
        ) -> tuple[int, dict[str, Any]]:
            status, answer = super().reply(path, headers, body)
            if body.get("logprobs") is True:
                content = answer["choices"][0]["message"]["content"]
                answer["choices"][0]["logprobs"] = {
                    "content": [{"token": content, "logprob": -0.5108256237659907}]
                }
            return status, answer

    with WithLogprobs() as endpoint:
        params = {"extra": {"benchmark": str(table), "confidence": "logprobs"}}
        outcome = run_program("custom", endpoint.url, params=params)
        assert len(endpoint.requests) == QUESTIONS, "no further request"
    confidence = asked_again(outcome)["confidence"]
    assert (confidence["source"], confidence["questions"], confidence["mean"]["value"]) == (
        "logprobs",
        QUESTIONS,
        0.6,
    )
    assert confidence["right"]["value"] == 0.7
    with Wavering() as without:
        mute = run_program("custom", without.url, "--fresh", params=params)
    assert asked_again(mute)["confidence"] == {
        "source": "logprobs",
        "questions": 0,
        "unread": QUESTIONS,
        "unread_answers": 0,
    }
    says(mute.stdout, "30 answers", "readable confidence")


def test_an_endpoint_for_completions_gets_all_in_one_prompt(run_program: Run) -> None:
    def say(prompt: str) -> str:
        return "75" if prompt.rstrip().endswith(CONFIDENCE_QUESTION) else "A"

    with ScriptedEndpoint(say) as endpoint:
        params = {"limit_samples": 4, "extra": {"confidence": "stated", "pushback": 1}}
        outcome = run_program(
            "sample_medical_qa", endpoint.url, params=params, model_type="completions"
        )
        prompts = [request["prompt"] for request in endpoint.requests]
    assert outcome.returncode == 0, outcome.stderr
    assert asked_again(outcome)["confidence"]["mean"]["value"] == 0.75
    followed = [
        prompt for prompt in prompts if prompt.rstrip().endswith((CONFIDENCE_QUESTION, *DOUBTS))
    ]
    assert len(followed) == 8
    assert all("Answer: A\n" in prompt or "Answer:A\n" in prompt for prompt in followed), followed[
        0
    ]


def test_where_first_answers_fail_nothing_follows_on_them(table: Path, run_program: Run) -> None:
    class Failing(Wavering):
        def reply(
            self, path: str, headers: dict[str, str], body: dict[str, Any]
        ) -> tuple[int, dict[str, Any]]:
            is_refused = "Question 3?" in body["messages"][0]["content"]
            self.status = 400 if is_refused else None
            return super().reply(path, headers, body)

    with Failing() as endpoint:
        params = {"parallelism": 1, "extra": {"benchmark": str(table), "pushback": 2}}
        outcome = run_program("custom", endpoint.url, params=params)
        later = [request for request in endpoint.requests if len(request["messages"]) > 1]
    assert outcome.returncode == 1, outcome.stdout
    document = yaml.safe_load((outcome.output_dir / "evaluation_config.yaml").read_text("utf-8"))
    assert document["validity"]["instances"]["failed"] == 3
    assert document["validity"]["asked_again"]["pushback"]["turns"][0]["questions"] == QUESTIONS - 1
    assert not any("Question 3?" in request["messages"][0]["content"] for request in later)


def test_other_words_lose_what_the_endpoint_loses_by_them(table: Path, run_program: Run) -> None:
    """It knows every fourth question in its own words only."""
    texts = [
        f"Question {n}? The patient has had fever and severe headache for several days."
        for n in range(40)
    ]
    rows = "".join(f"{text},A\n" for text in texts)
    (table.parent / "data.csv").write_text(f"question,correct_answer\n{rows}", encoding="utf-8")

    def say(prompt: str) -> str:
        number = int(re.findall(r"Question (\d+)", prompt, re.IGNORECASE)[0])
        return "A" if number % 4 or texts[number] in prompt else "B"

    families = ["typos", "worried", "units"]
    with ScriptedEndpoint(say) as endpoint:
        params = {"extra": {"benchmark": str(table), "perturb": families}}
        outcome = run_program("custom", endpoint.url, params=params)
        prompts = [request["messages"][0]["content"] for request in endpoint.requests]
    assert outcome.returncode == 0, outcome.stderr
    assert len(set(prompts)) == 40 * 3, "nothing is in units that could be others"
    assert len(prompts) == 40 * 4, "each was right, and is asked once more in the same words"
    found = asked_again(outcome)["in_other_words"]
    assert set(found) == {"typos", "worried"}
    assert outcome.scores()["exact_match"] == 1.0
    # the words of a question that typing errors spared are among what a worried sentence stands before
    lost = found["typos"]["change"]
    assert (lost["right_to_wrong"]["value"], lost["difference"], lost["questions"]) == (
        0.25,
        -0.25,
        40,
    )
    assert (lost["same_words"]["value"], lost["same_words"]["count"]) == (0.0, 40)
    assert found["typos"]["lost"] == [f"id{n}" for n in range(0, 40, 4)]
    assert lost["ci_low"] < -0.25 < lost["ci_high"] < 0
    assert found["typos"]["p_holm"] < 0.05
    assert found["worried"]["change"]["difference"] == 0.0, (
        "it adds a sentence, and leaves the question's own"
    )
    notes = " ".join(outcome.document()["validity"]["notes"])
    says(notes, "nobody has checked", "other words")
    page = (outcome.output_dir / "report.html").read_text("utf-8")
    says(page, "lost with typos", "(10)")


@pytest.mark.medical_data
@pytest.mark.parametrize("task", more_data("medec", "pubmed_qa", "head_qa"))
def test_known_shares_are_found_on_real_questions(
    task: str,
    run_program: Run,
    data_environment: dict[str, str],
    place_data: Callable[[Path, str], None],
    tmp_path: Path,
) -> None:
    """A quarter of the answers flips between askings, a fifth after a doubt, by the question's text."""
    place_data(tmp_path / "out" / "helm", task)
    first, other = ("CORRECT", "1") if task == "medec" else ("A", "B")

    class Fickle(Wavering):
        def reply(
            self, path: str, headers: dict[str, str], body: dict[str, Any]
        ) -> tuple[int, dict[str, Any]]:
            question, last = (body["messages"][at]["content"] for at in (0, -1))
            draw = int(hashlib.sha256(question.encode()).hexdigest(), 16)
            said = other if last in DOUBTS and draw % 5 == 0 else first
            if len(body["messages"]) == 1 and question != "ping":
                self.seen[question] += 1
                said = other if self.seen[question] == 2 and draw % 4 == 0 else first
            self.answer = lambda _prompt: "80" if last == CONFIDENCE_QUESTION else said
            return super(Wavering, self).reply(path, headers, body)

    with Fickle() as endpoint:
        params = {
            "limit_samples": REAL,
            "parallelism": 1,
            "extra": {"repeats": 2, "pushback": 1, "confidence": "stated"},
        }
        outcome = run_program(task, endpoint.url, params=params, env=data_environment)
        draws = [
            int(hashlib.sha256(question.encode()).hexdigest(), 16) for question in endpoint.seen
        ]
    assert outcome.returncode == 0, outcome.stderr
    assert len(draws) == REAL
    found = asked_again(outcome)
    same = found["repeats"]["same_each_time"]
    told = sum(draw % 5 == 0 for draw in draws)
    assert same["value"] == pytest.approx(sum(draw % 4 != 0 for draw in draws) / REAL)
    assert same["ci_low"] < 0.75 < same["ci_high"]
    assert found["pushback"]["changed_at"] == {"1": told, "never": REAL - told}
    assert (found["confidence"]["questions"], found["confidence"]["mean"]["value"]) == (REAL, 0.8)


def test_a_confidence_that_did_not_come_is_asked_for_again(table: Path, run_program: Run) -> None:
    class Silent(Wavering):
        is_silent = True

        def reply(
            self, path: str, headers: dict[str, str], body: dict[str, Any]
        ) -> tuple[int, dict[str, Any]]:
            asked = body["messages"]
            silent = (
                self.is_silent
                and asked[-1]["content"] == CONFIDENCE_QUESTION
                and "Question 7?" in asked[0]["content"]
            )
            self.status = 400 if silent else None
            return super().reply(path, headers, body)

    with Silent() as endpoint:
        params = {"parallelism": 1, "extra": {"benchmark": str(table), "confidence": "stated"}}
        lacking = run_program("custom", endpoint.url, params=params)
        assert (lacking.returncode, asked_again(lacking)["confidence"]["questions"]) == (1, 27 - 1)
        assert lacking.document()["validity"]["instances"]["failed"] == 1
        before = len(endpoint.requests)
        endpoint.is_silent = False
        whole = run_program("custom", endpoint.url, params=params)
        assert len(endpoint.requests) == before + 1
    assert (whole.returncode, asked_again(whole)["confidence"]["questions"]) == (0, 27)
    assert whole.document()["validity"]["instances"]["requested"] == 2 * QUESTIONS


def test_answer_and_confidence_may_come_in_one(table: Path, run_program: Run) -> None:
    def say(prompt: str) -> str:
        number = int(re.findall(r"Question (\d+)\?", prompt)[-1])
        return ("A" if number % 10 < 7 else "B") + ("\nConfidence: 90" if number % 10 != 5 else "")

    with ScriptedEndpoint(say) as endpoint:
        params = {"extra": {"benchmark": str(table), "confidence": "stated_only"}}
        outcome = run_program("custom", endpoint.url, params=params)
        prompts = [request["messages"][0]["content"] for request in endpoint.requests]
    assert outcome.returncode == 0, outcome.stderr
    assert len(prompts) == QUESTIONS
    assert all(ANSWER_WITH_CONFIDENCE in prompt for prompt in prompts)
    confidence = asked_again(outcome)["confidence"]
    assert (confidence["questions"], confidence["unread"], confidence["mean"]["value"]) == (
        27,
        3,
        0.9,
    )
    assert outcome.scores()["exact_match"] == 0.7, "what is scored is the answer alone"
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    assert {line["completion"] for line in lines} == {"A", "B"}
    says(" ".join(outcome.document()["validity"]["notes"]), "not the benchmark's own")
