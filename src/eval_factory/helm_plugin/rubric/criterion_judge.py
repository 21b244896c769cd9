"""Asks judges about answers.

There are three kinds of judges:

- the judges of HELM's juries, which rate each answer (`ask_judges_in_parallel`);
- the judges of a rubric, which decide about each criterion of each answer (`CriterionAnnotator`);
- the judges of medhelm's HealthBench, which do the same (`ask_about_each_criterion`).

All judges are asked in parallel, through eval-factory's client. The `parallelism` of a rubric's
judge limits the judge's requests at the same time. In HELM's juries and in medhelm's annotators,
the method `annotate` is replaced. Their prompts, criteria and formulas do not change, and their
annotations only get further keys.
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
from eval_factory.endpoint.openai_answers import FILTERED_MESSAGE
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
    prompts_key,
    ratings_schema,
    template_with_schema,
)
from eval_factory.helm_plugin.session import current_session, judging, run_record, verdict_by
from eval_factory.tasks.rubric_case import RUBRICS_KEY, SAMPLE_KEY, Criterion

_MAX_TOKENS = 4096  # the maximum number of tokens in a judge's output, as in HELM

ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)
"""The text that is added to the prompt when a judge is asked a second time."""

_Ask = Callable[[Request], RequestResult]  # sends a request of HELM, and returns the result
_Decision = dict[str, Any]
"""A judge's decision about a criterion, with the judge's explanation. In an annotation, a missing
decision is a dict with the key `error`.
"""
_Judgement = TypeVar("_Judgement")  # the type of a judgement: ratings, decisions or a mark


class NotJudged(str):
    """A text that states why a judge gave no judgement."""


def judgement(
    model: str,
    deployment: str,
    prompt: str,
    ask: _Ask,
    read: Callable[[str], _Judgement],
    role: str | None = None,
    sample: int | None = None,
) -> _Judgement | NotJudged:
    """Ask one judge, and return the judgement or the reason why there is none.

    If the judge's output cannot be used, the judge is asked a second time, with the reason in the
    prompt. If the second output cannot be used either, both outputs are archived, and the next run
    of the command asks again. A failed request is not repeated here.

    Args:
        model: the judge's model, by its name in HELM.
        deployment: the judge's deployment in model_deployments.yaml.
        prompt: the complete prompt for the judge.
        ask: the function that sends the requests.
        read: returns the judgement in the judge's output, or raises UnusableJudgeOutput.
        role: the role of a rubric's judge; None for the other kinds of judges, whose requests are
            not counted in advance, and are not asked again if a filter removed the judgement.
        sample: the number of the model's answer; None if the model answered a question only once.

    Raises:
        Exception: the error of the request, if a limit of the run is reached.
    """
    request = _request_to_judge(model, deployment, prompt, sample)
    requests: list[Request] = []
    reason = ""  # the reason why the latest output cannot be used
    for attempt in range(2):
        requests.append(request)
        if attempt > 0 and role is not None:
            # The caller announced only the first request to the session.
            current_session().expect(role, count=1)
        try:
            result = ask(request)
        except Exception as error:
            # The client has reported the error already. Go on with the other judges.
            if current_session().limit_reached is not None:
                raise
            return NotJudged(one_line(str(error)))
        if not result.success or not result.completions:
            if role is not None and result.error == FILTERED_MESSAGE:
                # A filtered judgement does not count, so let the next run ask the judge again.
                _archive([request], role, deployment, FILTERED_MESSAGE)
            return NotJudged(result.error or "it gave no answer")
        try:
            return read(result.completions[0].text)
        except UnusableJudgeOutput as error:
            reason = str(error)
            request = replace(request, prompt=prompt + ASK_AGAIN.format(reason=reason))
    _archive(requests, role, deployment, reason)
    return NotJudged(f"unusable judgement: {reason}")


def _request_to_judge(model: str, deployment: str, prompt: str, sample: int | None) -> Request:
    return Request(
        model=model,
        model_deployment=deployment,
        prompt=prompt,
        temperature=0.0,
        max_tokens=_MAX_TOKENS,
        # Requests with different `random` are sent separately, even if their prompts are equal.
        random=None if sample is None else str(sample),
    )


def _archive(requests: Iterable[Request], role: str | None, deployment: str, reason: str) -> None:
    """Archive the answers to the requests, so that the next run of the command asks again.

    If `role` is None, the role is read from the arguments of the deployment's client.
    """
    if role is None:
        role = get_model_deployment(deployment).client_spec.args["role"]
    client = current_session().clients[role]
    for request in requests:
        client.forget(request, reason)


_NO_ANSWER_ANNOTATION = {"prompt_text": None, "empty_output_equivalence_judgement": False}
"""The annotation of an empty answer in HELM and medhelm."""


def _answer_in(state: RequestState) -> str:
    """Return the text of the answer; an empty text if there is no answer."""
    if not state.result or not state.result.completions:
        return ""
    return str(state.result.completions[0].text)


def ask_judges_in_parallel(self: Any, request_state: RequestState) -> dict[str, Any]:
    """Return HELM's annotation of one answer: the prompt, and the ratings of each judge.

    An example is `{"prompt_text": "...", "gpt": {"accuracy": {"score": 4, ...}}}`.

    This function replaces a method of HELM's juries. A judge without usable ratings is listed with
    the reason under the key `names.NOT_JUDGED_FIELD`. No judge is asked about an empty answer.
    """
    answer = _answer_in(request_state)
    if is_blank_answer(answer):
        return dict(_NO_ANSWER_ANNOTATION)
    prompt = self._interpolate_prompt(request_state)
    jury_form = current_session().jury_form
    judges: dict[str, Any] = self._annotator_models
    schema = ratings_schema(self._annotation_criteria, jury_form)
    for judge in judges.values():
        _note_prompt(self.name, self._prompt_template, schema, judge.model_deployment)

    def read(text: str) -> dict[str, Any]:
        return parse_judge_output(text, self._annotation_criteria, answer, jury_form)

    def rate(name: str) -> dict[str, Any] | NotJudged:
        judge = judges[name]
        return judgement(
            judge.model_name,
            judge.model_deployment,
            prompt,
            ask=self._auto_client.make_request,
            read=read,
        )

    annotation: dict[str, Any] = {"prompt_text": prompt}
    missing: dict[str, str] = {}  # name of a judge -> the reason why the judge is missing
    with verdict_by(schema):
        outcomes = map_at_once(rate, list(judges), at_once=len(judges))
    for name, outcome in zip(judges, outcomes, strict=True):
        if isinstance(outcome, NotJudged):
            missing[name] = str(outcome)
        else:
            annotation[name] = outcome
    if missing:
        annotation[names.NOT_JUDGED_FIELD] = missing
    return annotation


def _note_prompt(annotation: str, template: str, schema: Schema, deployment: str) -> None:
    """Record the prompt template of a judge.

    The template of a `structured` judge is recorded together with the JSON schema of its output.
    """
    by_schema = bool(get_model_deployment(deployment).client_spec.args.get("structured"))
    if by_schema:
        template = template_with_schema(template, schema)
    run_record.note_prompt(prompts_key(annotation, by_schema=by_schema), template)


@dataclass(frozen=True)
class _Judge:
    """A judge of a rubric."""

    name: str  # the judge's key in annotations
    deployment: str  # HELM's name of the judge's endpoint
    role: str  # the key of the judge's client in the session; usually equal to `name`
    parallelism: int  # the maximum number of requests at the same time


@dataclass(frozen=True)
class _Question:
    """A question to a judge: one or several criteria of one answer, asked in one request."""

    state: RequestState  # the model's request, with the answer to judge
    state_index: int  # the index of the state among all states
    first_criterion: int  # the index of the first of the criteria in the answer's rubric
    criteria: list[Criterion]


class CriterionAnnotator(Annotator):  # type: ignore[misc]
    """An annotator that asks the judges of a rubric about each criterion of each answer."""

    name = rubric.ANNOTATION
    use_global_metric = True  # HELM then calls `annotate_all` with all answers.

    def __init__(
        self, auto_client: AutoClient, judges: Mapping[str, str], criteria_per_request: int = 1
    ) -> None:
        """Make the annotator.

        Args:
            auto_client: HELM's client, which sends each request to its deployment.
            judges: a dict from the name of each judge to the judge's deployment.
            criteria_per_request: the maximum number of criteria in a request to a judge.
        """
        self._ask: _Ask = auto_client.make_request
        self._judges = []
        for name, deployment in judges.items():
            args = get_model_deployment(deployment).client_spec.args
            self._judges.append(_Judge(name, deployment, args["role"], args["parallelism"]))
        self._criteria_per_request = criteria_per_request

    def annotate(self, request_state: RequestState) -> dict[str, Any]:
        """Return the annotation of one answer. HELM calls `annotate_all` instead."""
        annotation: dict[str, Any] = self.annotate_all([request_state])[0][rubric.ANNOTATION]
        return annotation

    def annotate_all(self, request_states: list[RequestState]) -> list[dict[str, Any]]:
        """Return the annotations of each answer. No judge is asked about a failed request.

        Raises:
            Exception: a limit of the run is reached, so that no judge can be asked.
        """
        # The template for a single criterion differs from that for several criteria. Both are
        # recorded, because the last request about an answer may hold a single criterion.
        for size, judge in product({1, self._criteria_per_request}, self._judges):
            template = rubric.criterion_template(alone=size == 1)
            _note_prompt(rubric.ANNOTATION, template, decisions_schema(size), judge.deployment)
        questions = self._questions_about(request_states)
        for judge in self._judges:
            current_session().expect(judge.role, count=len(questions))

        def decisions_of(judge: _Judge) -> list[list[_Decision]]:
            return map_at_once(
                lambda question: _decisions(judge, question, self._ask),
                questions,
                at_once=judge.parallelism,
            )

        decisions_by_judge = map_at_once(decisions_of, self._judges, at_once=len(self._judges))
        # for each answer, for each criterion: a dict from the name of a judge to the decision
        decided: list[list[dict[str, _Decision]]] = []
        for state in request_states:
            decided.append([{} for _ in rubric_criteria(state)])  # filled below
        # Store decisions in the order of the judges, not of their arrival, so that equal decisions
        # give byte-equal files.
        for judge, decisions_by_question in zip(self._judges, decisions_by_judge, strict=True):
            for question, decisions in zip(questions, decisions_by_question, strict=True):
                by_criterion = decided[question.state_index]
                for number, decision in enumerate(decisions, start=question.first_criterion):
                    by_criterion[number][judge.name] = decision
        return [{rubric.ANNOTATION: rubric.annotation_of(by_criterion)} for by_criterion in decided]

    def _questions_about(self, states: Sequence[RequestState]) -> list[_Question]:
        """Return the questions that each judge is asked about the answers."""
        if not self._judges:
            return []
        questions = []
        for index, state in enumerate(states):
            if not is_answered(state):
                continue
            criteria = rubric_criteria(state)
            for first in range(0, len(criteria), self._criteria_per_request):
                asked_criteria = criteria[first : first + self._criteria_per_request]
                questions.append(_Question(state, index, first, asked_criteria))
        return questions


def rubric_criteria(state: RequestState) -> list[Criterion]:
    """Return the criteria of the instance's rubric. The instance must have a rubric."""
    return [Criterion.from_dict(entry) for entry in (state.instance.extra_data or {})[RUBRICS_KEY]]


