"""HELM's executor, which asks what follows on an answer (a doubt, how sure the model is) when that answer is there.

All questions of one depth are asked together: first each as it is and in all other forms, then the first turn after it.
What the model says of how sure it is goes into a file of our own: no metric reads it. With `extra.blind_control` the
same questions are asked without their pictures too.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.core.safe_files import write_atomic
from eval_factory.endpoint.media import PLACE
from eval_factory.helm import names
from eval_factory.tasks.asked_again import (
    ANSWER_WITH_CONFIDENCE,
    ASK_CONFIDENCE,
    BLANK,
    BLIND,
    CONFIDENCE,
    CONFIDENCE_TOKENS,
    PUSHBACK,
    REPEAT,
    is_asked_again,
    parted,
    pushback_text,
    turn_of,
)
from eval_factory.tasks.rubric_case import ANSWER

GREY = 128
NO_ANSWER = "(no answer)"  # what stands for an empty answer: many endpoints refuse an empty turn

_Key = tuple[str, int, str]  # (instance, trial, name of the asking); its name is empty where the question is as it is


def answer_in_data(state: RequestState) -> str | None:
    found: str | None = (state.instance.extra_data or {}).get(ANSWER)
    return found


def answered(text: str) -> RequestResult:
    """As if a model had said it."""
    output = GeneratedOutput(text, 0, [], finish_reason={"reason": "stop"})
    return RequestResult(True, [], [output], cached=True, request_time=0)


class AskingWhatFollows:
    """Wraps HELM's executor; a run that asks nothing again goes through it as it is.

    Where the data hold all answers, nobody is asked.
    """

    def __init__(self, inner: Any, output_path: Path) -> None:
        self._inner, self.execution_spec = inner, inner.execution_spec
        self._output_path = output_path

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        there = [(one, answer_in_data(one)) for one in scenario_state.request_states]
        if all(text is not None for _, text in there):
            done = [replace(one, result=answered(text)) for one, text in there if text is not None]
            return replace(scenario_state, request_states=done)
        if any(state.instance.input.multimedia_content for state in scenario_state.request_states):
            states = [sent_with_text(state) for state in scenario_state.request_states]
            scenario_state = replace(scenario_state, request_states=states)
        if ANSWER_WITH_CONFIDENCE in scenario_state.adapter_spec.instructions:
            state = self._inner.execute(scenario_state)
            file = self._output_path / names.CONFIDENCE_FILE
            write_replies(file, state.request_states, lambda text: parted(text)[1])
            return replace(state, request_states=[with_answer_alone(one) for one in state.request_states])
        if not any(is_asked_again(_name(state)) for state in scenario_state.request_states):
            return self._inner.execute(scenario_state)
        by_depth: dict[int, list[RequestState]] = defaultdict(list)
        for state in scenario_state.request_states:
            by_depth[_depth(state)].append(state)
        blindfold, by_key = Blindfold(scenario_state.request_states, self._output_path), dict[_Key, RequestState]()
        for depth, states in sorted(by_depth.items()):
            asked = [_following(state, by_key) if depth else blindfold.on(_repeated(state)) for state in states]
            by_key.update((_key(one), one) for one in self._answered(scenario_state, asked))
        in_order = [by_key[_key(state)] for state in scenario_state.request_states]
        stated = [one for one in in_order if _name(one) == CONFIDENCE]
        if stated:
            write_replies(self._output_path / names.CONFIDENCE_FILE, stated)
        return replace(scenario_state, request_states=[one for one in in_order if _name(one) != CONFIDENCE])

    def _answered(self, scenario_state: ScenarioState, states: list[RequestState]) -> Iterator[RequestState]:
        """Those that have a result already are not asked."""
        yield from (one for one in states if one.result is not None)
        to_ask = [one for one in states if one.result is None]
        if to_ask:
            yield from self._inner.execute(replace(scenario_state, request_states=to_ask)).request_states


def sent_with_text(state: RequestState) -> RequestState:
    """With the pictures that stand beside an instance's text: HELM's adapters for text leave them out."""
    pictures, request = state.instance.input.multimedia_content, state.request
    text = "".join((request.prompt, *(one["content"] for one in request.messages or ())))
    is_ready = pictures is None or request.multimodal_prompt is not None or PLACE not in text
    return state if is_ready else replace(state, request=replace(request, multimodal_prompt=pictures))


def write_replies(file: Path, states: Iterable[RequestState], reply_in: Callable[[str], str | None] = str) -> None:
    """A reply (what `reply_in` finds in an answer) is null where there is none; `error` says why, where one may
    come."""
    lines = []
    for one in states:
        answer = one.result.completions[0].text if one.result and one.result.success else None
        said = None if answer is None else reply_in(answer)
        error = one.result.error if one.result and not one.result.success else None
        lines.append({"instance": one.instance.id, "trial": one.train_trial_index, "reply": said, "error": error})
    write_atomic(file, json.dumps(lines) + "\n")


def with_answer_alone(state: RequestState) -> RequestState:
    if state.result is None or not state.result.success:
        return state
    alone = [replace(one, text=parted(one.text)[0]) for one in state.result.completions]
    return replace(state, result=replace(state.result, completions=alone))


def _name(state: RequestState) -> str:
    return state.instance.perturbation.name if state.instance.perturbation else ""


def _key(state: RequestState) -> _Key:
    return str(state.instance.id), state.train_trial_index, _name(state)


def _depth(state: RequestState) -> int:
    return 1 if _name(state) == CONFIDENCE else turn_of(_name(state))


def _repeated(state: RequestState) -> RequestState:
    """Another draw has an answer of its own: `random` is a part of its key, and goes to no endpoint."""
    if not _name(state).startswith(REPEAT):
        return state
    marks = [mark for mark in (state.request.random, _name(state)) if mark]
    return replace(state, request=replace(state.request, random=" ".join(marks)))


def _following(state: RequestState, done: Mapping[_Key, RequestState]) -> RequestState:
    """The request with the answer before it; where that one failed or was withheld, its result."""
    turn = turn_of(_name(state))
    before = done[(str(state.instance.id), state.train_trial_index, f"{PUSHBACK}{turn - 1}" if turn > 1 else "")]
    if before.result is None or not before.result.success:
        return replace(state, result=before.result)
    said, asked = before.result.completions[0].text, before.request
    new = pushback_text(str(state.instance.id), turn) if turn else ASK_CONFIDENCE
    earlier = asked.messages or [{"role": "user", "content": asked.prompt}]
    turns = [{"role": "assistant", "content": said.strip() or NO_ANSWER}, {"role": "user", "content": new}]
    text = f"{asked.prompt}{said}\n\n{new}\n"  # what an endpoint for completions gets
    request = replace(asked, messages=[*earlier, *turns], prompt=text)
    if not turn:
        request = replace(request, max_tokens=max(asked.max_tokens, CONFIDENCE_TOKENS), stop_sequences=[])
    return replace(state, request=request)


class Blindfold:
    """Replaces the pictures of questions: by grey ones of their size, or by those of another question.

    A model that answers as well then did not need the pictures.
    """

    def __init__(self, states: Sequence[RequestState], output_path: Path) -> None:
        """`states`: of all questions; the pictures of those that are asked as they are change places."""
        self._folder = output_path / names.SCENARIOS_FOLDER / "blind_control"
        plain = [one for one in states if one.instance.perturbation is None] if any(map(_is_blind, states)) else []
        own = {str(one.instance.id): _pictures(one) for one in plain}
        contents = {name: _contents(pictures) for name, pictures in own.items()}
        drawn = sorted((name for name, pictures in own.items() if pictures), key=lambda name: _digest(name.encode()))
        self._others: dict[str, list[MediaObject]] = {}
        for at, name in enumerate(drawn):
            following = (drawn[(at + step) % len(drawn)] for step in range(1, len(drawn)))
            others = (own[one] for one in following if contents[one].isdisjoint(contents[name]))
            self._others[name] = next(others, [])

    def on(self, state: RequestState) -> RequestState:
        """The request with other pictures; as it is where it has none, or no question has another one."""
        prompt = state.request.multimodal_prompt
        if not _is_blind(state) or prompt is None:
            return state
        is_blank, changed = state.instance.perturbation.name == BLIND + BLANK, list[MediaObject]()
        others, seen = self._others.get(str(state.instance.id), []), 0
        for one in prompt.media_objects:
            if _is_picture(one) and (is_blank or others):
                changed.append(self._blank(one) if is_blank else others[seen % len(others)])
                seen += 1
            else:
                changed.append(one)
        return replace(state, request=replace(state.request, multimodal_prompt=MultimediaObject(changed)))

    def _blank(self, picture: MediaObject) -> MediaObject:
        from PIL import Image  # few runs have pictures

        try:
            with Image.open(str(picture.location)) as opened:
                size = opened.size
        except OSError:  # a broken file fails its request in either form
            return picture
        file = self._folder / f"blank_{size[0]}x{size[1]}.png"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", size, GREY).save(file)
        return MediaObject(content_type="image/png", location=str(file))


def _is_blind(state: RequestState) -> bool:
    perturbation = state.instance.perturbation
    return perturbation is not None and perturbation.name.startswith(BLIND)


def _pictures(state: RequestState) -> list[MediaObject]:
    prompt = state.request.multimodal_prompt
    return [one for one in prompt.media_objects if _is_picture(one)] if prompt else []


def _is_picture(one: MediaObject) -> bool:
    return bool(one.is_type("image") and one.location)


def _contents(pictures: Sequence[MediaObject]) -> set[bytes]:
    """Questions may share a picture, under another name too."""
    return {_digest(Path(str(one.location)).read_bytes()) for one in pictures if Path(str(one.location)).is_file()}


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
