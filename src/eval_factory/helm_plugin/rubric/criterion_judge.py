"""Asks judges: HELM's juries, a rubric's judges about each criterion of each answer, and those of
medhelm's HealthBench.

All judges are asked side by side, through our client; each gets as many of a rubric's questions at
once as its limit allows. One method of HELM's juries, and of medhelm's annotators, is replaced:
prompts, criteria, formula and the form of the annotations stay theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    is_blank_answer,
    own_judgement,
    parse_judge_output,
)
from eval_factory.helm.verdict_schemas import (
    Schema,
    decisions_schema,
    mark_schema,
    prompts_of,
    ratings_schema,
    template_with_schema,
)
from eval_factory.helm_plugin.session import current_session, judging, run_record, verdict_by
from eval_factory.tasks.rubric_case import RUBRICS, SAMPLE, Criterion

_MAX_TOKENS = 4096  # the tokens that HELM grants a judge

ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)

_Ask = Callable[[Request], RequestResult]
# about a criterion, with its explanation; in an annotation `error` in its place
_Decision = dict[str, Any]
_Judgement = TypeVar("_Judgement")


class NotJudged(str):
    """The reason why a judge gave no judgement."""


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
        model: the judge's model, as HELM names it.
        deployment: the judge's deployment in model_deployments.yaml.
        prompt: all that the judge is asked.
        ask: sends a request of HELM's, and returns its result.
        read: what the output says, or raises UnusableJudgeOutput.
        role: the role of a judge whose requests were counted before they were asked.
        sample: the number of the judge's answer to this prompt.

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
    requests: list[Request] = []
    reason = ""
    for number in range(2):
        requests.append(request)
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
                # a filtered answer of the model counts; a filtered judge has decided nothing
                current_session().clients[role].forget(request, FILTERED_MESSAGE)
            return NotJudged(result.error or "it gave no answer")
        try:
            return read(result.completions[0].text)
        except UnusableJudgeOutput as error:
            reason = str(error)
            request = replace(request, prompt=prompt + ASK_AGAIN.format(reason=reason))
    _archive(requests, role, deployment, reason)
    return NotJudged(f"unusable judgement: {reason}")


def _archive(requests: Iterable[Request], role: str | None, deployment: str, reason: str) -> None:
    """Archive the answers to requests, so that the same command asks again."""
    # The role is in model_deployments.yaml: HELM's configurable benchmark calls a judge by its
    # deployment.
    client = current_session().clients[
        role or get_model_deployment(deployment).client_spec.args["role"]
    ]
    for request in requests:
        client.forget(request, reason)


_OF_NO_ANSWER = {
    "prompt_text": None,
    "empty_output_equivalence_judgement": False,
}  # as HELM and medhelm have it


def _answer_in(state: RequestState) -> str:
    if not state.result or not state.result.completions:
        return ""
    return str(state.result.completions[0].text)


def ask_judges_in_parallel(self: Any, request_state: RequestState) -> dict[str, Any]:
    """HELM's annotations of one answer: the prompt, and each judge's ratings if it gave any."""
    answer = _answer_in(request_state)
    if is_blank_answer(answer):
        return dict(_OF_NO_ANSWER)
    prompt = self._interpolate_prompt(request_state)
    form = current_session().jury_form
    judges: dict[str, Any] = self._annotator_models
    schema = ratings_schema(self._annotation_criteria, form)
    for judge in judges.values():
        _note_prompt(self.name, self._prompt_template, schema, judge.model_deployment)

    def read(text: str) -> dict[str, Any]:
        return parse_judge_output(text, self._annotation_criteria, answer, form)

    def rated_by(name: str) -> dict[str, Any] | NotJudged:
        judge = judges[name]
        return judgement(
            judge.model_name, judge.model_deployment, prompt, self._auto_client.make_request, read
        )

    annotation: dict[str, Any] = {"prompt_text": prompt}
    missing: dict[str, str] = {}
    with verdict_by(schema):
        outcomes = map_at_once(rated_by, list(judges), len(judges))
    for name, outcome in zip(judges, outcomes, strict=True):
        if isinstance(outcome, NotJudged):
            missing[name] = str(outcome)
        else:
            annotation[name] = outcome
    if missing:
        annotation[names.NOT_JUDGED] = missing
    return annotation


def _note_prompt(annotation: str, template: str, schema: Schema, deployment: str) -> None:
    """Record a judge's prompt; that of a judge with `structured` with the schema it gets."""
    by_schema = bool(get_model_deployment(deployment).client_spec.args.get("structured"))
    if by_schema:
        template = template_with_schema(template, schema)
    run_record.note_prompt(prompts_of(annotation, by_schema=by_schema), template)