def is_answered(state: RequestState) -> bool:
    """Return True if the request has an answer.

    An answer that a content filter removed counts as an empty answer.
    """
    result = state.result
    return result is not None and (result.success or result.error == FILTERED_MESSAGE)


def _decisions(judge: _Judge, question: _Question, ask: _Ask) -> list[_Decision]:
    """Return one decision of the judge for each criterion of the question.

    If the judge gave no judgement, each decision holds the reason under the key
    `rubric.ERROR_FIELD`.
    """
    instance = question.state.instance
    count = len(question.criteria)
    answer = _answer_in(question.state)
    # An instance has at most one reference, the physician's answer.
    reference = instance.references[0].output.text if instance.references else None
    prompt = rubric.criterion_prompt(
        instance.input.messages or [], answer, question.criteria, reference
    )

    def read(text: str) -> list[dict[str, Any]]:
        return [decision.as_dict() for decision in rubric.parse_decisions(text, count, answer)]

    # `judging` is called here, because HELM passes all answers at once to this annotator.
    with judging(question.state), verdict_by(decisions_schema(count)):
        outcome = judgement(
            model=judge.deployment,  # eval-factory gives a judge's model the deployment's name.
            deployment=judge.deployment,
            prompt=prompt,
            ask=ask,
            read=read,
            role=judge.role,
            sample=(instance.extra_data or {}).get(SAMPLE_KEY),
        )
    if isinstance(outcome, NotJudged):
        return [{rubric.ERROR_FIELD: str(outcome)} for _ in question.criteria]
    return outcome


