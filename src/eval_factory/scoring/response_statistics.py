"""The journal of attempts -> figures of the evaluated model's responses, for `eval_factory_metrics.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.core.response_figures import Figures, RequestSpan, ResponseStatistics
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint import response_cache
from eval_factory.scoring.usage import ANSWERED, FAILED, RETRIED


@dataclass
class _Seen:
    successful: int = 0
    prompt: list[int] = field(default_factory=list)
    completion: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    spans: dict[str, RequestSpan] = field(default_factory=dict)

    def add(self, attempt: Mapping[str, Any]) -> None:
        started, ended = attempt["started"], attempt["started"] + attempt["latency_s"]
        known = self.spans.get(attempt["run_id"], RequestSpan(started, ended))
        span = RequestSpan(min(known.first_request, started), max(known.last_response, ended))
        self.spans[attempt["run_id"]] = span
        if attempt["status"] is None:  # nothing came back
            return
        self.codes[attempt["status"]] += 1
        self.latencies.append(attempt["latency_s"])
        if attempt["outcome"] == ANSWERED:
            self._add_answer(attempt["prompt_tokens"], attempt["completion_tokens"])

    def _add_answer(self, prompt: int | None, completion: int | None) -> None:
        self.successful += 1
        if prompt is not None:
            self.prompt.append(prompt)
        if completion is not None:
            self.completion.append(completion)
        if prompt is not None and completion is not None:
            self.total.append(prompt + completion)


def response_statistics(cache_db: Path) -> ResponseStatistics:
    """Of all runs in the folder; judges are no part of it, as they are none of what EvalFactory counts."""
    seen = _Seen()
    for attempt in response_cache.read_attempts(cache_db):
        if attempt["role"] == MODEL_ROLE and attempt["outcome"] in (ANSWERED, RETRIED, FAILED):
            seen.add(attempt)
    return ResponseStatistics(
        responses=seen.codes.total(),
        successful=seen.successful,
        prompt_tokens=_figures(seen.prompt),
        completion_tokens=_figures(seen.completion),
        total_tokens=_figures(seen.total),
        latency_s=_figures(seen.latencies),
        status_codes=dict(sorted(seen.codes.items())),
        finish_reasons=response_cache.finish_reasons(cache_db, MODEL_ROLE),
        runs=tuple(sorted(seen.spans.values(), key=lambda span: span.first_request)),
    )


def _figures(values: Iterable[float]) -> Figures:
    known = list(values)
    return Figures(sum(known) / len(known), max(known)) if known else Figures(None, None)
