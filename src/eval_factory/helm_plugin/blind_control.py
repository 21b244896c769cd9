"""Replaces the pictures of questions (`extra.blind_control`).

A grey picture of equal size, or a picture of another question, replaces each picture. If a model
answers as well as before, the model did not need the pictures.

In this module, a "state" is HELM's `RequestState`: a question with the request that asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import cycle
from pathlib import Path

from helm.benchmark.adaptation.request_state import RequestState
from helm.common.media_object import MediaObject, MultimediaObject

from eval_factory.helm import names
from eval_factory.helm_plugin.further_askings import ORIGINAL_ASKING, asking_name
from eval_factory.tasks import asking_forms

GREY = 128  # the grey level of a blank picture, from 0 (black) to 255 (white)


class BlindControl:
    """The replacements of all pictures in a run."""

    def __init__(self, states: Sequence[RequestState], output_path: Path) -> None:
        """Choose for each question with pictures another question, which lends its pictures.

        Args:
            states: all states of the run; the pictures come from the original questions.
            output_path: the run's folder, in which grey pictures are stored.
        """
        self._folder = output_path / names.SCENARIOS_FOLDER / "blind_control"
        self._lent_pictures: dict[str, list[MediaObject]] = {}
        if any(map(_is_blind, states)):
            self._lent_pictures = _lent_pictures(states)

    def with_pictures_replaced(self, state: RequestState) -> RequestState:
        """Return the state with other pictures in its request.

        The state is returned unchanged if it has no pictures or is not part of the blind control.
        It is also returned unchanged if no other question can lend pictures.
        """
        prompt = state.request.multimodal_prompt
        if not _is_blind(state) or prompt is None:
            return state
        is_blank = asking_name(state) == asking_forms.BLIND_PREFIX + asking_forms.BLANK_PICTURE
        lent = self._lent_pictures.get(str(state.instance.id), [])
        if not is_blank and not lent:
            return state
        replacements = cycle(lent)  # The other question may have fewer pictures.
        media = []
        for medium in prompt.media_objects:
            if not _is_picture(medium):
                media.append(medium)
            elif is_blank:
                media.append(self._blank(medium))
            else:
                media.append(next(replacements))
        request = replace(state.request, multimodal_prompt=MultimediaObject(media))
        return replace(state, request=request)

    def _blank(self, picture: MediaObject) -> MediaObject:
        """Return a grey picture of the same size, stored in a file of the run's folder.

        If the file of the original picture cannot be read, the original picture is returned.
        """
        from PIL import Image  # imported late, because few runs have pictures

        try:
            with Image.open(str(picture.location)) as opened:
                width, height = opened.size
        except OSError:
            # A broken picture makes its request fail with or without the blind control.
            return picture
        file = self._folder / f"blank_{width}x{height}.png"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", (width, height), GREY).save(file)
        return MediaObject(content_type="image/png", location=str(file))


def _lent_pictures(states: Sequence[RequestState]) -> dict[str, list[MediaObject]]:
    """Return a dict from each id of a question with pictures to the pictures of another question.

    The questions are put in the order of a hash, as in a circle. The pictures come from the next
    question that has none of this question's pictures. The list is empty if there is no such
    question.
    """
    pictures_of = {}
    for state in states:
        pictures = _pictures(state)
        if pictures and asking_name(state) == ORIGINAL_ASKING:
            pictures_of[str(state.instance.id)] = pictures
    hashes_of = {question: _content_hashes(pictures) for question, pictures in pictures_of.items()}
    circle = sorted(pictures_of, key=lambda question: sha256(question.encode()).digest())
    lent: dict[str, list[MediaObject]] = {}
    for index, question in enumerate(circle):
        lent[question] = []
        for lender in (*circle[index + 1 :], *circle[:index]):
            if hashes_of[lender].isdisjoint(hashes_of[question]):
                lent[question] = pictures_of[lender]
                break
    return lent


def _is_blind(state: RequestState) -> bool:
    return asking_name(state).startswith(asking_forms.BLIND_PREFIX)


def _pictures(state: RequestState) -> list[MediaObject]:
    prompt = state.request.multimodal_prompt
    if not prompt:
        return []
    return [medium for medium in prompt.media_objects if _is_picture(medium)]


def _is_picture(medium: MediaObject) -> bool:
    return bool(medium.is_type("image") and medium.location)


def _content_hashes(pictures: Sequence[MediaObject]) -> set[bytes]:
    """Return the hashes of the pictures' contents. Pictures without a local file are skipped.

    Contents are compared, because two questions may show one picture under two file names.
    """
    hashes = set()
    for picture in pictures:
        file = Path(str(picture.location))
        if file.is_file():
            hashes.add(sha256(file.read_bytes()).digest())
    return hashes
