from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.config.suite import Cell
from eval_factory.core.errors import EndpointRefusedError
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.workflows.suite.endpoint_pauses import EndpointProbe, ProbeAnswer
from eval_factory.workflows.suite.planned_cells import PlannedCell
from unit.builders import plan

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
    cells = [cell(0), cell(1, **{"config.type": "medec"}), jury, cell(3, **{**JURY, "config.params.parallelism": 9})]
    asked.probe.all_of(cells)
    judges = sorted(judge.model_id for judge in jury.plan.judges)
    assert sorted(asked.models) == sorted(["org/model", *judges])
    assert asked.probe.roles_that_answered(cells[0]) == {"model"}
    assert asked.probe.roles_that_answered(jury) == {"model", *(judge.role for judge in jury.plan.judges)}
    assert all(asked.probe.problem_of(one) is None for one in cells)


def test_the_embedded_endpoint_is_there_without_a_question() -> None:
    asked, demo = Asked(), cell(0, "demo://baseline")
    asked.probe.all_of([demo])
    assert asked.models == []
    assert asked.probe.roles_that_answered(demo) == {"model"}


def test_one_that_is_slow_is_no_problem_and_one_that_refuses_is() -> None:
    slow = Asked({"org/model": "it is slow"})
    slow.probe.all_of([cell(0)])
    assert slow.said == ["warning: it is slow"]
    assert slow.probe.problem_of(cell(0)) is None
    assert slow.probe.roles_that_answered(cell(0)) == frozenset()
    error = EndpointRefusedError("the key")
    refused = Asked({"org/model": error})
    refused.probe.all_of([cell(0)])
    assert refused.probe.problem_of(cell(0)) == ("model", error)
    assert refused.said == []


def test_asked_again_it_is_asked_anew() -> None:
    asked = Asked()
    assert asked.probe.model_of(cell(0)) == ProbeAnswer(answered=True)
    assert asked.probe.model_of(cell(0)) == ProbeAnswer(answered=True)
    assert asked.models == ["org/model"] * 2
    assert asked.probe.roles_that_answered(cell(0)) == frozenset(), "what it said later is not what it said first"