def requests_to_judges(state: ScenarioState) -> int:
    """Return the number of requests to all judges together about the answers in `state`.

    A second request after unusable output is not counted.
    """
    answered = [
        request_state for request_state in state.request_states if is_answered(request_state)
    ]
    total = 0
    for spec in state.annotator_specs or ():
        # A rubric names its judges in `judges`, a jury in `annotator_models`. Any other annotator
        # counts as one judge, with at most one request for each answer.
        judges = spec.args.get("judges") or spec.args.get("annotator_models") or ()
        total += max(len(judges), 1) * _requests_to_one_judge(spec, answered)
    return total


def requests_to_each_judge(state: ScenarioState) -> int:
    """Return the number of requests to each judge of a rubric, if the model answers every request.

    Returns 0 if the run has no rubric.
    """
    total = 0
    for spec in state.annotator_specs or ():
        if spec.class_name == names.RUBRIC_ANNOTATOR_CLASS:
            total += _requests_to_one_judge(spec, state.request_states)
    return total


def _requests_to_one_judge(spec: Any, states: Sequence[RequestState]) -> int:
    """Return the number of requests about the answers in `states` to one judge of an annotator."""
    # medhelm's HealthBench sends a request for each criterion, and a request that compares the
    # answer with the physician's answer, if there is a physician's answer.
    if spec.class_name in names.MEDHELM_HEALTHBENCH_ANNOTATORS:
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
    """Return the annotation of one answer of HealthBench Professional, in medhelm's form.

    This function replaces a method of medhelm, and preserves medhelm's formula. A judge's score is
    the mean of a rubric score and of a mark, by which the judge compares the answer with the
    physician's answer. Without a physician's answer, the score is the rubric score. Every judge's
    rubric score uses the decisions of the first judge without a failed request, because medhelm
    never empties its list of decisions.
    """
    return ask_about_each_criterion(self, state, professional=True)