@dataclass(frozen=True)
class _Judge:
    name: str
    deployment: str
    role: str
    parallelism: int


@dataclass(frozen=True)
class _Question:
    """Some criteria of one answer, which are asked in one request."""

    state: RequestState
    answer: int  # the number of the answer
    first: int  # the number of the first criterion in the answer's rubric
    criteria: list[Criterion]


class CriterionAnnotator(Annotator):  # type: ignore[misc]
    """Has the judges decide about each criterion of each answer."""

    name = rubric.ANNOTATION
    use_global_metric = True  # makes HELM hand over all answers at once

    def __init__(
        self, auto_client: AutoClient, judges: Mapping[str, str], criteria_per_request: int = 1
    ) -> None:
        """Take the deployments of the judges, by name."""
        self._ask: _Ask = auto_client.make_request
        self._judges = []
        for name, deployment in judges.items():
            args = get_model_deployment(deployment).client_spec.args
            self._judges.append(_Judge(name, deployment, args["role"], args["parallelism"]))
        self._at_once = criteria_per_request

    def annotate(self, request_state: RequestState) -> dict[str, Any]:
        """Annotate one answer; HELM itself hands over all."""
        annotation: dict[str, Any] = self.annotate_all([request_state])[0][rubric.ANNOTATION]
        return annotation

    def annotate_all(self, request_states: list[RequestState]) -> list[dict[str, Any]]:
        """Return the annotations of each answer. An answer that did not come is not judged.

        Raises:
            Exception: a limit of the run is reached, so that nothing more is asked.
        """
        for size, judge in product({1, self._at_once}, self._judges):
            template = rubric.criterion_template(alone=size == 1)
            _note_prompt(rubric.ANNOTATION, template, decisions_schema(size), judge.deployment)
        decided: list[list[dict[str, _Decision]]] = []
        questions: list[_Question] = []
        for number, state in enumerate(request_states):
            criteria = rubric_criteria(state)
            decided.append([{} for _ in criteria])
            if self._judges and is_answered(state):
                for first in range(0, len(criteria), self._at_once):
                    part = criteria[first : first + self._at_once]
                    questions.append(_Question(state, number, first, part))
        for judge in self._judges:
            current_session().expect(judge.role, len(questions))

        def decisions_of(judge: _Judge) -> list[list[_Decision]]:
            return list(
                map_at_once(
                    lambda question: _decisions(judge, question, self._ask),
                    questions,
                    judge.parallelism,
                )
            )

        by_judge = map_at_once(decisions_of, self._judges, len(self._judges))
        # in the judges' order, whichever answers first: the same answers give the same files
        for judge, by_question in zip(self._judges, by_judge, strict=True):
            for question, decisions in zip(questions, by_question, strict=True):
                for number, decision in enumerate(decisions, start=question.first):
                    decided[question.answer][number][judge.name] = decision
        return [{rubric.ANNOTATION: rubric.annotation_of(criteria)} for criteria in decided]


def rubric_criteria(state: RequestState) -> list[Criterion]:
    return [Criterion.from_dict(entry) for entry in (state.instance.extra_data or {})[RUBRICS]]


def is_answered(state: RequestState) -> bool:
    """An answer that a content filter took away counts as an answer with nothing in it."""
    result = state.result
    return result is not None and (result.success or result.error == FILTERED_MESSAGE)


def _decisions(judge: _Judge, question: _Question, ask: _Ask) -> list[_Decision]:
    """One judge's decisions about the question's criteria, or why there are none."""
    state = question.state
    count = len(question.criteria)
    answer = _answer_in(question.state)
    reference = next((reference.output.text for reference in state.instance.references), None)
    prompt = rubric.criterion_prompt(
        state.instance.input.messages or [], answer, question.criteria, reference
    )

    def read(text: str) -> list[dict[str, Any]]:
        return [decision.as_dict() for decision in rubric.parse_decisions(text, count, answer)]

    sample = (state.instance.extra_data or {}).get(SAMPLE)
    # HELM hands over all answers at once
    with judging(state), verdict_by(decisions_schema(count)):
        outcome = judgement(
            judge.deployment, judge.deployment, prompt, ask, read, judge.role, sample
        )
    if isinstance(outcome, NotJudged):
        return [{rubric.ERROR: str(outcome)} for _ in question.criteria]
    return outcome


