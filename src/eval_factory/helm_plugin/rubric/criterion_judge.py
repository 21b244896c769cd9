"""Judges: those of HELM's juries, those of a rubric, who are asked about each criterion of each
answer apart, and those of medhelm's HealthBench.

All are asked side by side, through our client; a rubric's thousands of questions as many at once as
each judge may be asked. Of HELM's juries, and of medhelm's annotators, one method is replaced:
prompts, criteria, formula and the form of the annotations stay theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any, TypeVar

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation.annotator import Annotator
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.clients.auto_client import AutoClient
from helm.common.request import Request, RequestResult

from eval_factory.core.foreign_text import one_line
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.openai_api import FILTERED_MESSAGE
from eval_factory.helm import criteria as rubric
from eval_factory.helm import names
from eval_factory.helm.judge_output import (
    UnusableJudgeOutput,
    own_judgement,
    parse_judge_output,
    says_nothing,
)
from eval_factory.helm_plugin.session import current_session, judging, run_record
from eval_factory.tasks.rubric_case import RUBRICS, SAMPLE, Criterion

_MAX_TOKENS = 4096  # what HELM grants a judge

ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)

_Ask = Callable[[Request], RequestResult]
# about a criterion, with its explanation; in an annotation `error` in its place
_Decision = dict[str, Any]
_Judgement = TypeVar("_Judgement")


class NotJudged(str):
    """Why a judge gave no judgement."""


def judgement(
    model: str,
    deployment: str,
    prompt: str,
    ask: _Ask,
    read: Callable[[str], _Judgement],
    role: str | None = None,
    sample: int | None = None,
) -> _Judgement | NotJudged:
    """One judge's judgement. Output that cannot be used is asked for once more, with the reason.

    Where that cannot be used either, both are archived: the next run of the same command asks the
    judge again.

    Args:
        read: what the output says, or raises UnusableJudgeOutput.
        role: of a judge whose requests were counted before they were asked.
        sample: of the judge's answers to this prompt.

    Raises:
        Exception: a limit of the run is reached, so that nothing more is asked.
    """
    request = Request(
        model=model,
        model_deployment=deployment,
        prompt=prompt,
        temperature=0.0,
        max_tokens=_MAX_TOKENS,
        random=None if sample is None else str(sample),
    )
    asked: list[Request] = []
    reason = ""
    for number in range(2):
        asked.append(request)
        if number > 0 and role is not None:
            current_session().expect(role, 1)
        try:
            result = ask(request)
        except Exception as error:  # reported already: this judge cannot be asked; the others go on
            if current_session().limit_reached is not None:
                raise
            return NotJudged(one_line(str(error)))
        if not result.success or not result.completions:
            if role is not None and result.error == FILTERED_MESSAGE:
                # Of the model it would be an answer; a judge has decided nothing.
                current_session().clients[role].forget(request, FILTERED_MESSAGE)
            return NotJudged(result.error or "it gave no answer")
        try:
            return read(result.completions[0].text)
        except UnusableJudgeOutput as error:
            reason = str(error)
            request = replace(request, prompt=prompt + ASK_AGAIN.format(reason=reason))
    # The role is in model_deployments.yaml: HELM's configurable benchmark calls a judge by its
    # deployment.
    client = current_session().clients[
        role or get_model_deployment(deployment).client_spec.args["role"]
    ]
    for request in asked:
        client.forget(request, reason)
    return NotJudged(f"unusable judgement: {reason}")


_OF_NO_ANSWER = {
    "prompt_text": None,
    "empty_output_equivalence_judgement": False,
}  # as HELM and medhelm have it


def _answer_in(state: RequestState) -> str:
    return state.result.completions[0].text if state.result and state.result.completions else ""


def ask_judges_in_parallel(self: Any, request_state: RequestState) -> dict[str, Any]:
    """HELM's annotations of one answer: the prompt, and each judge's ratings where it gave them."""
    answer = _answer_in(request_state)
    if says_nothing(answer):
        return dict(_OF_NO_ANSWER)
    prompt = self._interpolate_prompt(request_state)
    form = current_session().jury_form
    run_record.note_prompt(self.name, self._prompt_template)
    judges: dict[str, Any] = self._annotator_models

    def read(text: str) -> dict[str, Any]:
        return parse_judge_output(text, self._annotation_criteria, answer, form)

    def rated_by(name: str) -> dict[str, Any] | NotJudged:
        judge = judges[name]
        return judgement(
            judge.model_name, judge.model_deployment, prompt, self._auto_client.make_request, read
        )

    outcomes = dict(zip(judges, map_at_once(rated_by, list(judges), len(judges)), strict=True))
    rated = {
        name: ratings for name, ratings in outcomes.items() if not isinstance(ratings, NotJudged)
    }
    missing = {
        name: str(reason) for name, reason in outcomes.items() if isinstance(reason, NotJudged)
    }
    return {"prompt_text": prompt, **rated, **({names.NOT_JUDGED: missing} if missing else {})}


@dataclass(frozen=True)
class _Judge:
    name: str
    deployment: str
    role: str
    parallelism: int


@dataclass(frozen=True)
class _Question:
    """Some criteria of one answer: those that are asked in one request."""

    state: RequestState
    criteria: list[Criterion]
    decided: list[dict[str, _Decision]]  # of each criterion, by judge


class CriterionAnnotator(Annotator):  # type: ignore[misc]
    """What the judges decide about each criterion of each answer."""

    name = rubric.ANNOTATION
    use_global_metric = True  # makes HELM hand over all answers at once

    def __init__(
        self, auto_client: AutoClient, judges: Mapping[str, str], criteria_per_request: int = 1
    ) -> None:
        """`judges`: name -> deployment."""
        self._ask: _Ask = auto_client.make_request
        clients = {name: get_model_deployment(one).client_spec.args for name, one in judges.items()}
        self._judges = [
            _Judge(name, judges[name], args["role"], args["parallelism"])
            for name, args in clients.items()
        ]
        self._at_once = criteria_per_request

    def annotate(self, request_state: RequestState) -> dict[str, Any]:
        """Of one answer; HELM itself asks for all."""
        found: dict[str, Any] = self.annotate_all([request_state])[0][rubric.ANNOTATION]
        return found

    def annotate_all(self, request_states: list[RequestState]) -> list[dict[str, Any]]:
        """Of each answer its annotations. An answer that did not come is not judged.

        Raises:
            Exception: a limit of the run is reached, so that nothing more is asked.
        """
        for size in {1, self._at_once}:
            run_record.note_prompt(rubric.ANNOTATION, rubric.criterion_template(alone=size == 1))
        of_answers: list[list[dict[str, _Decision]]] = []
        questions: list[_Question] = []
        for state in request_states:
            criteria = rubric_criteria(state)
            # in the judges' order, whichever answers first: the same answers give the same files
            names = [judge.name for judge in self._judges] if is_answered(state) else []
            decided: list[dict[str, _Decision]] = [{name: {} for name in names} for _ in criteria]
            of_answers.append(decided)
            for first in range(0, len(criteria) if names else 0, self._at_once):
                some = slice(first, first + self._at_once)
                questions.append(_Question(state, criteria[some], decided[some]))
        for judge in self._judges:
            current_session().expect(judge.role, len(questions))

        def judge_all(judge: _Judge) -> None:
            map_at_once(
                lambda question: _decide(judge, question, self._ask), questions, judge.parallelism
            )

        map_at_once(judge_all, self._judges, len(self._judges))
        return [{rubric.ANNOTATION: rubric.annotation_of(decided)} for decided in of_answers]


def rubric_criteria(state: RequestState) -> list[Criterion]:
    return [Criterion.from_dict(one) for one in (state.instance.extra_data or {})[RUBRICS]]


def is_answered(state: RequestState) -> bool:
    """What a content filter took away is an answer with nothing in it."""
    result = state.result
    return result is not None and (result.success or result.error == FILTERED_MESSAGE)


def _decide(judge: _Judge, question: _Question, ask: _Ask) -> None:
    """Put one judge's decisions, or why there are none, where the question says."""
    state = question.state
    count = len(question.criteria)
    answer = _answer_in(question.state)
    reference = next((one.output.text for one in state.instance.references), None)
    prompt = rubric.criterion_prompt(
        state.instance.input.messages or [], answer, question.criteria, reference
    )

    def read(text: str) -> list[dict[str, Any]]:
        return [one.as_dict() for one in rubric.parse_decisions(text, count, answer)]

    sample = (state.instance.extra_data or {}).get(SAMPLE)
    with judging(state):  # HELM hands over all answers at once
        found = judgement(judge.deployment, judge.deployment, prompt, ask, read, judge.role, sample)
    for number, by_judge in enumerate(question.decided):
        by_judge[judge.name] = (
            {rubric.ERROR: str(found)} if isinstance(found, NotJudged) else found[number]
        )