def ask_about_each_criterion(
    self: Any, state: RequestState, *, professional: bool = False
) -> dict[str, Any]:
    """Return the annotation of one answer of HealthBench, in medhelm's form.

    This function replaces a method of medhelm's annotators. In medhelm, a failed request shifts
    each later decision to the criterion before. Here a judge with a failed request counts as a
    judge that gave no judgement. The annotation also lists each judge's decisions in the order of
    the criteria; the corrected score is computed from this list. `professional` is True for
    HealthBench Professional, whose judges also compare the answer with the physician's answer.
    """
    from helm.benchmark.annotation import health_bench_annotator as helms

    answer = _answer_in(state)
    if is_blank_answer(answer):
        return dict(_NO_ANSWER_ANNOTATION)
    extra: Mapping[str, Any] = state.instance.extra_data or {}
    turns = [*(state.instance.input.messages or []), {"content": answer, "role": "assistant"}]
    conversation = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
    prompt_of_answer = self._prompt_template.replace("<<conversation>>", conversation)
    prompts = [prompt_of_answer.replace("<<rubric_item>>", str(item)) for item in extra["rubrics"]]
    physicians_answer = extra.get("physician_response") if professional else None
    mark_prompts = []  # at most one prompt, which asks for the comparison
    if physicians_answer is not None:
        mark_prompts = [_mark_prompt(helms.EVAL_PROMPT, conversation, answer, physicians_answer)]
    schema_of_decision = decisions_schema(count=1)
    for judge in self._annotator_models.values():
        _note_prompt(self.name, self._prompt_template, schema_of_decision, judge.model_deployment)

    def read_decision(text: str) -> _Decision:
        (decision,) = rubric.parse_decisions(text, count=1, judged=answer)
        return decision.as_dict()

    def ask(question: tuple[str, str]) -> _Decision | NotJudged:
        name, prompt = question
        judge = self._annotator_models[name]
        is_mark = prompt in mark_prompts
        with verdict_by(mark_schema() if is_mark else schema_of_decision):
            return judgement(
                judge.model_name,
                judge.model_deployment,
                prompt,
                ask=self._auto_client.make_request,
                read=_read_mark if is_mark else read_decision,
            )

    # Each judge is asked for a decision about each criterion, and then for the mark, if any.
    questions = list(product(self._annotator_models, (*prompts, *mark_prompts)))
    decisions = map_at_once(ask, questions, at_once=len(questions))
    outcomes: dict[str, list[_Decision | NotJudged]] = {name: [] for name in self._annotator_models}
    for (name, _prompt), decision in zip(questions, decisions, strict=True):
        outcomes[name].append(decision)
    return _scored_annotation(
        outcomes,
        extra["rubrics"],
        score_of=helms.calculate_score,
        has_mark=bool(mark_prompts),
        professional=professional,
    )


