"""HELM's jury, asked through our client: all judges at once, and once more where a judge's output is unusable.

Takes the place of one method of HELM's `LLMAsJuryAnnotator`; prompts, criteria and the form of the annotations stay
HELM's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.annotation.model_as_judge import AnnotatorModelInfo, LLMAsJuryAnnotator
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.common.request import Request, RequestResult

from eval_factory.core.foreign_text import one_line
from eval_factory.core.jury_form import JuryForm
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.helm import names
from eval_factory.helm.judge_output import Criteria, UnusableJudgeOutput, parse_judge_output, says_nothing
from eval_factory.helm_plugin import judge_prompts
from eval_factory.helm_plugin.session import current_session

MOST_TOKENS = 4096
"""What HELM grants a judge."""

TRIES = 2
ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)


@dataclass(frozen=True)
class _NotRated:
    """Why a judge gave no ratings."""

    reason: str


@dataclass(frozen=True)
class _Question:
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
    question = _Question(self._interpolate_prompt(request_state), self._annotation_criteria, answer, form)
    judge_prompts.note(self.name, self._prompt_template)
    judges: dict[str, AnnotatorModelInfo] = self._annotator_models

    def rated_by(name: str) -> dict[str, Any] | _NotRated:
        return _ratings_of(judges[name], question, self._auto_client.make_request)

    outcomes = dict(zip(judges, map_at_once(rated_by, list(judges), len(judges)), strict=True))
    rated = {name: ratings for name, ratings in outcomes.items() if not isinstance(ratings, _NotRated)}
    missing = {name: outcome.reason for name, outcome in outcomes.items() if isinstance(outcome, _NotRated)}
    return {"prompt_text": question.prompt, **rated, **({names.NOT_JUDGED: missing} if missing else {})}


def _ratings_of(
    judge: AnnotatorModelInfo, question: _Question, ask: Callable[[Request], RequestResult]
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
