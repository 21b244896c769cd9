"""Servers of one model for tests: each knows what it was asked and answered, can die, and come back at the same port."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scripted_endpoint import PROBE, ScriptedEndpoint


def model_answer(prompt: str) -> str:
    return "AB"[len(prompt) % 2]


class ModelServer(ScriptedEndpoint):
    """Answers after a while."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(model_answer)
        self.delay_s = delay_s
        self.dead = False
        self.dies_after: int | None = None
        """So many answers."""
        self.lost: list[str] = []
        """Prompts that it was at work on when it died."""
        self.answered: list[str] = []
        self.keys: set[str | None] = set()
        self.refused = 0
        self.now = self.most = 0
        self.model: str | None = None
        """What its answers call it."""
        self._count = threading.Lock()

    @property
    def prompts(self) -> list[str]:
        return [_prompt(body) for body in self.requests]

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        prompt = _prompt(body)
        if self.dead:
            raise ConnectionAbortedError
        with self._count:
            self.keys.add(headers.get("Authorization"))
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            status, answer = super().reply(path, headers, body)
            time.sleep(0.0 if prompt == PROBE else self.delay_s)
            with self._count:
                if self.dies_after is not None and len(self.answered) >= self.dies_after:
                    self.die()
                if self.dead:
                    self.lost.append(prompt)
                    raise ConnectionAbortedError
                if status != 200:
                    self.refused += 1
                if status == 200 and prompt != PROBE:
                    self.answered.append(prompt)
            return status, {**answer, **({"model": self.model} if self.model else {})}
        finally:
            with self._count:
                self.now -= 1

    def die(self) -> None:
        """No connection is taken any more, and none that is open is answered."""
        if not self.dead:
            self.dead = True
            self._dying = threading.Thread(target=super().__exit__)
            self._dying.start()

    def __exit__(self, *_: object) -> None:
        if not self.dead:
            super().__exit__()

    def come_back(self) -> None:
        self._dying.join()
        self.dead = False
        self.dies_after = None
        self.listen_again()


def _prompt(body: Mapping[str, Any]) -> str:
    prompt: str = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    return prompt


def write_questions(folder: Path, number: int, name: str = "made_up") -> Path:
    """A custom benchmark of so many questions."""
    folder.mkdir(parents=True)
    (folder / "prompt.txt").write_text("{question}\nA. {a}\nB. {b}\nAnswer:", encoding="utf-8")
    with (folder / "data.csv").open("w", encoding="utf-8", newline="") as file:
        rows = (
            [f"{name}: question {row}", f"one {row}", "two", "AB"[row % 2]] for row in range(number)
        )
        csv.writer(file).writerows([["question", "a", "b", "correct_answer"], *rows])
    document = {
        "name": name,
        "description": "Made up",
        "prompt_file": "prompt.txt",
        "dataset_file": "data.csv",
        "max_tokens": 5,
        "metrics": [{"name": "exact_match"}],
    }
    (folder / "benchmark.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder / "benchmark.yaml"
