"""The answers of a helm-run as they come, a line each, of the journal that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.nouns import AttemptState
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import openai_api, response_cache

MAX_TEXT, MAX_LINE = 80, 240  # characters of an answer, and of all that is shown of it
AT_ONCE = 200  # so many answers are held in memory


class AnswerTail:
    """What was answered, or failed, in a run since the last look: prompts and answers may be a patient's."""

    def __init__(self, cache_db: Path, run_id: str, redactor: Redactor, *, texts: bool) -> None:
        """`texts`: with the beginning of each answer."""
        self._path, self._run_id, self._redactor, self._texts = cache_db, run_id, redactor, texts
        self._last = self._ended = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """As events of the run, of the time at which each attempt ended."""
        while rows := response_cache.attempts_after(self._path, self._last, self._run_id, AT_ONCE):
            self._last = rows[-1]["id"]
            for row in rows:
                yield {"event": "answer", "time": row["started"] + row["latency_s"], "line": self._line(row)}

    def _line(self, row: Mapping[str, Any]) -> str:
        """`#12 model: 1.3 s, 210 + 5 tokens, stop: "B"`, or `gpt: retried after 0.2 s: HTTP 503: busy`."""
        seconds = f"{row['latency_s']:.1f} s"
        self._ended += row["outcome"] in (AttemptState.ANSWERED, AttemptState.FAILED)
        if row["outcome"] != AttemptState.ANSWERED:
            number = f"#{self._ended} " if row["outcome"] == AttemptState.FAILED else ""
            return self._shown(f"{number}{row['role']}: {row['outcome']} after {seconds}: {row['error']}")
        counts = [row["prompt_tokens"], row["completion_tokens"]]
        tokens = " + ".join("?" if count is None else str(count) for count in counts)
        reason, text = _end_of(row["response"])
        beginning = f': "{one_line(self._redactor.text(text), MAX_TEXT)}"' if self._texts else ""
        return self._shown(f"#{self._ended} {row['role']}: {seconds}, {tokens} tokens, {reason}{beginning}")

    def _shown(self, line: str) -> str:
        return f"  {one_line(self._redactor.text(line), MAX_LINE)}"


def _end_of(response: str | None) -> tuple[str, str]:
    """Why an answer ended, and its text without what the model thought by known markers."""
    try:
        body = openai_api.parse_cached(response or "")
        kind = "completions" if "text" in body["choices"][0] else openai_api.CHAT
        choice = openai_api.read_answer(body, kind)[0]
    except (openai_api.UnusableAnswer, ValueError, LookupError, TypeError, RecursionError):
        return "not read", ""
    return str(choice.finish_reason), openai_api.split_thinking(choice.text, "<think>", "</think>").answer
