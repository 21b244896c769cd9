"""What a benchmark asks and what is right, read from the instances that helm-run wrote down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATE_FILE = "scenario_state.json"


@dataclass(frozen=True)
class Question:
    """One instance as the endpoint sees it."""

    prompt: str
    gold: str
    """The right answer: a letter where options are given, else the first right reference; "" where none is."""
    labels: tuple[str, ...]
    """Letters of the options; empty where there are none."""
    test: bool = True
    """Whether it is of the split `test`."""

    @property
    def is_multiple_choice(self) -> bool:
        return bool(self.labels)


def question_of(state: Mapping[str, Any]) -> Question:
    """Of an entry of `request_states` in scenario_state.json."""
    mapping: dict[str, str] = state.get("output_mapping") or {}
    prompt, instance = state["request"]["prompt"], state["instance"]
    return Question(prompt, gold_of(state), tuple(mapping), instance.get("split", "test") == "test")


def gold_of(state: Mapping[str, Any]) -> str:
    """The right answer to a request, in the form that the benchmark asks for."""
    instance: dict[str, Any] = state["instance"]
    right: list[str] = [
        reference["output"]["text"]
        for reference in instance.get("references", [])
        if "correct" in reference.get("tags", [])
    ]
    if (instance.get("extra_data") or {}).get("is_impossible"):
        return ""  # EHRSQL: no query is the right answer
    mapping: dict[str, str] | None = state.get("output_mapping")
    if mapping:
        return next(letter for letter, text in mapping.items() if text in right)
    return right[0] if right else ""


def questions_in(file: Path) -> list[Question]:
    """All of a run, in its order; equal prompts as often as they are asked."""
    return [question_of(state) for state in json.loads(file.read_text("utf-8"))["request_states"]]


class KnownQuestions:
    """Questions by their prompt, learnt while helm-run works: it writes a run's instances down before the next run.

    So the first of a task's runs, whose answers need no knowledge, teaches the answers of the others.
    """

    def __init__(self, files: Callable[[], Sequence[Path]]) -> None:
        """
        Args:
            files: those of the runs that are written by now.
        """
        self._files = files
        self._read: set[Path] = set()
        self._by_prompt: dict[str, Question] = {}
        self._lock = threading.Lock()

    def of(self, prompt: str) -> Question:
        """
        Raises:
            KeyError: no run has asked it.
        """
        with self._lock:
            if prompt not in self._by_prompt:
                self._learn()
            return self._by_prompt[prompt]

    def _learn(self) -> None:
        for file in self._files():
            if file not in self._read:
                self._read.add(file)
                for question in questions_in(file):
                    self._by_prompt.setdefault(question.prompt, question)
