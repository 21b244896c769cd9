"""The clock is the test's, and so are the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from builders import plan
from eval_factory.config.suite import Cell
from eval_factory.core.errors import EndpointRefusedError, EndpointUnreachableError
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.workflows.suite.endpoint_pauses import (
    EndpointPauses,
    EndpointProbe,
    GroupNews,
    News,
    ProbeAnswer,
)
from eval_factory.workflows.suite.planned_cells import PlannedCell

GONE = EndpointUnreachableError("nobody")
REFUSED = EndpointRefusedError("key")
SILENT = "slow"
THERE = None


class AtOnce:
    """Asks when it is told to, in the same thread."""

    def submit(self, ask: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(ask(*arguments))
        return future

    def shutdown(self, **_: object) -> None:
        pass


def planned(group: str) -> PlannedCell:
    return PlannedCell(0, cast(Any, None), cast(Any, None), group)


class Looked:
    """Pauses at the time that the test says."""

    def __init__(self, answers: Iterator[ProbeAnswer], max_outage_s: float = 100.0) -> None:
        self.now = 0.0
        self.asked = 0
        self._answers = answers
        pool = cast(ThreadPoolExecutor, AtOnce())
        self.pauses = EndpointPauses(self._ask, max_outage_s, lambda: self.now, _pool=pool)

    def _ask(self, _planned: PlannedCell) -> ProbeAnswer:
        self.asked += 1
        return next(self._answers)

    def news_at(self, now: float) -> list[GroupNews]:
        """A look asks, the next one hears the answer."""
        self.now = now
        return self.pauses.take_news() + self.pauses.take_news()


@pytest.mark.parametrize("answer", [THERE, REFUSED], ids=["there", "refuses"])
def test_one_that_answers_at_once_was_not_gone(answer: ProbeAnswer) -> None:
    looked = Looked(iter([answer]))
    looked.pauses.pause(planned("g"), "it failed")
    assert looked.pauses.paused_groups.keys() == {"g"}
    assert looked.news_at(0.0) == [("g", News.NEVER_GONE, "it failed")]
    assert not looked.pauses.paused_groups
    assert looked.news_at(9.0) == []


@pytest.mark.parametrize("answer", [GONE, SILENT], ids=["unreachable", "silent"])
def test_one_that_does_not_is_asked_more_and_more_seldom(answer: ProbeAnswer) -> None:
    looked = Looked(iter([answer] * 9 + [THERE]), max_outage_s=10_000.0)
    looked.pauses.pause(planned("g"), "it failed")
    for count, time in enumerate([0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0, 121.0]):
        assert looked.news_at(time - 0.01) == []
        assert looked.asked == count
        assert looked.news_at(time) == ([("g", News.GONE, "it failed")] if count == 0 else [])
        assert looked.asked == count + 1
    assert looked.news_at(151.0) == [("g", News.BACK, "it failed")]
    assert not looked.pauses.paused_groups


def test_it_is_given_up_after_so_long() -> None:
    looked = Looked(iter([GONE] * 20), max_outage_s=5.0)
    looked.pauses.pause(planned("g"), "x")
    assert looked.news_at(0.0) == [("g", News.GONE, "x")]
    assert looked.news_at(4.9) == []
    assert looked.news_at(5.0) == [("g", News.GIVEN_UP, "x")]
    assert not looked.pauses.paused_groups


JURY: dict[str, Any] = {"config.type": "aci_bench"}


def cell(number: int, url: str = "https://host.example/v1", **flags: Any) -> PlannedCell:
    made = Cell("t", "e", {}, Path("/x"))
    return PlannedCell(number, made, plan({"target.api_endpoint.url": url, **flags}), "g")


class Asked:
    """Answers by the model's id; every question is kept."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.models: list[str] = []
        self.said: list[str] = []
        self._answers = answers or {}
        env = {"OPENAI_API_KEY": "sk-012345678901234567890"}
        self.probe = EndpointProbe(env, Redactor(), self.said.append, self._ask)

    def _ask(self, endpoint: EndpointSettings, *_: Any) -> str | None:
        self.models.append(endpoint.model_id)
        answer = self._answers.get(endpoint.model_id)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_each_endpoint_is_asked_once_for_all_cells() -> None:
    asked = Asked()
    jury = cell(2, **JURY)
    cells = [
        cell(0),
        cell(1, **{"config.type": "medec"}),
        jury,
        cell(3, **{**JURY, "config.params.parallelism": 9}),
    ]
    demo = cell(4, "demo://baseline")  # is there without a question
    asked.probe.probe_all([*cells, demo])
    judges = sorted(judge.model_id for judge in jury.plan.judges)
    assert sorted(asked.models) == sorted(["org/model", *judges])
    assert (
        asked.probe.roles_that_answered(cells[0])
        == asked.probe.roles_that_answered(demo)
        == {"model"}
    )
    assert asked.probe.roles_that_answered(jury) == {
        "model",
        *(judge.role for judge in jury.plan.judges),
    }
    assert all(asked.probe.problem_of(one) is None for one in cells)


def test_one_that_is_slow_is_no_problem_and_one_that_refuses_is() -> None:
    slow = Asked({"org/model": "it is slow"})
    slow.probe.probe_all([cell(0)])
    assert slow.said == ["warning: it is slow"]
    assert slow.probe.problem_of(cell(0)) is None
    assert slow.probe.roles_that_answered(cell(0)) == frozenset()
    error = EndpointRefusedError("the key")
    refused = Asked({"org/model": error})
    refused.probe.probe_all([cell(0)])
    assert refused.probe.problem_of(cell(0)) == ("model", error)
    assert refused.said == []


def test_asked_again_it_is_asked_anew() -> None:
    asked = Asked()
    assert asked.probe.probe_model(cell(0)) is None
    assert asked.probe.probe_model(cell(0)) is None
    assert asked.models == ["org/model"] * 2
    assert asked.probe.roles_that_answered(cell(0)) == frozenset(), (
        "what it said later is not what it said first"
    )
