"""What one request of HELM's and its answer say, and which rows of the data stand there more
than once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.endpoint import media, openai_api
from eval_factory.helm import output
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.rubric_case import conversation_text


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


def media_prompt_of(state: output.RequestState) -> str:
    """What was asked where it holds pictures or sounds, with a line for each; empty where it
    holds none.
    """
    prompt = state.request.get(output.MULTIMODAL_PROMPT)
    messages = state.request.get("messages")
    text = conversation_text(messages) if messages else state.request.get("prompt", "")
    return media.as_text(media.placed(text, prompt[output.MEDIA_OBJECTS])) if prompt else ""


def shows_picture(instance: output.Instance) -> bool:
    content = (instance.input.multimedia_content or {}).get(output.MEDIA_OBJECTS, ())
    return any(str(one.get("content_type")).startswith("image/") for one in content)


def prompt_of(state: output.RequestState) -> str:
    """What was asked, as one text: a request of several messages has no prompt of its own."""
    if asked := media_prompt_of(state):
        return asked
    return str(
        state.request.get("prompt")
        or (state.instance.input.text if state.request.get("messages") else "")
    )


def sent_text(state: output.RequestState) -> str:
    """All text that the model was sent to read."""
    messages = state.request.get("messages")
    if messages:
        return conversation_text(messages)
    return media_prompt_of(state) or str(state.request.get("prompt") or "")


def media_of(state: output.RequestState, helm_dir: Path) -> tuple[dict[str, Any], ...]:
    """The files that were sent, by their paths in the folder that HELM's folder is in."""
    prompt = state.request.get(output.MULTIMODAL_PROMPT)
    # `verify` looks at a link to HELM's folder, and a file's path has none
    return (
        tuple(media.records_of(prompt[output.MEDIA_OBJECTS], helm_dir.resolve().parent))
        if prompt
        else ()
    )


def gold_and_choices(instance: output.Instance) -> tuple[str, tuple[str, ...]]:
    """The text of the first right reference (empty: there is none), and those of all where some
    are wrong.
    """
    texts = tuple(reference.output.text for reference in instance.references)
    right = [one.output.text for one in instance.references if output.CORRECT_TAG in one.tags]
    return (right[0] if right else "", texts if len(right) < len(texts) else ())


@dataclass
class RepeatedRows:
    """Goes through instances in their order. Of a text its hash is stored, never the text."""

    # ids of those with an earlier one's question and gold answer
    repeated: set[str] = field(default_factory=set)
    # ids of those with an earlier one's question alone
    with_another_gold: set[str] = field(default_factory=set)
    _first: dict[bytes, dict[bytes, str]] = field(default_factory=dict)

    def add(self, instance: str, question: str, gold: str, choices: Collection[str] = ()) -> bool:
        """Whether an earlier instance is the same. The same instance in another trial is no other
        one; the choices are a part of the question, in any order.
        """
        golds = self._first.setdefault(_hash(question, *sorted(choices)), {})
        first = golds.setdefault(_hash(gold), instance)
        if first != instance:
            self.repeated.add(instance)
        elif next(iter(golds.values())) != instance:
            self.with_another_gold.add(instance)
        return first != instance

    def notes(self, instances: int) -> Iterator[Note]:
        """`instances`: how many there are."""
        same = "an earlier one (the same question and gold answer, but for blanks and capitals)"
        other = "the question of an earlier one with another gold answer"
        for found, text in (
            (self.repeated, f"{same}: what they ask counts more than once"),
            (
                self.with_another_gold,
                f"{other}: an answer that is right for one may be wrong for the other",
            ),
        ):
            if found:
                yield Note(
                    Importance.BACKGROUND, f"{len(found)} of {instances} instances repeat {text}"
                )


def _hash(*texts: str) -> bytes:
    # it is a blank, which no text has left
    plain = "\x1f".join(" ".join(text.casefold().split()) for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()
