"""How many requests the judges of a run will get: each judge one about an answer, or one about each of its criteria."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState

from eval_factory.helm import names
from eval_factory.helm_plugin.rubric.criterion_judge import is_answered, questions_of

_JUDGES = ("judges", "annotator_models")
"""What annotators call them: that of a rubric, and HELM's juries."""


def requests_to_judges(state: ScenarioState) -> int:
    """Of all judges together, about the answers that came; questions that are asked again are not counted."""
    answered = [one for one in state.request_states if is_answered(one)]
    return sum(_judges_of(spec) * _each(spec, answered) for spec in state.annotator_specs or ())


def requests_to_each(state: ScenarioState) -> int:
    """Of a rubric: how many one judge will get if all answers come; 0 where there is no rubric."""
    return sum(_each(spec, state.request_states) for spec in state.annotator_specs or () if _is_rubric(spec))


def _each(spec: Any, states: Sequence[RequestState]) -> int:
    if not _is_rubric(spec):
        return len(states)
    at_once = spec.args["criteria_per_request"]
    return sum(1 for number, one in enumerate(states) for _ in questions_of(number, one, at_once))


def _is_rubric(spec: Any) -> bool:
    return bool(spec.class_name == names.RUBRIC_ANNOTATOR_CLASS)


def _judges_of(spec: Any) -> int:
    """An annotator that names no judges asks once, if it asks at all."""
    return next((len(spec.args[name]) for name in _JUDGES if spec.args.get(name)), 1)
