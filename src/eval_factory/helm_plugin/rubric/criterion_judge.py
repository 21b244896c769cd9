"""Judging by criterion: each criterion of each answer is a question of its own to each judge.

A benchmark asks thousands of them. All of a run's go to the judges side by side, as many at once as each judge may be
asked, whatever answer they are about; each goes through our client: kept, retried, limited.

HELM's jury, asked through our client: all judges at once, and once more where a judge's output is unusable.

Takes the place of one method of HELM's `LLMAsJuryAnnotator`; prompts, criteria and the form of the annotations stay
HELM's.

How many requests the judges of a run will get: each judge one about an answer, or one about each of its criteria.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation.annotator import Annotator
from helm.benchmark.annotation.model_as_judge import AnnotatorModelInfo, LLMAsJuryAnnotator
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.clients.auto_client import AutoClient
from helm.common.request import Request, RequestResult

from eval_factory.core.foreign_text import one_line
from eval_factory.core.jury_form import JuryForm
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.openai_api import FILTERED_MESSAGE
from eval_factory.helm import names
from eval_factory.helm.criterion_output import ANNOTATION, ERROR, annotation_of, parse_decisions
from eval_factory.helm.criterion_prompt import criterion_prompt, template
from eval_factory.helm.judge_output import Criteria, UnusableJudgeOutput, parse_judge_output, says_nothing
from eval_factory.helm_plugin import run_records
from eval_factory.helm_plugin.session import current_session
from eval_factory.tasks.rubric.rubric_case import RUBRICS, Criterion

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
            run_records.note(ANNOTATION, template(alone=size == 1))
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


"""What HELM grants a judge."""


@dataclass(frozen=True)
class _NotRated:
    """Why a judge gave no ratings."""

    reason: str


@dataclass(frozen=True)
class _Question_of_jury_annotator:
    """What all judges are asked about one answer."""

    prompt: str
    criteria: Criteria
    answer: str
    form: JuryForm


def ask_judges_in_parallel() -> None:
    LLMAsJuryAnnotator.annotate = annotate


def annotate(self: Any, request_state: RequestState) -> dict[str, Any]:
    """The annotations of one answer: the prompt, and each judge's ratings where it gave them."""
    answer = request_state.result.completions[0].text if request_state.result else ""
    if says_nothing(answer):
        return {"prompt_text": None, "empty_output_equivalence_judgement": False}  # as HELM has it
    form = current_session().jury_form
    question = _Question_of_jury_annotator(
        self._interpolate_prompt(request_state), self._annotation_criteria, answer, form
    )
    run_records.note(self.name, self._prompt_template)
    judges: dict[str, AnnotatorModelInfo] = self._annotator_models

    def rated_by(name: str) -> dict[str, Any] | _NotRated:
        return _ratings_of(judges[name], question, self._auto_client.make_request)

    outcomes = dict(zip(judges, map_at_once(rated_by, list(judges), len(judges)), strict=True))
    rated = {name: ratings for name, ratings in outcomes.items() if not isinstance(ratings, _NotRated)}
    missing = {name: outcome.reason for name, outcome in outcomes.items() if isinstance(outcome, _NotRated)}
    return {"prompt_text": question.prompt, **rated, **({names.NOT_JUDGED: missing} if missing else {})}


def _ratings_of(
    judge: AnnotatorModelInfo, question: _Question_of_jury_annotator, ask: Callable[[Request], RequestResult]
) -> dict[str, Any] | _NotRated:
    """One judge's ratings, or why there are none: it could not be asked, or its output was unusable twice.

    Unusable output is archived: the next run of the same command asks the judge anew.
    """
    request = Request(
        model=judge.model_name, model_deployment=judge.model_deployment, prompt=question.prompt, temperature=0.0,
        max_tokens=MOST_TOKENS,
    )  # fmt: skip
    asked: list[Request] = []
    for _ in range(TRIES):
        asked.append(request)
        try:
            result = ask(request)
        except Exception as error:  # a judge that cannot be asked at all said so already; the others go on
            if current_session().limit_reached is not None:
                raise
            return _NotRated(one_line(str(error)))
        if not result.success or not result.completions:
            return _NotRated(result.error or "it gave no answer")
        try:
            said = result.completions[0].text
            return parse_judge_output(said, question.criteria, question.answer, question.form)
        except UnusableJudgeOutput as error:
            reason = str(error)
            request = replace(request, prompt=question.prompt + ASK_AGAIN.format(reason=reason))
    # The role is in model_deployments.yaml: HELM's configurable benchmark calls a judge by its deployment.
    role = get_model_deployment(judge.model_deployment).client_spec.args["role"]
    client = current_session().clients[role]
    for request in asked:
        client.forget(request, reason)
    return _NotRated(f"unusable judgement: {reason}")


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
