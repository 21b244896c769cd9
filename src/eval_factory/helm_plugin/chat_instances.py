"""Conversations as HELM has them: what an instance of one is made of, and the adapter that sends its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helm.benchmark.adaptation.adapter_spec import ADAPT_CHAT, AdapterSpec
from helm.benchmark.scenarios.scenario import CORRECT_TAG, Input, Output, Reference

from eval_factory.tasks.rubric_case import conversation_text


def chat_adapter(max_tokens: int) -> AdapterSpec:
    """The messages of an instance are sent as they are, turn by turn."""
    return AdapterSpec(
        method=ADAPT_CHAT, input_prefix="", input_suffix="", output_prefix="", output_suffix="",
        max_train_instances=0, num_outputs=1, max_tokens=max_tokens, temperature=0.0, stop_sequences=[],
    )  # fmt: skip


def input_of(messages: Sequence[Mapping[str, str]]) -> Input:
    """The turns, and one text of them for what reads no turns."""
    return Input(text=conversation_text(messages), messages=[dict(one) for one in messages])


def right_answers(answer: str | None) -> list[Reference]:
    """None where nobody has said what is right."""
    return [] if answer is None else [Reference(Output(text=answer), tags=[CORRECT_TAG])]