def requests_to_judges(state: ScenarioState) -> int:
    """Of all judges together, about the answers that came; questions that are asked again are
    not counted.
    """
    answered = [one for one in state.request_states if is_answered(one)]
    # An annotator that names no judges (`judges` of a rubric, `annotator_models` of a jury) asks
    # once, if at all.
    return sum(
        len(spec.args.get("judges") or spec.args.get("annotator_models") or [spec])
        * _each(spec, answered)
        for spec in state.annotator_specs or ()
    )


def requests_to_each(state: ScenarioState) -> int:
    """Of a rubric: how many one judge will get if all answers come; 0 where there is no rubric."""
    rubrics = [
        one for one in state.annotator_specs or () if one.class_name == names.RUBRIC_ANNOTATOR_CLASS
    ]
    return sum(_each(spec, state.request_states) for spec in rubrics)


def _each(spec: Any, states: Sequence[RequestState]) -> int:
    # a criterion each, and the physician's answer where there is one
    if spec.class_name in names.MEDHELM_HEALTHBENCH:
        count = 0
        for state in states:
            extra = state.instance.extra_data or {}
            count += len(extra["rubrics"])
            if extra.get("physician_response") is not None:
                count += 1
        return count
    if spec.class_name != names.RUBRIC_ANNOTATOR_CLASS:
        return len(states)
    return sum(
        ceil(len(rubric_criteria(one)) / spec.args["criteria_per_request"]) for one in states
    )