def _mark_prompt(template: str, conversation: str, answer: str, physicians_answer: str) -> str:
    """Return medhelm's prompt that asks a judge to compare an answer with the physician's."""
    prompt = template.replace("<<user_message>>", conversation)
    prompt = prompt.replace("<<llm_response>>", answer)
    return prompt.replace("<<physician_response>>", physicians_answer)


def _scored_annotation(
    outcomes: Mapping[str, Sequence[_Decision | NotJudged]],
    rubrics: Sequence[Any],
    score_of: Callable[[list[Any], list[_Decision]], float | None],
    *,
    has_mark: bool,
    professional: bool,
) -> dict[str, Any]:
    """Return medhelm's annotation, extended by each judge's decisions and by the missing judges.

    An example is `{"gpt": {"accuracy": {"score": 0.7, "criteria": [{"criteria_met": true, ...},
    ...]}}}`; the extensions have the keys `names.DECISIONS_FIELD` and `names.NOT_JUDGED_FIELD`.

    Args:
        outcomes: a dict from each judge's name to the outcomes of the judge's requests: a decision
            for each criterion, in the order of the rubric, and last the mark, if there is one.
        rubrics: the criteria of the rubric, in medhelm's form.
        score_of: medhelm's formula, which returns None if there is no score.
        has_mark: True if the last outcome of each judge is a mark.
        professional: True to score with the decisions of all judges so far, as medhelm does.
    """
    annotation: dict[str, Any] = {}
    decided: dict[str, list[bool]] = {}
    missing: dict[str, str] = {}  # name of a judge -> the reason why the judge is missing
    scored_decisions: list[_Decision] = []
    for name, judges_outcomes in outcomes.items():
        failed = [outcome for outcome in judges_outcomes if isinstance(outcome, NotJudged)]
        judged = [outcome for outcome in judges_outcomes if not isinstance(outcome, NotJudged)]
        if failed:
            missing[name] = (
                f"{len(failed)} of {len(judges_outcomes)} decisions are missing: {failed[0]}"
            )
            continue
        scored_decisions = [*scored_decisions, *judged] if professional else judged
        # The formula reads only the first `len(rubrics)` decisions. For HealthBench Professional,
        # these are always the decisions of the first judge, and never a mark.
        score = score_of(list(rubrics), scored_decisions)
        if score is None:
            missing[name] = "medhelm's formula gives no score if the points of a rubric add up to 0"
            continue
        if has_mark:
            # The rubric score is a number up to 1, and the mark is a number up to 10. A mark has
            # the form of a decision (`_read_mark`), and stands after the decisions.
            mark = judged[-1]["criteria_met"]
            score = (score + mark / 10) / 2
        annotation[name] = {"accuracy": {"score": score, "criteria": scored_decisions}}
        decisions_without_mark = judged[: len(rubrics)]
        decided[name] = [decision["criteria_met"] for decision in decisions_without_mark]
    if decided:
        annotation[names.DECISIONS_FIELD] = decided
    if missing:
        annotation[names.NOT_JUDGED_FIELD] = missing
    return annotation


def _read_mark(text: str) -> _Decision:
    """Return the mark by which a judge compares the answer with the physician's answer.

    medhelm's prompt asks for the mark under the key `criteria_met`, as for a criterion.

    Raises:
        UnusableJudgeOutput: the output holds no mark, several different marks, or a mark that is
            not a whole number from 1 to 10.
    """

    def read(decision: dict[str, Any]) -> _Decision:
        # The test of the type excludes true and false, which Python counts as 1 and 0.
        if type(decision["criteria_met"]) is not int or not 1 <= decision["criteria_met"] <= 10:
            raise UnusableJudgeOutput('"criteria_met" is not a whole number from 1 to 10')
        return decision

    return own_judgement(
        text,
        is_judgement=lambda record: "criteria_met" in record,
        wanted='"criteria_met"',
        is_repeated=lambda _record: False,  # The answer is not searched for marks.
        judged_noun="answer",
        read=read,
        verdict=lambda record: record["criteria_met"],
    )
