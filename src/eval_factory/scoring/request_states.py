"""Reads facts from HELM's request states; finds repeated instances.

A request state is HELM's record of a request and its answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.endpoint import media, openai_answers
from eval_factory.helm import output
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.rubric_case import conversation_text


def key_of(state: output.RequestState) -> InstanceKey:
    """Return (id of the instance, number of the trial, name of the perturbation or None)."""
    perturbation = None
    if state.instance.perturbation is not None:
        perturbation = state.instance.perturbation.name
    return state.instance.id, state.train_trial_index, perturbation


def has_failed(state: output.RequestState) -> bool:
    """Return True if the request failed; an answer that a content filter withheld is no failure."""
    result = state.result
    return result is None or (
        not result.success and result.error != openai_answers.FILTERED_MESSAGE
    )


def was_filtered(state: output.RequestState) -> bool:
    """Return True if the endpoint's content filter withheld the answer."""
    result = state.result
    return (
        result is not None
        and not result.success
        and result.error == openai_answers.FILTERED_MESSAGE
    )


def finish_reason_of(state: output.RequestState) -> str | None:
    """Return the reason why the answer ended, such as "stop" or "length".

    Return None if the reason is unknown, or if there is no answer.
    """
    if was_filtered(state):
        return openai_answers.FILTERED
    completion = _completion_of(state)
    if completion is None or not completion.finish_reason:
        return None
    return completion.finish_reason.get("reason")


def answer_text_of(state: output.RequestState) -> str:
    """Return the text of the answer; an empty text if there is no answer."""
    completion = _completion_of(state)
    if completion is None:
        return ""
    return completion.text


def _completion_of(state: output.RequestState) -> output.Completion | None:
    """Return the first completion of a request; None if there is no completion."""
    if state.result is None or not state.result.completions:
        return None
    return state.result.completions[0]


def media_prompt_of(state: output.RequestState) -> str:
    """Return the prompt as a text with one line for each picture or sound.

    Return an empty text if the prompt contains no picture or sound.
    """
    multimodal = state.request.get(output.MULTIMODAL_PROMPT)
    if not multimodal:
        return ""
    text = state.request.get("prompt", "")
    messages = state.request.get("messages")
    if messages:
        text = conversation_text(messages)
    return media.as_text(media.parts_with_files(text, multimodal[output.MEDIA_OBJECTS]))


def shows_picture(instance: output.Instance) -> bool:
    """Return True if the question shows a picture."""
    media_objects = (instance.input.multimedia_content or {}).get(output.MEDIA_OBJECTS, ())
    return any(str(medium.get("content_type")).startswith("image/") for medium in media_objects)


def prompt_of(state: output.RequestState) -> str:
    """Return the prompt as reports show it.

    A request of several messages has no `prompt`; the text of its instance is returned instead.
    """
    prompt = media_prompt_of(state) or state.request.get("prompt")
    if not prompt and state.request.get("messages"):
        prompt = state.instance.input.text
    return str(prompt or "")


def sent_text(state: output.RequestState) -> str:
    """Return all text that was sent to the model, with every message of a conversation."""
    messages = state.request.get("messages")
    if messages:
        return conversation_text(messages)
    return media_prompt_of(state) or str(state.request.get("prompt") or "")


def media_of(state: output.RequestState, helm_dir: Path) -> tuple[dict[str, Any], ...]:
    """Return a record of each picture and sound that was sent: its type, SHA-256, size and path.

    Args:
        state: HELM's record of the request.
        helm_dir: HELM's folder; the paths of the records are relative to its parent folder.
    """
    multimodal = state.request.get(output.MULTIMODAL_PROMPT)
    if not multimodal:
        return ()
    # `verify` passes a link to HELM's folder, but the paths of media contain no links: resolve it.
    return tuple(media.records_of(multimodal[output.MEDIA_OBJECTS], helm_dir.resolve().parent))


def gold_and_choices(instance: output.Instance) -> tuple[str, tuple[str, ...]]:
    """Return (the gold answer, the choices).

    The gold answer is the text of the first right reference. It is empty if no reference is right.
    The choices are the texts of all references. There are no choices if all references are right:
    the references are then the right answers to an open question.
    """
    texts = []
    right_texts = []
    for reference in instance.references:
        texts.append(reference.output.text)
        if output.CORRECT_TAG in reference.tags:
            right_texts.append(reference.output.text)
    gold = ""
    if right_texts:
        gold = right_texts[0]
    if len(right_texts) == len(texts):
        return gold, ()
    return gold, tuple(texts)


@dataclass
class RepeatedInstances:
    """The instances that repeat the question of an earlier instance.

    Call `add` for each instance, in the order of the data. Questions with the same text and the
    same choices are the same question. Hashes of the texts are stored, never the texts.
    """

    # ids of instances with the question and the gold answer of an earlier instance
    with_same_gold: set[str] = field(default_factory=set)
    # ids of instances with the question of an earlier instance, but another gold answer
    with_another_gold: set[str] = field(default_factory=set)
    # hash of a question -> hash of a gold answer -> id of the first instance that has both
    _first: dict[bytes, dict[bytes, str]] = field(default_factory=dict)

    def add(self, instance: str, question: str, gold: str, choices: Collection[str] = ()) -> bool:
        """Add an instance, and return True if it repeats an earlier question and gold answer.

        Args:
            instance: the id; the same id in another trial does not count as a repetition.
            question: the text of the question.
            gold: the right answer.
            choices: the choices of the question, in any order.

        Returns:
            True if an earlier instance has the same question, choices and gold answer.
        """
        first_by_gold = self._first.setdefault(_hash(question, *sorted(choices)), {})
        first_with_gold = first_by_gold.setdefault(_hash(gold), instance)
        first_with_question = next(iter(first_by_gold.values()))  # the first that was added
        if first_with_gold != instance:
            self.with_same_gold.add(instance)
        elif first_with_question != instance:
            self.with_another_gold.add(instance)
        return first_with_gold != instance

    def notes(self, instances: int) -> Iterator[Note]:
        """Yield the notes on repeated instances; `instances` is the number of all instances."""
        if self.with_same_gold:
            yield Note(
                Importance.BACKGROUND,
                f"{len(self.with_same_gold)} of {instances} instances repeat an earlier instance "
                "(same question and gold answer, apart from blanks and capitals): these questions "
                "count more than once",
            )
        if self.with_another_gold:
            yield Note(
                Importance.BACKGROUND,
                f"{len(self.with_another_gold)} of {instances} instances repeat the question of an "
                "earlier instance with another gold answer: an answer that is right for one "
                "instance may be wrong for the other",
            )


def _hash(*texts: str) -> bytes:
    """Return a hash of the texts; texts that differ in case or white space have the same hash."""
    # No text contains the separator "\x1f": `split` treats the separator as white space.
    normalised_texts = [" ".join(text.casefold().split()) for text in texts]
    joined = "\x1f".join(normalised_texts)
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).digest()