def ask_about_each_criterion_and_the_physicians_answer(
    self: Any, state: RequestState
) -> dict[str, Any]:
    """Professional: every judge is scored by the first one's decisions (medhelm never empties its
    list of them), and half of the score is its own mark of the answer beside the physician's.
    """
    return ask_about_each_criterion(self, state, professional=True)


def ask_about_each_criterion(
    self: Any, state: RequestState, *, professional: bool = False
) -> dict[str, Any]:
    """HealthBench: each judge's score is of its own decisions.

    In medhelm's annotators a request that fails moves all later decisions to the criterion before.
    Here a judge that left one out has not judged the answer. Which decision is about which
    criterion stands beside, for the corrected score.
    """
    from helm.benchmark.annotation import health_bench_annotator as helms

    answer = _answer_in(state)
    if says_nothing(answer):
        return dict(_OF_NO_ANSWER)
    extra: Mapping[str, Any] = state.instance.extra_data or {}
    turns = [*(state.instance.input.messages or []), {"content": answer, "role": "assistant"}]
    conversation = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
    template = self._prompt_template.replace("<<conversation>>", conversation)
    prompts = [template.replace("<<rubric_item>>", str(rubric)) for rubric in extra["rubrics"]]
    run_record.note_prompt(self.name, self._prompt_template)
    physicians = extra.get("physician_response") if professional else None
    compared = helms.EVAL_PROMPT.replace("<<user_message>>", conversation).replace(
        "<<llm_response>>", answer
    )
    marks = [] if physicians is None else [compared.replace("<<physician_response>>", physicians)]

    def decide(question: tuple[str, str]) -> _Decision | NotJudged:
        name, prompt = question
        judge = self._annotator_models[name]

        def read(text: str) -> _Decision:
            return (
                _mark(text)
                if prompt in marks
                else rubric.parse_decisions(text, 1, answer)[0].as_dict()
            )

        return judgement(
            judge.model_name, judge.model_deployment, prompt, self._auto_client.make_request, read
        )

    questions = list(product(self._annotator_models, (*prompts, *marks)))
    outcomes: dict[str, list[_Decision | NotJudged]] = {name: [] for name in self._annotator_models}
    decisions = map_at_once(decide, questions, len(questions))
    for (name, _), decision in zip(questions, decisions, strict=True):
        outcomes[name].append(decision)
    return _scored(
        outcomes,
        extra["rubrics"],
        helms.calculate_score,
        has_mark=bool(marks),
        professional=professional,
    )


def _scored(
    outcomes: Mapping[str, Sequence[_Decision | NotJudged]],
    rubrics: Sequence[Any],
    score_of: Callable[[list[Any], list[_Decision]], float | None],
    *,
    has_mark: bool,
    professional: bool,
) -> dict[str, Any]:
    """As medhelm writes them down; beside that each judge's decisions in the rubric's order, and
    who did not judge.
    """
    annotation: dict[str, Any] = {}
    decided: dict[str, list[bool]] = {}
    missing: dict[str, str] = {}
    so_far: list[_Decision] = []
    for name, said in outcomes.items():
        failed = [one for one in said if isinstance(one, NotJudged)]
        own = [one for one in said if not isinstance(one, NotJudged)]
        if failed:
            missing[name] = f"{len(failed)} of {len(said)} decisions are missing: {failed[0]}"
            continue
        so_far = [*so_far, *own] if professional else own
        score = score_of(list(rubrics), so_far)
        if score is None:
            missing[name] = (
                "medhelm's formula gives no score where the points of a rubric add up to nothing"
            )
            continue
        if has_mark:
            score = (score + own[-1]["criteria_met"] / 10) / 2
        annotation[name] = {"accuracy": {"score": score, "criteria": so_far}}
        decided[name] = [one["criteria_met"] for one in own[: len(rubrics)]]
    beside = {names.DECISIONS: decided, names.NOT_JUDGED: missing}
    return annotation | {name: found for name, found in beside.items() if found}


def _mark(text: str) -> _Decision:
    """Of the comparison with the physician's answer. Raises UnusableJudgeOutput: it is no whole
    number from 1 to 10.
    """

    def read(found: dict[str, Any]) -> _Decision:
        if type(found["criteria_met"]) is not int or not 1 <= found["criteria_met"] <= 10:
            raise UnusableJudgeOutput('"criteria_met" is no whole number from 1 to 10')
        return found

    return own_judgement(
        text,
        holds=lambda found: "criteria_met" in found,
        wanted='"criteria_met"',
        stands=lambda _found: False,
        judged_is="answer",
        read=read,
        verdict=lambda found: found["criteria_met"],
    )
