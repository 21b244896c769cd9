"""Handles the pictures and sounds of requests.

In a request's body, a `Medium` represents a file: a text with the SHA-256, type and size of the
content that is sent. Cache keys, cache.db and responses/ hold this text. The file is read again
when the request is sent, so that memory holds only the files of requests in flight.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.endpoint.media_metadata import (
    BrokenFile,
    end_of_first_tags,
    without_metadata,
)

MAX_FILE = 64 << 20  # the maximum size of a file, in bytes; no endpoint accepts a larger request
FILE_MARK = "\N{OBJECT REPLACEMENT CHARACTER}"
"""The character that stands for the next file in a request's text.

Code that changes the words of a text leaves this character where it is, and so the pictures.
"""
RESAMPLING = "LANCZOS"  # Pillow's filter for scaling a picture down
SOUND_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/flac": "flac"}
_TYPES_BY_BEGINNING = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"ID3": "audio/mpeg",
}
"""The media type of a file, by the first bytes of the file."""
_TYPES_IN_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
"""The media type of a RIFF file (WebP or WAV), by the name of its format in bytes 8 to 11."""


class UnusableMedium(Exception):
    """A file cannot be sent. The message does not name the file's folder."""


def type_of(data: bytes) -> str | None:
    """Return the media type of a file's content, such as `image/png`.

    Return None if files of this type cannot be sent. The first bytes decide, not the file's name,
    which may be wrong (HELM's vqa_rad calls every picture .jpg).
    """
    if data[:4] == b"RIFF":
        return _TYPES_IN_RIFF.get(data[8:12])
    if data[end_of_first_tags(data) :][:4] == b"fLaC":
        return "audio/flac"
    if _begins_with_mpeg_frame(data):
        return "audio/mpeg"
    for beginning, kind in _TYPES_BY_BEGINNING.items():
        if data.startswith(beginning):
            return kind
    return None


def _begins_with_mpeg_frame(data: bytes) -> bool:
    """Return True if the data begin with the header of an MPEG audio frame.

    The first eleven bits of the header are 1. Of the two bits of the layer, at least one is 1.
    """
    if len(data) < 2:
        return False
    has_sync_bits = data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    has_layer = data[1] & 0x06 != 0
    return has_sync_bits and has_layer


@dataclass(frozen=True)
class _Facts:
    """Facts about a file as it is on disk, or about the content that is sent of the file."""

    content_type: str | None  # None if files of this type cannot be sent
    size: int  # in bytes
    sha256: str


@dataclass(frozen=True)
class SendingRule:
    """The rule by which files are changed before they are sent."""

    max_image_side: int | None = None  # in pixels; a larger picture is scaled down
    keeps_metadata: bool = False  # True if EXIF, comments and tags are sent too


class Medium(str):
    """The text that represents a picture or sound in a request's body, with facts on its file."""

    file: Path
    facts: _Facts  # about the content that is sent
    rule: SendingRule
    tokens: int  # as `tokens_of` estimates them

    @classmethod
    def of(cls, file: Path, rule: SendingRule) -> Medium:
        """Read a file, and return the text that represents the file.

        Raises:
            UnusableMedium: the file cannot be sent.
        """
        facts = _sendable_facts(_version_of(file), rule)
        medium = cls(f"sha256:{facts.sha256} {facts.content_type} {facts.size} bytes")
        medium.file = file
        medium.facts = facts
        medium.rule = rule
        medium.tokens = tokens_of(file, rule.max_image_side)
        return medium

    def content(self) -> str:
        """Return the content that is sent: the base64 of a sound, or the data URL of a picture.

        Raises:
            UnusableMedium: the file was changed or removed.
        """
        data, kind = _sendable(_read(self.file), self.file.name, self.rule)
        if hashlib.sha256(data).hexdigest() != self.facts.sha256:
            raise UnusableMedium(f"{self.file.name} was changed during the run")
        text = base64.b64encode(data).decode("ascii")
        if kind.startswith("image/"):
            return f"data:{kind};base64,{text}"
        return text


