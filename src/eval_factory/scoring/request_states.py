"""What one request of HELM's and its answer say."""

from __future__ import annotations

from typing import Any

from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.scoring.scores import InstanceKey

LONGEST_CATEGORY = 80


def key_of(state: output.RequestState) -> InstanceKey:
    perturbation = state.instance.perturbation
    return state.instance.id, state.train_trial_index, perturbation.name if perturbation else None


def has_failed(state: output.RequestState) -> bool:
    result = state.result
    return result is None or (not result.success and result.error != openai_api.FILTERED_MESSAGE)


def was_filtered(state: output.RequestState) -> bool:
    result = state.result
    return result is not None and not result.success and result.error == openai_api.FILTERED_MESSAGE


def finish_reason_of(state: output.RequestState) -> str | None:
    if was_filtered(state):
        return openai_api.FILTERED
    completions = state.result.completions if state.result else []
    reason = completions[0].finish_reason if completions else None
    return reason.get("reason") if reason else None


def text_of(state: output.RequestState) -> str:
    return state.result.completions[0].text if state.result and state.result.completions else ""


def prompt_of(state: output.RequestState) -> str:
    """What was asked, as one text: a request of several messages has no prompt of its own."""
    return str(state.request.get("prompt") or (state.instance.input.text if state.request.get("messages") else ""))


def gold_and_choices(instance: output.Instance) -> tuple[str, tuple[str, ...]]:
    """The text of the first right reference (empty: there is none), and those of all where some are wrong."""
    texts = tuple(reference.output.text for reference in instance.references)
    right = [one.output.text for one in instance.references if output.CORRECT_TAG in one.tags]
    return (right[0] if right else "", texts if len(right) < len(texts) else ())


def categories_of(instance: output.Instance) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    return {
        name: value
        for name, value in (instance.extra_data or {}).items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST_CATEGORY)
    }
