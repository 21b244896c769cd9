"""Defines the known answers to the questions of benchmarks, and serves them as an endpoint.

The questions, with their right answers, are read from the instances that helm-run wrote into its
run folders. The kinds of answers are right answers, right answers in another form, and answers that
do not depend on the question or on what is right.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from eval_factory.demo.server import DemoServer
from eval_factory.tasks.framework import Task

STATE_FILE = "scenario_state.json"


@dataclass(frozen=True)
class Question:
    """A question of one instance."""

    prompt: str
    gold: str
    """The right answer: a letter if the question has options, else the first right reference. It is
    empty if there is no right answer.
    """
    labels: tuple[str, ...]  # the letters of the options; empty if there are none
    test: bool = True  # True if the instance is in the split `test`


def question_of(state: Mapping[str, Any]) -> Question:
    """Return the question of an entry of `request_states` in scenario_state.json."""
    mapping: dict[str, str] = state.get("output_mapping") or {}
    prompt = state["request"]["prompt"]
    instance = state["instance"]
    return Question(prompt, gold_of(state), tuple(mapping), instance.get("split", "test") == "test")


def gold_of(state: Mapping[str, Any]) -> str:
    """Return the right answer to a request, in the form that the benchmark asks for."""
    instance: dict[str, Any] = state["instance"]
    right: list[str] = [
        reference["output"]["text"]
        for reference in instance.get("references", [])
        if "correct" in reference.get("tags", [])
    ]
    if (instance.get("extra_data") or {}).get("is_impossible"):
        return ""  # ehr_sql: The right answer to an impossible question is an empty text.
    mapping: dict[str, str] | None = state.get("output_mapping")
    if mapping:
        return next(letter for letter, text in mapping.items() if text in right)
    return right[0] if right else ""


def questions_in(file: Path) -> list[Question]:
    """Return all questions of a run in its order; a question asked twice is listed twice."""
    return [question_of(state) for state in json.loads(file.read_text("utf-8"))["request_states"]]


class KnownQuestions:
    """The questions by their prompts.

    helm-run writes the instances of a run into a file before the next run begins. The first run of
    a task needs no questions, because its answers do not depend on them. This class reads the
    questions from the file of the first run, for the later runs of the task.
    """

    def __init__(self, files: Callable[[], Sequence[Path]]) -> None:
        """Make an empty store.

        Args:
            files: returns the files with the instances of all runs that have ended so far.
        """
        self._files = files
        self._read: set[Path] = set()
        self._by_prompt: dict[str, Question] = {}
        self._lock = threading.Lock()

    def of(self, prompt: str) -> Question:
        """Return the question of a prompt.

        Raises:
            KeyError: no run has asked the question.
        """
        with self._lock:
            if prompt not in self._by_prompt:
                self._read_new_files()
            return self._by_prompt[prompt]

    def _read_new_files(self) -> None:
        for file in self._files():
            if file not in self._read:
                self._read.add(file)
                for question in questions_in(file):
                    self._by_prompt.setdefault(question.prompt, question)


GOLD = "gold"
EMPTY = "empty"
REFUSAL = "refusal"
CONSTANT = "constant"
RANDOM = "random"
UNPARSED = "unparsed"
KINDS = (EMPTY, REFUSAL, CONSTANT, RANDOM, GOLD, UNPARSED)
"""The kinds of answers. `empty` is first, because its answers do not depend on the questions: the
other kinds need the questions that the first run writes (`KnownQuestions`).
"""
FLOORS = (EMPTY, REFUSAL, CONSTANT, RANDOM)  # the kinds that need no model
KINDS_OF_OPEN_TEXT = (EMPTY, REFUSAL, RANDOM, GOLD)
"""The kinds of answers to questions that ask for free text. No constant fits such questions, and
none of their answers is unparsed.
"""

SEED = 1
REFUSAL_TEXT = "I'm sorry, but I can't help with that."
UNPARSED_OPTION = "The answer is **{}**."
UNPARSED_TEXT = "The answer is as follows: {}"
NO_QUERY = "No query answers this question."
CONSTANTS = {"value": "0", "sentence": "CORRECT", "sql": "SELECT 1"}
"""A dict from the form of a task's answers to the constant answer. The constant answer to questions
with options is the first option.
"""
ADVICE = "Plan {}: rest, and see your physician in a week."
SENTENCE_IDS = re.compile(r"^(\d+) ", re.MULTILINE)
QUERIES = (
    "SELECT 1",
    "SELECT count(*) FROM patient",
    "SELECT gender FROM patient WHERE uniquepid = '1'",
    "",
)


def kinds_of(task: Task, asked: Collection[str] = KINDS) -> tuple[str, ...]:
    """Return those of the asked kinds that fit a task; `empty` is always among them."""
    fitting = KINDS_OF_OPEN_TEXT if task.helm.judges else KINDS
    return tuple(kind for kind in fitting if kind in asked or kind == EMPTY)


def answer_of(kind: str, task: Task, question: Question) -> str:
    """Return the answer of a kind to a question of a task."""
    rules: dict[str, Callable[[], str]] = {
        EMPTY: lambda: "",
        REFUSAL: lambda: REFUSAL_TEXT,
        GOLD: lambda: question.gold,
        CONSTANT: lambda: _constant(task, question),
        RANDOM: lambda: _random(task, question),
        UNPARSED: lambda: _unparsed(task, question),
    }
    return rules[kind]()


def drawn(text: str, choices: int) -> int:
    """Return a number from 0 to `choices - 1` that depends only on `SEED` and on the text."""
    return int(hashlib.sha256(f"{SEED}:{text}".encode()).hexdigest(), 16) % choices


def _constant(task: Task, question: Question) -> str:
    if task.helm.answer_form is not None:
        return CONSTANTS[task.helm.answer_form]
    return str((task.helm.answer_labels or question.labels)[0])


def _random(task: Task, question: Question) -> str:
    labels = task.helm.answer_labels or question.labels
    if labels:
        return str(labels[drawn(question.prompt, len(labels))])
    if task.helm.answer_form == "sql":
        return QUERIES[drawn(question.prompt, len(QUERIES))]
    if task.helm.answer_form == "sentence":
        offered: list[str] = ["CORRECT", *SENTENCE_IDS.findall(question.prompt)]
        return offered[drawn(question.prompt, len(offered))]
    if task.helm.answer_form == "value":
        return str(drawn(question.prompt, 100))
    return ADVICE.format(drawn(question.prompt, 100_000))


def _unparsed(task: Task, question: Question) -> str:
    if question.labels or task.helm.answer_labels:
        return UNPARSED_OPTION.format(question.gold)
    return UNPARSED_TEXT.format(question.gold) if question.gold else NO_QUERY


JUDGES = ("judge-one", "judge-two", "judge-three")
LOWEST = 1  # the lowest mark of a judge
HIGHEST = 5  # the highest mark of a judge
_ADVICE = re.compile(re.escape(ADVICE).replace(r"\{\}", r"(\d+)"))


def judgement(judge: str, prompt: str) -> str:
    """Return a judge's output, with a mark for each criterion.

    A refusal gets the lowest mark, random advice (`ADVICE`) a random mark, and every other answer
    the highest mark. The criteria are read from the example of an output at the end of the prompt.
    """
    start_of_form = prompt.index("Output Format:")
    example = prompt[prompt.index("{", start_of_form) :]
    criteria, _ = json.JSONDecoder().raw_decode(example)
    advice = _ADVICE.search(prompt)
    marks = {}
    for criterion in criteria:
        mark = LOWEST if REFUSAL_TEXT in prompt else HIGHEST
        if advice:
            mark = LOWEST + drawn(f"{judge}:{criterion}:{advice[1]}", HIGHEST)
        marks[criterion] = {"score": mark, "explanation": "as scripted"}
    return json.dumps(marks)


class KindEndpoint(DemoServer):
    """An endpoint that gives answers of all kinds. It serves within its context.

    A model's id is `<task>/<kind>`, or a judge's name.
    """

    def __init__(self, answer: Callable[[str, str, str], str]) -> None:
        """Make an endpoint.

        Args:
            answer: returns the answer; its arguments are the task, the kind and the prompt.
        """
        self._answer = answer
        super().__init__(_handler(self))

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a chat completion for the body of a request.

        Answers are never cut, so that both programs get the same answers.
        """
        prompt = text_of(body["messages"][-1]["content"])
        model = body["model"]
        if model in JUDGES:
            text = judgement(model, prompt)
        else:
            task, _, kind = model.partition("/")
            text = self._answer(task, kind, prompt)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


def text_of(content: str | list[dict[str, Any]]) -> str:
    """Return the text of a message, without its pictures."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _handler(endpoint: KindEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = 200
            answer = {}
            try:
                answer = endpoint.reply(body)
            except Exception:
                traceback.print_exc()  # a mistake of this script, so the run must fail
                status = 501
                answer = {"error": {"message": "the script has no answer"}}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
