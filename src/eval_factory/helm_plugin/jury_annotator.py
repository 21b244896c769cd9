"""HELM's jury, asked through the engine: all judges at once, an unusable judgement asked for once more.

Takes the place of one method of HELM's `LLMAsJuryAnnotator`; prompts, criteria and the form of the annotations stay
HELM's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.annotation.model_as_judge import AnnotatorModelInfo, LLMAsJuryAnnotator
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.common.request import Request, RequestResult

from eval_factory.core.foreign_text import one_line
from eval_factory.helm import names
from eval_factory.helm.judge_output import UnusableJudgement, judgement_in
from eval_factory.helm_plugin.session import current_session

MOST_TOKENS = 4096
"""What HELM grants a judge."""

TRIES = 2
ASK_AGAIN = (
    "\n\nYour previous answer to this could not be used: {reason}."
    "\nAnswer again with the single JSON object described above and nothing else."
)


@dataclass(frozen=True)
class _NotJudged:
    """Why a judge gave no judgement."""

    text: str


def ask_judges_in_parallel() -> None:
    LLMAsJuryAnnotator.annotate = annotate


def annotate(self: Any, request_state: RequestState) -> dict[str, Any]:
    """The annotations of one answer: the prompt, and each judge's judgement where it gave one."""
    answer = request_state.result.completions[0].text if request_state.result else ""
    if not answer.strip():
        return {"prompt_text": None, "empty_output_equivalence_judgement": False}
    prompt = self._interpolate_prompt(request_state)
    judges: dict[str, AnnotatorModelInfo] = self._annotator_models

    def judged_by(name: str) -> dict[str, Any] | _NotJudged:
        return _judgement(self._auto_client.make_request, judges[name], prompt, self._annotation_criteria, answer)

    with ThreadPoolExecutor(max_workers=max(1, len(judges))) as pool:
        judgements = dict(zip(judges, pool.map(judged_by, judges), strict=True))
    given = {name: judgement for name, judgement in judgements.items() if not isinstance(judgement, _NotJudged)}
    missing = {name: reason.text for name, reason in judgements.items() if isinstance(reason, _NotJudged)}
    return {"prompt_text": prompt, **given, **({names.NOT_JUDGED: missing} if missing else {})}


def _judgement(
    ask: Callable[[Request], RequestResult],
    judge: AnnotatorModelInfo,
    prompt: str,
    criteria: dict[str, Any],
    answer: str,
) -> dict[str, Any] | _NotJudged:
    """One judge's judgement, or why there is none: it could not be asked, or twice gave none.

    What a judge answered in vain is kept, but not used again: the next run of the same command asks it anew.
    """
    request = Request(
        model=judge.model_name, model_deployment=judge.model_deployment, prompt=prompt, temperature=0.0,
        max_tokens=MOST_TOKENS,
    )  # fmt: skip
    asked: list[Request] = []
    for _ in range(TRIES):
        asked.append(request)
        try:
            result = ask(request)
        except Exception as error:  # a judge that cannot be asked at all said so already; the others go on
            return _NotJudged(one_line(str(error)))
        if not result.success or not result.completions:
            return _NotJudged(result.error or "it gave no answer")
        try:
            return judgement_in(result.completions[0].text, criteria, answer)
        except UnusableJudgement as fault:
            reason = str(fault)
            request = replace(request, prompt=prompt + ASK_AGAIN.format(reason=reason))
    # HELM's configurable benchmark calls a judge by its deployment, not by its role.
    role = get_model_deployment(judge.model_deployment).client_spec.args["role"]
    client = current_session().clients[role]
    for request in asked:
        client.forget(request, reason)
    return _NotJudged(f"unusable judgement: {reason}")
