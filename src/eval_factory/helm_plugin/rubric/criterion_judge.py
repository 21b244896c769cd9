"""Judging by criterion: each criterion of each answer is a question of its own to each judge.

A benchmark asks thousands of them. All of a run's go to the judges side by side, as many at once as each judge may be
asked, whatever answer they are about; each goes through our client: kept, retried, limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.annotation.annotator import Annotator
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.clients.auto_client import AutoClient
from helm.common.request import Request, RequestResult

from eval_factory.core.foreign_text import one_line
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.openai_api import FILTERED_MESSAGE
from eval_factory.helm.criterion_output import ANNOTATION, ERROR, annotation_of, parse_decisions
from eval_factory.helm.criterion_prompt import criterion_prompt, template
from eval_factory.helm.judge_output import UnusableJudgeOutput
from eval_factory.helm_plugin import judge_prompts
from eval_factory.helm_plugin.session import current_session
from eval_factory.tasks.rubric_case import RUBRICS, Criterion

MOST_TOKENS = 4096
"""What HELM grants a judge."""

TRIES = 2
ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)

Said = dict[str, Any]
"""A decision with its explanation, or `error`."""


@dataclass(frozen=True)
class _Judge:
    name: str
    deployment: str
    role: str
    parallelism: int


@dataclass(frozen=True)
class _Question:
    """Some criteria of one answer: those that are asked in one request."""

    number: int
    """Of the answer among all."""
    first: int
    """Of the criteria among the answer's."""
    state: RequestState
    criteria: tuple[Criterion, ...]


class CriterionAnnotator(Annotator):  # type: ignore[misc]
    """What the judges say of each criterion of each answer."""

    name = ANNOTATION
    use_global_metric = True
    """Makes HELM hand over all answers at once."""

    def __init__(self, auto_client: AutoClient, judges: Mapping[str, str], criteria_per_request: int = 1) -> None:
        """
        Args:
            judges: name -> deployment.
        """
        self._ask: Callable[[Request], RequestResult] = auto_client.make_request
        self._judges = [_judge(name, deployment) for name, deployment in judges.items()]
        self._at_once = criteria_per_request

    def annotate(self, request_state: RequestState) -> dict[str, Any]:
        """Of one answer; HELM itself asks for all."""
        found: dict[str, Any] = self.annotate_all([request_state])[0][ANNOTATION]
        return found

    def annotate_all(self, request_states: list[RequestState]) -> list[dict[str, Any]]:
        """Of each answer its annotations. An answer that did not come is not judged.

        Raises:
            Exception: a limit of the run is reached, so that nothing more is asked.
        """
        for size in {1, self._at_once}:
            judge_prompts.note(ANNOTATION, template(alone=size == 1))
        said: list[list[dict[str, Said]]] = [[{} for _ in criteria_of(state)] for state in request_states]
        questions = [
            question
            for number, state in enumerate(request_states)
            if is_answered(state)
            for question in questions_of(number, state, self._at_once)
        ]
        self._judge_all(questions, said)
        return [{ANNOTATION: annotation_of(of_answer)} for of_answer in said]

    def _judge_all(self, questions: Sequence[_Question], said: list[list[dict[str, Said]]]) -> None:
        for judge in self._judges:
            current_session().expect(judge.role, len(questions))

        def ask(judge: _Judge) -> None:
            map_at_once(lambda question: self._judge_one(judge, question, said), questions, judge.parallelism)

        map_at_once(ask, self._judges, len(self._judges))

    def _judge_one(self, judge: _Judge, question: _Question, said: list[list[dict[str, Said]]]) -> None:
        for offset, one in enumerate(said_by(judge, question, self._ask)):
            said[question.number][question.first + offset][judge.name] = one


def _judge(name: str, deployment: str) -> _Judge:
    args = get_model_deployment(deployment).client_spec.args
    return _Judge(name, deployment, args["role"], args["parallelism"])


def criteria_of(state: RequestState) -> list[Criterion]:
    return [Criterion.from_dict(one) for one in (state.instance.extra_data or {})[RUBRICS]]


def is_answered(state: RequestState) -> bool:
    """What a content filter took away is an answer with nothing in it."""
    result = state.result
    return result is not None and (result.success or result.error == FILTERED_MESSAGE)


def questions_of(number: int, state: RequestState, at_once: int) -> Iterator[_Question]:
    criteria = criteria_of(state)
    for first in range(0, len(criteria), at_once):
        yield _Question(number, first, state, tuple(criteria[first : first + at_once]))


def said_by(judge: Any, question: _Question, ask: Callable[[Request], RequestResult]) -> list[Said]:
    """One judge's decisions, or why there are none: it could not be asked, or its output was unusable twice.

    Unusable output is archived: the next run of the same command asks the judge anew.
    """
    state, count = question.state, len(question.criteria)
    answer = state.result.completions[0].text if state.result and state.result.completions else ""
    references = [one.output.text for one in state.instance.references]
    prompt = criterion_prompt(
        state.instance.input.messages or [], answer, question.criteria, references[0] if references else None
    )
    request = Request(
        model=judge.deployment, model_deployment=judge.deployment, prompt=prompt, temperature=0.0,
        max_tokens=MOST_TOKENS,
    )  # fmt: skip
    asked: list[Request] = []
    reason = ""
    for number in range(TRIES):
        asked.append(request)
        if number > 0:
            current_session().expect_more(judge.role)
        try:
            result = ask(request)
        except Exception as error:  # a judge that cannot be asked at all said so already; the others go on
            if current_session().limit_reached is not None:
                raise
            return _not_judged(one_line(str(error)), count)
        if not result.success or not result.completions:
            if result.error == FILTERED_MESSAGE:  # of the model it is an answer; a judge has decided nothing
                current_session().clients[judge.role].forget(request, FILTERED_MESSAGE)
            return _not_judged(result.error or "it gave no answer", count)
        try:
            return [one.as_dict() for one in parse_decisions(result.completions[0].text, count, answer)]
        except UnusableJudgeOutput as error:
            reason = str(error)
            request = replace(request, prompt=prompt + ASK_AGAIN.format(reason=reason))
    client = current_session().clients[judge.role]
    for one in asked:
        client.forget(one, reason)
    return _not_judged(f"unusable judgement: {reason}", count)


def _not_judged(reason: str, count: int) -> list[Said]:
    return [{ERROR: reason} for _ in range(count)]
