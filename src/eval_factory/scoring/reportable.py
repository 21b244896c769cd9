"""Lists the reasons why the scores of a run may not be reported, and writes their messages.

A reason is a text whose further lines state the next step for the user. A result stores the reasons
in `validity.not_reportable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from eval_factory.core import formats
from eval_factory.core.results import (
    DEMO,
    AskedEndpoint,
    JudgeCounts,
    TaskResult,
)
from eval_factory.scoring.model_names import sentence_on_stated_models

if TYPE_CHECKING:
    from eval_factory.plan.run_plan import Plan
    from eval_factory.scoring.draft import Draft

_FORM_ADVICE = (
    "ask for the form in target.api_endpoint.adapter_config.custom_system_prompt, "
    "and look at the answers: results.jsonl has their `signs`"
)
_TOKENS_ADVICE = (
    "set config.params.extra.num_output_tokens, 4096 for example: "
    "a model that thinks first needs more tokens than the benchmark grants"
)
_PARSER_ADVICE = (
    "the server puts the complete answer into its reasoning field: configure this model's "
    "reasoning parser, or no parser (vLLM and SGLang: --reasoning-parser; llama.cpp: "
    "--reasoning-format)"
)
_ENDED_ADVICE = (
    "the model ended its answer without any text: look at the server's chat template and stop "
    "words (adapter_config.params_to_remove: [stop] sends no stop words)"
)
# for prompts and answers that do not fit into the context window
WINDOW_ADVICE = (
    "a larger context window of the server keeps the complete prompt (Ollama: num_ctx; "
    "llama.cpp: --ctx-size)"
)


class Unreadable(Enum):
    """The kinds of answers that the score cannot read."""

    UNPARSED = "unparsed"  # not in the form that the benchmark asks for
    UNFINISHED = "unfinished"  # cut off while the model was thinking
    CUT_OFF = "cut_off"  # empty, and cut off at the token limit
    FULL_WINDOW = "full_window"  # cut off before the token limit, because the window was full
    IN_REASONING = "in_reasoning"  # empty, with all text in the reasoning field
    ENDED = "ended"  # empty, and not cut off


_STATE_AND_ADVICE = {
    Unreadable.UNPARSED: ("are not in the form that the benchmark asks for", _FORM_ADVICE),
    Unreadable.UNFINISHED: ("were cut off while the model was thinking", _TOKENS_ADVICE),
    Unreadable.CUT_OFF: ("are empty and were cut off", _TOKENS_ADVICE),
    Unreadable.FULL_WINDOW: (
        "were cut off before their tokens were used up: the window is full",
        WINDOW_ADVICE,
    ),
    Unreadable.IN_REASONING: (
        "are empty, and ended with all their text in the reasoning field",
        _PARSER_ADVICE,
    ),
    Unreadable.ENDED: ("are empty, and were not cut off", _ENDED_ADVICE),
}
"""A dict from the kind of unreadable answers to (their description, advice for the user)."""


def reasons_against_reporting(draft: Draft) -> tuple[str, ...]:
    """Return the reasons why the scores of a finished draft may not be reported, with advice.

    Low coverage and a missing main score are not included: `why_not_reportable` adds these two.
    """
    extra = draft.plan.evaluation.extra
    reasons = [
        *demo_reasons(draft.plan),
        *unreadable_reasons(
            draft.instances.unreadable,
            draft.answers_with_form,
            extra.max_unreadable,
            draft.unreadable,
        ),
    ]
    # The limit of unreadable answers is also the limit of cut prompts.
    if len(draft.cut_prompts.keys) > extra.max_unreadable * draft.answers_with_form:
        reasons.append(draft.cut_prompts.make_note(draft.prompts_with_form))
    if draft.judged is not None:
        reasons += judge_reasons(draft.tally.judges, extra.max_judge_failures, draft.judged)
    reasons += other_model_reasons(draft.asked, extra.max_model_mismatch)
    return tuple(reasons)


def demo_reasons(plan: Plan) -> list[str]:
    """Return the reasons against a run that asked the embedded endpoint, which is the demo.

    If the model is the embedded endpoint, there is one reason. The exception is a run that scores
    existing answers: the run asks no model, and there is a reason only if a judge is the embedded
    endpoint, too. If only judges are the embedded endpoint, there is a reason for each of these
    judges.
    """
    judges = (*plan.judges, *plan.prescribed)  # the configured judges, and those that HELM names
    demo_judges = [judge.role for judge in judges if judge.is_demo]
    # `asks_demo` is False if the run scores existing answers.
    if plan.asks_demo or (plan.model.is_demo and demo_judges):
        return [DEMO]
    reasons = []
    for judge in demo_judges:
        reasons.append(
            f"judge {judge} was the embedded endpoint, which does not judge answers\n"
            f"  set the url, model_id and api_key of a model for {judge}"
        )
    return reasons


def unreadable_reasons(
    unreadable: int, answered: int, max_unreadable: float, kinds: Mapping[Unreadable, int]
) -> tuple[str, ...]:
    """Return a reason for each kind of unreadable answers that occurred, the most frequent first.

    Return no reason if the share of unreadable answers is at most `max_unreadable`.

    Args:
        unreadable: the number of unreadable answers.
        answered: the number of all answers, readable or not.
        max_unreadable: the greatest permitted share of unreadable answers.
        kinds: a dict from each kind of unreadable answers to their number.
    """
    if not answered or unreadable / answered <= max_unreadable:
        return ()
    limit = f"max_unreadable is {max_unreadable:g}"
    reasons = []
    for kind, count in Counter(kinds).most_common():
        if not count:
            continue
        state, advice = _STATE_AND_ADVICE[kind]
        reason = f"{count} of {answered} answers {state}"
        if count < unreadable:
            reason += f" (the score cannot read {unreadable} of {answered} answers)"
        reasons.append(f"{reason}; {limit}\n  {advice}")
    return tuple(reasons)


def judge_reasons(
    judges: Mapping[str, JudgeCounts], max_failures: float, judged: str = "answers"
) -> tuple[str, ...]:
    """Return a reason for each judge that failed too often.

    Args:
        judges: a dict from the role of each judge to its counts.
        max_failures: the greatest permitted share of answers without a usable judgement.
        judged: the plural noun for the objects of judgement, such as "criteria".
    """
    reasons = []
    for judge, counts in judges.items():
        if counts.asked and counts.failed / counts.asked > max_failures:
            reasons.append(
                f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} "
                f"{judged}, and max_judge_failures is {max_failures:g}\n"
                "  run the same command to ask this judge again (validity.failures state why the "
                "judge failed), or name another judge in extra.judges"
            )
    return tuple(reasons)


def other_model_reasons(
    endpoints: Mapping[str, AskedEndpoint], max_mismatch: float
) -> tuple[str, ...]:
    """Return a reason for each endpoint that answered with another model too often.

    Args:
        endpoints: a dict from each role to a record of its requests and of the models that
            answered.
        max_mismatch: the greatest permitted share of answers that state another model.
    """
    reasons = []
    for role, endpoint in endpoints.items():
        if endpoint.answers and endpoint.other_model / endpoint.answers > max_mismatch:
            reasons.append(
                f"{sentence_on_stated_models(role, endpoint)}, "
                f"and max_model_mismatch is {max_mismatch:g}\n"
                "  turn the gateway's fallback off and run again with --fresh (answers are kept); "
                "extra.max_model_mismatch: 1 accepts another name of the same model"
            )
    return tuple(reasons)


DEMO_MESSAGE = (
    "NOT REPORTABLE: demo: the embedded endpoint answered, which is not a model\n"
    "  set target.api_endpoint.url, model_id and api_key of a model"
)


def failure_in(not_reportable: str | None) -> str | None:
    """Return a message of `why_not_reportable` if the run has failed; else None.

    The exit code of a failed run is 1. A run of the demo endpoint is not reportable, but its exit
    code is 0.

    Args:
        not_reportable: the message; None if the scores may be reported.
    """
    if not_reportable == DEMO_MESSAGE:
        return None
    return not_reportable


def why_not_reportable(result: TaskResult, min_coverage: float) -> str | None:
    """Return a message with the reasons and next steps; None if the scores may be reported.

    Args:
        result: the result of a run, or an imported result.
        min_coverage: the smallest permitted share of instances with a score.
    """
    if result.reportable:
        return None
    messages = _messages_of(result.validity.not_reportable)
    is_imported = result.provenance.imported is not None
    if messages and is_imported:
        return "\n".join(messages)  # the stored reasons of an imported result are complete
    has_main_score = result.main_metric in result.scores
    is_covered = result.validity.instances.coverage >= min_coverage
    if not has_main_score and not result.something_to_ask:
        messages.insert(0, "NOT REPORTABLE: HELM computed no main metric; validity.notes say why")
    # Without a stored reason, the reason is low coverage or the missing main score.
    elif not is_covered or not messages:
        messages.insert(0, _message_of_coverage(result, min_coverage))
    return "\n".join(messages)


def _message_of_coverage(result: TaskResult, min_coverage: float) -> str:
    """Return the message about missing answers; if none is missing, about a missing main score.

    Args:
        result: a result that is not reportable.
        min_coverage: the smallest permitted share of instances with a score.
    """
    coverage = result.validity.instances.coverage
    if coverage >= min_coverage and result.main_metric not in result.scores:
        reason = f"{result.main_metric} has no value"
    else:
        share = formats.score(formats.rounded(coverage))
        reason = f"coverage {share}, min_coverage is {min_coverage:g}"
    if result.something_to_ask:
        advice = "run the same command again to ask for what is missing"
    else:
        advice = (
            "nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
        )
    return f"NOT REPORTABLE: {reason}\n  {advice}"


def _messages_of(reasons: Collection[str]) -> list[str]:
    """Return a message for each reason."""
    messages = []
    for reason in reasons:
        if reason == DEMO:
            messages.append(DEMO_MESSAGE)
        else:
            messages.append(f"NOT REPORTABLE: {reason}")
    return messages
