"""Typical sizes of requests stand for tasks that there are, and say where they are from."""

from __future__ import annotations

from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.typical_tokens import typical_requests


def test_each_typical_request_is_of_a_task_and_says_its_source() -> None:
    typical = typical_requests()
    names = {task.name for task in load_framework().evaluations}
    assert set(typical) <= names
    assert len(typical) >= 31
    for name, request in typical.items():
        assert request.prompt_bytes > 0, name
        assert request.answer_tokens > 0, name
        assert request.source.split()[0] in ("measured", "made"), name
        assert request.judge_requests >= 0, name
        assert request.media_tokens >= 0, name
    assert typical["healthbench"].judge_requests > 1
