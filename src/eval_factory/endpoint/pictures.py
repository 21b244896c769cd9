"""Pictures that a model made: each a file named by its SHA-256, which a stored answer names in place of the content."""

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
from eval_factory.endpoint.openai_api import BASE64, PICTURES, FinalAnswer, UnusableAnswer

_NAME = re.compile(r"sha256:([0-9a-f]{64}) image/([a-z]+) [0-9]+ bytes")


def taken_out(answer: Any) -> tuple[Any, dict[str, bytes]]:
    """An answer with a name in place of each picture, and the pictures by their names.

    Raises UnusableAnswer: it holds none; FinalAnswer: what it holds is no picture.
    """
    parts = answer.get(PICTURES) if isinstance(answer, Mapping) else None
    if not isinstance(parts, list) or answer.get("error"):
        return answer, {}  # whoever reads it says what is wrong
    named, found = [], {}
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get(BASE64), str):
            raise FinalAnswer(f"the answer holds a picture without {BASE64}; what a URL leads to is not fetched")
        try:
            data = base64.b64decode(part[BASE64], validate=True)
        except (binascii.Error, ValueError):
            raise FinalAnswer(f"{BASE64} of the answer is no base64") from None
        kind = type_of(data)
        if kind is None or not kind.startswith("image/"):
            raise FinalAnswer("the answer holds no PNG, JPEG, GIF or WebP picture")
        name = f"sha256:{hashlib.sha256(data).hexdigest()} {kind} {len(data)} bytes"
        found[name] = data
        named.append({**part, BASE64: name})
    return {**answer, PICTURES: named}, found


def file_of(folder: Path, name: str) -> tuple[Path, str]:
    """(where a picture is, its type). Raises UnusableAnswer: this is no name of one."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UnusableAnswer("the stored answer names no picture")
    return folder / f"{match[1]}.{match[2]}", f"image/{match[2]}"


def store(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in pictures.items():
        file, _ = file_of(folder, name)
        temporary = file.with_name(f".{file.name}.{os.urandom(4).hex()}.part")
        temporary.write_bytes(data)
        temporary.replace(file)


def look_for(folder: Path, name: str) -> None:
    """Raises UnusableAnswer: the file is not there, or is not what it was."""
    file, _ = file_of(folder, name)
    try:
        is_same = hashlib.sha256(file.read_bytes()).hexdigest() == file.stem
    except OSError:
        is_same = False
    if not is_same:
        raise UnusableAnswer(f"its picture {file.name} is not there any more, or was changed")
