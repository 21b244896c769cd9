"""`extra.blind_control`: the same questions without their pictures.

In place of each picture stands a grey one of its size, or that of another question: a model that answers as well then
did not need the pictures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helm.benchmark.adaptation.request_state import RequestState
from helm.common.media_object import MediaObject, MultimediaObject

from eval_factory.helm import names
from eval_factory.tasks.asked_again import BLANK, BLIND

GREY = 128


class Blindfold:
    """Changes requests of one run."""

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