def messages_of(
    media_objects: Iterable[Mapping[str, Any]],
    rule: SendingRule,
    turns: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the messages of a request with its files in them.

    If the turns have marks for files, return the turns with each file at its mark. Else return a
    single message of the user, with a part for each media object. The turns are then not used,
    because media objects hold texts, too.

    Args:
        media_objects: HELM's media objects: each has a `text`, or the `location` of a file.
        rule: the rule by which files are changed before they are sent.
        turns: the messages of the prompt, each with `role` and `content`; `FILE_MARK` stands for a
            file.

    Raises:
        UnusableMedium: a file cannot be sent, or has no mark.
    """
    if not any(FILE_MARK in turn["content"] for turn in turns):
        return [{"role": "user", "content": [_part(medium, rule) for medium in media_objects]}]
    # an iterator, from which each turn takes as many files as it has marks
    files = (medium for medium in media_objects if medium.get("text") is None)
    messages = []
    for turn in turns:
        content = turn["content"]
        if FILE_MARK in content:
            content = [_part(part, rule) for part in parts_with_files(content, files)]
        messages.append({**turn, "content": content})
    if next(files, None) is not None:
        raise UnusableMedium("a picture or sound has no place in the text")
    return messages


def parts_with_files(
    text: str, media_objects: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the parts of a text in their order, with a file at each mark.

    For an empty text, return the media objects as they are.

    Args:
        text: the text, in which each `FILE_MARK` stands for a file.
        media_objects: the files, in the order of their marks.
    """
    if not text:
        return list(media_objects)
    files = iter(media_objects)
    first, *rest = text.split(FILE_MARK)
    parts: list[Mapping[str, Any]] = [{"text": first}]
    for text_after_file in rest:
        parts.append(next(files, {"text": FILE_MARK}))  # without a file, the mark stays in the text
        parts.append({"text": text_after_file})
    # Drop blank texts, which some endpoints refuse.
    remaining: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("text") is None or part["text"].strip():
            remaining.append(part)
    return remaining


def _part(media_object: Mapping[str, Any], rule: SendingRule) -> dict[str, Any]:
    """Return the part of a message's content for a media object."""
    if media_object.get("text") is not None:
        return {"type": "text", "text": media_object["text"]}
    location = str(media_object.get("location"))
    if location.startswith(("http://", "https://")):
        raise UnusableMedium("a picture or sound on the web is not fetched")
    medium = Medium.of(Path(location), rule)
    kind = str(medium.facts.content_type)
    if kind in SOUND_FORMATS:
        return {
            "type": "input_audio",
            "input_audio": {"data": medium, "format": SOUND_FORMATS[kind]},
        }
    return {"type": "image_url", "image_url": {"url": medium}}


def with_file_contents(tree: Any) -> Any:
    """Return a body as it is sent: with the content of each file instead of its `Medium`.

    Raises:
        UnusableMedium: a file was changed or removed.
    """
    # `tree` is the body, or a value within it.
    if isinstance(tree, Medium):
        return tree.content()
    if isinstance(tree, Mapping):
        return {name: with_file_contents(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [with_file_contents(value) for value in tree]
    return tree


def tokens_in(tree: Any) -> int:
    """Return the tokens of all pictures and sounds in a body, as `tokens_of` estimates them."""
    if isinstance(tree, Medium):
        return tree.tokens
    if isinstance(tree, Mapping):
        return sum(map(tokens_in, tree.values()))
    if isinstance(tree, list):
        return sum(map(tokens_in, tree))
    return 0


def has_media(body: Mapping[str, Any]) -> bool:
    """Return True if the content of a message in a body is a list of parts, as with files."""
    for message in body.get("messages") or ():
        if isinstance(message, Mapping) and isinstance(message.get("content"), list):
            return True
    return False


def records_of(media_objects: Iterable[Mapping[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return a record of each file: its `type`, `sha256`, size (`bytes`), and path (`file`).

    The path is relative to the folder; None if the file is not in the folder. If the file cannot be
    read, the record has only the type that HELM states.
    """
    root = folder.resolve()
    records = []
    for media_object in media_objects:
        if media_object.get("text") is None:
            stated_type = str(media_object.get("content_type"))
            record: dict[str, Any] = {
                "type": stated_type,
                "sha256": None,
                "bytes": None,
                "file": None,
            }
            try:
                file = Path(str(media_object.get("location")))
                facts = _own_facts(_version_of(file))
                path = file.resolve()
                record["type"] = facts.content_type or stated_type
                record["sha256"] = facts.sha256
                record["bytes"] = facts.size
                if path.is_relative_to(root):
                    record["file"] = path.relative_to(root).as_posix()
            except UnusableMedium:
                pass  # the record keeps the type that HELM states
            records.append(record)
    return records


def as_text(media_objects: Iterable[Mapping[str, Any]]) -> str:
    """Return the media objects as one text: the texts in their order, with a line for each file.

    An example of such a line is `[image 1: image/png, 12 kB, sha256 0123456789abcdef]`.
    """
    text = ""
    counts = dict[str, int]()  # a dict from "image" or "audio" to the number of such files so far
    for media_object in media_objects:
        if media_object.get("text") is not None:
            text += str(media_object["text"])
            continue
        kind = str(media_object.get("content_type")).partition("/")[0]
        counts[kind] = counts.get(kind, 0) + 1
        try:
            facts = facts_of(Path(str(media_object.get("location"))))
            size = f"{facts.size} bytes" if facts.size < 1000 else f"{facts.size / 1000:.0f} kB"
            description = (
                f"{facts.content_type or 'of an unknown type'}, {size}, sha256 {facts.sha256[:16]}"
            )
        except UnusableMedium as error:
            description = str(error)
        line_break = ""
        if text and not text.endswith("\n"):
            line_break = "\n"
        text += f"{line_break}[{kind} {counts[kind]}: {description}]\n"
    return text


def facts_of(file: Path, max_size: int = MAX_FILE) -> _Facts:
    """Return the type, size in bytes and SHA-256 of a file as it is on disk.

    Raises:
        UnusableMedium: the file does not exist, has more than `max_size` bytes, or cannot be read.
            The message begins with the file's name.
    """
    return _own_facts(_version_of(file, max_size))


class _Version(NamedTuple):
    """The state of a file.

    `_own_facts` and `_sendable_facts` cache their results by version, so that a changed file is
    read again.
    """

    file: Path
    size: int  # in bytes
    changed_ns: int  # the time of the last change, in nanoseconds since the epoch


def _version_of(file: Path, max_size: int = MAX_FILE) -> _Version:
    """Return the current version of a file.

    Raises:
        UnusableMedium: the file does not exist, or has more than `max_size` bytes.
    """
    try:
        state = file.stat()
    except (OSError, ValueError):
        raise UnusableMedium(f"{file.name} is not there") from None
    if not file.is_file() or state.st_size > max_size:
        raise UnusableMedium(f"{file.name} is not a file of {max_size >> 20} MiB or less")
    return _Version(file, state.st_size, state.st_mtime_ns)


def _read(file: Path) -> bytes:
    """Return the bytes of a file; raise `UnusableMedium` if the file cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UnusableMedium(f"{file.name} cannot be read: {error.strerror}") from None


@lru_cache(1 << 16)
def tokens_of(file: Path, max_image_side: int | None) -> int:
    """Return a rough estimate of the tokens of a picture or sound, from the header of its file.

    Return 0 if the header does not state the size or duration, as in an MP3 or FLAC. The actual
    numbers of different models differ by a factor of several.

    The estimate for a picture follows OpenAI's "Images and vision" for GPT-4o in high detail: the
    picture is scaled down so that its longer side has at most 2,048 pixels and its shorter side at
    most 768; it then takes 85 tokens, and 170 for each tile of 512 x 512. A WAV takes a token for
    each 100 ms, as OpenAI's "Managing costs" says.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(32)
        kind = type_of(head)
        if kind is None or not kind.startswith("image/"):
            return _tokens_of_sound(head, file.stat().st_size)
        from PIL import Image  # imported here: requests with text alone do not need Pillow

        with Image.open(file) as picture:
            sides = picture.size
        max_longer_side = min(2048, max_image_side or 2048)
        scale = min(1.0, 768 / min(sides), max_longer_side / max(sides))
        tiles_per_side = [math.ceil(round(side * scale) / 512) for side in sides]
        return 85 + 170 * math.prod(tiles_per_side)
    except Exception:  # Pillow raises errors of many kinds for a broken file
        return 0


def _tokens_of_sound(head: bytes, size: int) -> int:
    """Return the tokens of a WAV as `tokens_of` estimates them; 0 for other files.

    Args:
        head: the first 32 bytes of the file.
        size: the size of the file, in bytes.
    """
    if head[12:16] != b"fmt ":  # the first chunk of a WAV, which describes the sound
        return 0
    # The four bytes from byte 28 on are the number of bytes of a second of the sound.
    bytes_per_second: int = struct.unpack_from("<I", head, 28)[0]
    return math.ceil(10 * size / bytes_per_second)  # a token for each tenth of a second


@lru_cache(1 << 16)
def _own_facts(version: _Version) -> _Facts:
    """Return the facts about the file as it is on disk."""
    data = _read(version.file)
    return _Facts(type_of(data), len(data), hashlib.sha256(data).hexdigest())


@lru_cache(1 << 16)
def _sendable_facts(version: _Version, rule: SendingRule) -> _Facts:
    """Return the facts about the content that is sent of the file."""
    data, kind = _sendable(_read(version.file), version.file.name, rule)
    return _Facts(kind, len(data), hashlib.sha256(data).hexdigest())


def _sendable(data: bytes, name: str, rule: SendingRule) -> tuple[bytes, str]:
    """Return (the content that is sent of a file, the media type of the content).

    The content is the file without its metadata, unless the rule keeps the metadata. The pixels
    are only changed if a picture has 16 bits per sample, is larger than the rule allows, or has to
    be turned. A picture has to be turned if the metadata that are removed would turn it.

    Args:
        data: the bytes of the file.
        name: the file's name, for messages.
        rule: the rule by which files are changed.

    Raises:
        UnusableMedium: the file cannot be sent.
    """
    kind = type_of(data)
    if kind is None:
        raise UnusableMedium(
            f"{name} is neither a PNG, JPEG, GIF or WebP picture nor a WAV, MP3 or FLAC sound"
        )
    if kind in SOUND_FORMATS:
        return _sendable_sound(data, name, kind, rule), kind
    from PIL import Image  # imported here: requests with text alone do not need Pillow

    try:
        with Image.open(io.BytesIO(data)) as picture:
            picture.load()
            is_too_large = (
                rule.max_image_side is not None and max(picture.size) > rule.max_image_side
            )
            has_16_bits = kind == "image/png" and data[24] == 16  # byte 24 of a PNG: its bit depth
            is_turned = not rule.keeps_metadata and _is_turned(picture)
            if is_too_large or has_16_bits or is_turned:
                max_side = rule.max_image_side if is_too_large else None
                data, kind = _saved_again(picture, max_side, turn=is_turned)
            if rule.keeps_metadata:
                return data, kind
            try:
                return without_metadata(data, kind), kind
            except BrokenFile:  # Pillow could read the picture nevertheless
                data, kind = _saved_again(picture, max_side=None, turn=False)
                return without_metadata(data, kind), kind
    except Exception as error:  # Pillow raises errors of many kinds for a broken file
        raise UnusableMedium(
            f"{name} is a broken picture ({kind}): {type(error).__name__}"
        ) from None


def _sendable_sound(data: bytes, name: str, kind: str, rule: SendingRule) -> bytes:
    """Return the content that is sent of a sound: the file without its tags.

    Raises:
        UnusableMedium: the tags cannot be separated from the sound.
    """
    if rule.keeps_metadata:
        return data
    try:
        return without_metadata(data, kind)
    except BrokenFile as error:
        raise UnusableMedium(
            f"{name} is a sound ({kind}) whose tags cannot be removed ({error}); "
            "extra.keep_image_metadata: true sends it as it is"
        ) from None


_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = 1  # the value of the tag for pixels that need no turn; 2 to 8 are the turns


def _is_turned(picture: Any) -> bool:
    """Return True if EXIF says that the pixels have to be turned or mirrored.

    Return False for an animated picture, which is never turned.
    """
    is_animated = getattr(picture, "n_frames", 1) > 1
    return not is_animated and picture.getexif().get(_ORIENTATION, _UPRIGHT) in range(2, 9)


def picture_type(data: bytes, name: str) -> str:
    """Check that a picture can be sent, and return its media type.

    Raises:
        UnusableMedium: the data are broken, or are not a picture. The message begins with `name`.
    """
    _, kind = _sendable(data, name, SendingRule(keeps_metadata=True))
    if not kind.startswith("image/"):
        raise UnusableMedium(f"{name} is not a picture ({kind})")
    return kind


def _saved_again(picture: Any, max_side: int | None, *, turn: bool) -> tuple[bytes, str]:
    """Save a picture again with 8 bits per sample, and return (its bytes, its media type).

    A JPEG stays a JPEG; all other pictures become PNGs.

    Args:
        picture: the picture, as Pillow opened it.
        max_side: the new length of the longer side, in pixels; None: the size stays.
        turn: whether to turn the picture as its EXIF data say; a scaled picture is always turned.
    """
    from PIL import Image, ImageOps

    is_jpeg = picture.format == "JPEG"
    if picture.mode.startswith("I"):
        # 16 bits: `convert` alone would cut off values above 255. 1/257 maps 65,535 to 255, and 0.5
        # rounds. Pillow only accepts a factor and a number that is added to the product.
        picture = picture.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
    elif picture.mode in ("P", "1"):  # a palette cannot be resampled
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    if max_side is not None or turn:
        # Turn the pixels now: the saved picture has no EXIF data that would turn it.
        picture = ImageOps.exif_transpose(picture)
    if max_side is not None:
        scale = max_side / max(picture.size)
        size = tuple(max(1, round(side * scale)) for side in picture.size)
        picture = picture.resize(size, getattr(Image.Resampling, RESAMPLING))
    out = io.BytesIO()
    options: dict[str, int] = {}
    if is_jpeg:
        options["quality"] = 95
        if turn:
            # Do not average the colours of neighbouring pixels: the first JPEG has already done so.
            options["subsampling"] = 0
    picture.save(out, "JPEG" if is_jpeg else "PNG", **options)
    return out.getvalue(), "image/jpeg" if is_jpeg else "image/png"
