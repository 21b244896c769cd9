"""Stores the pictures that a model made.

Each picture is a file whose name is the SHA-256 of the picture. A stored answer holds a text that
names the picture instead of the content.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.endpoint.media import type_of
from eval_factory.endpoint.openai_answers import PICTURES_FIELD, FinalAnswer, UnusableAnswer
from eval_factory.endpoint.openai_api import BASE64_FIELD

# such as "sha256:9f86...0a08 image/png 51234 bytes"; groups: the SHA-256, and "png"
_MADE_PICTURE = re.compile(r"sha256:([0-9a-f]{64}) image/([a-z]+) [0-9]+ bytes")


def pictures_taken_out(answer: Any) -> tuple[Any, dict[str, bytes]]:
    """Return (the answer with a name instead of each picture, a dict from name to picture).

    An answer without a list of pictures is returned unchanged, with an empty dict.

    Raises:
        FinalAnswer: an entry of the list is not a picture. This is the error after which no further
            attempt is made: another answer would have the same fault.
    """
    parts = answer.get(PICTURES_FIELD) if isinstance(answer, Mapping) else None
    if not isinstance(parts, list) or answer.get("error"):
        return answer, {}  # `read_answer` later reports what is wrong
    named = []
    pictures = {}
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get(BASE64_FIELD), str):
            raise FinalAnswer(
                f"the answer holds a picture without {BASE64_FIELD}; a picture at a URL is not "
                "fetched"
            )
        try:
            data = base64.b64decode(part[BASE64_FIELD], validate=True)
        except (binascii.Error, ValueError):
            raise FinalAnswer(f"{BASE64_FIELD} of the answer is not valid base64") from None
        kind = type_of(data)
        if kind is None or not kind.startswith("image/"):
            raise FinalAnswer("the answer holds no PNG, JPEG, GIF or WebP picture")
        name = f"sha256:{hashlib.sha256(data).hexdigest()} {kind} {len(data)} bytes"
        pictures[name] = data
        named.append({**part, BASE64_FIELD: name})
    return {**answer, PICTURES_FIELD: named}, pictures


def picture_path_and_type(folder: Path, name: str) -> tuple[Path, str]:
    """Return (the path of the picture with this name, its media type); the file need not exist.

    Raises:
        UnusableAnswer: the name is not the name of a picture.
    """
    match = _MADE_PICTURE.fullmatch(name)
    if match is None:
        raise UnusableAnswer("the stored answer names no picture")
    return folder / f"{match[1]}.{match[2]}", f"image/{match[2]}"


def store_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Write pictures into a folder, each in one step.

    `pictures` is a dict from the name of each picture to its content.

    Raises:
        OSError: a picture cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in pictures.items():
        file, _ = picture_path_and_type(folder, name)
        temporary = file.with_name(f".{file.name}.{os.urandom(4).hex()}.part")
        temporary.write_bytes(data)
        temporary.replace(file)


def check_picture(folder: Path, name: str) -> None:
    """Check that the file of a picture that a model made is unchanged.

    Raises:
        UnusableAnswer: the file does not exist, or was changed.
    """
    file, _ = picture_path_and_type(folder, name)
    try:
        is_same = hashlib.sha256(file.read_bytes()).hexdigest() == file.stem
    except OSError:
        is_same = False
    if not is_same:
        raise UnusableAnswer(f"its picture {file.name} is not there any more, or was changed")