def requests_to_judges(state: ScenarioState) -> int:
    """Count the requests to all judges together, about the answers that came; questions that are
    asked again are not counted.
    """
    answered = [
        request_state for request_state in state.request_states if is_answered(request_state)
    ]
    total = 0
    for spec in state.annotator_specs or ():
        # an annotator that names no judges (`judges` of a rubric, `annotator_models` of a jury)
        # asks once, if at all
        judges = spec.args.get("judges") or spec.args.get("annotator_models") or [spec]
        total += len(judges) * _each(spec, answered)
    return total


def requests_to_each(state: ScenarioState) -> int:
    """Count a rubric's requests to one judge, if all answers come; 0 if there is no rubric."""
    total = 0
    for spec in state.annotator_specs or ():
        if spec.class_name == names.RUBRIC_ANNOTATOR_CLASS:
            total += _each(spec, state.request_states)
    return total


def _each(spec: Any, states: Sequence[RequestState]) -> int:
    # a criterion each, and the physician's answer if there is one
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
    total = 0
    for state in states:
        total += ceil(len(rubric_criteria(state)) / spec.args["criteria_per_request"])
    return total


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
    if is_blank_answer(answer):
        return dict(_OF_NO_ANSWER)
    extra: Mapping[str, Any] = state.instance.extra_data or {}
    turns = [*(state.instance.input.messages or []), {"content": answer, "role": "assistant"}]
    conversation = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
    template = self._prompt_template.replace("<<conversation>>", conversation)
    prompts = [template.replace("<<rubric_item>>", str(rubric)) for rubric in extra["rubrics"]]
    for judge in self._annotator_models.values():
        _note_prompt(self.name, self._prompt_template, decisions_schema(1), judge.model_deployment)
    physicians = extra.get("physician_response") if professional else None
    compared = helms.EVAL_PROMPT.replace("<<user_message>>", conversation).replace(
        "<<llm_response>>", answer
    )
    marks = [] if physicians is None else [compared.replace("<<physician_response>>", physicians)]

    def decide(question: tuple[str, str]) -> _Decision | NotJudged:
        name, prompt = question
        judge = self._annotator_models[name]
        ask = self._auto_client.make_request
        schema = decisions_schema(1)
        if prompt in marks:
            schema = mark_schema()

        def read(text: str) -> _Decision:
            if prompt in marks:
                return _mark(text)
            return rubric.parse_decisions(text, 1, answer)[0].as_dict()

        with verdict_by(schema):
            return judgement(judge.model_name, judge.model_deployment, prompt, ask, read)

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
    """The annotation as medhelm writes it; beside it each judge's decisions in the rubric's order,
    and the judges that did not judge.
    """
    annotation: dict[str, Any] = {}
    decided: dict[str, list[bool]] = {}
    missing: dict[str, str] = {}
    so_far: list[_Decision] = []
    for name, decisions in outcomes.items():
        failed: list[NotJudged] = []
        judged: list[_Decision] = []
        for decision in decisions:
            if isinstance(decision, NotJudged):
                failed.append(decision)
            else:
                judged.append(decision)
        if failed:
            missing[name] = f"{len(failed)} of {len(decisions)} decisions are missing: {failed[0]}"
            continue
        so_far = [*so_far, *judged] if professional else judged
        score = score_of(list(rubrics), so_far)
        if score is None:
            missing[name] = "medhelm's formula gives no score if the points of a rubric add up to 0"
            continue
        if has_mark:
            score = (score + judged[-1]["criteria_met"] / 10) / 2
        annotation[name] = {"accuracy": {"score": score, "criteria": so_far}}
        decided[name] = [decision["criteria_met"] for decision in judged[: len(rubrics)]]
    if decided:
        annotation[names.DECISIONS] = decided
    if missing:
        annotation[names.NOT_JUDGED] = missing
    return annotation


def _mark(text: str) -> _Decision:
    """The mark of the comparison with the physician's answer. Raises UnusableJudgeOutput: it is no
    whole number from 1 to 10.
    """

    def read(decision: dict[str, Any]) -> _Decision:
        if type(decision["criteria_met"]) is not int or not 1 <= decision["criteria_met"] <= 10:
            raise UnusableJudgeOutput('"criteria_met" is not a whole number from 1 to 10')
        return decision

    return own_judgement(
        text,
        is_judgement=lambda record: "criteria_met" in record,
        wanted='"criteria_met"',
        is_repeated=lambda _found: False,
        judged_noun="answer",
        read=read,
        verdict=lambda record: record["criteria_met"],
    )
