"""Pictures and sounds of a request: what is sent of a file, how it is known, how it reads."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from builders import plan
from eval_factory.endpoint import limits, media, openai_api
from eval_factory.endpoint.media import SendingRule, UnusableMedium
from facts import naming
from seeing_endpoint import content_of, middle_of, picture, tone

ASKED = {"max_tokens": 5, "temperature": 0.0, "prompt": ""}


def body_of(*contents: str | Path, max_image_side: int | None = None) -> dict[str, Any]:
    """As it is stored; HELM calls every file a JPEG."""
    files = ({"content_type": "image/jpeg", "location": str(one)} for one in contents)
    objects = [
        one if one["location"] not in contents else {"text": one["location"]} for one in files
    ]
    model = plan(
        {"config.type": "vqa_rad", "config.params.extra.max_image_side": max_image_side}
    ).model
    return model.body_of({**ASKED, "multimodal_prompt": {"media_objects": objects}})


def key_of(*contents: str | Path, max_image_side: int | None = None) -> str:
    return openai_api.request_key(
        "https://h/v1", body_of(*contents, max_image_side=max_image_side), None
    )


def sent(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the one message that goes out."""
    (message,) = json.loads(openai_api.json_text(media.with_file_contents(body)))["messages"]
    assert message["role"] == "user"
    return list(message["content"])


def written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


def shown(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        *(
            (picture("red", kind=kind), f"image/{kind.lower()}")
            for kind in ("PNG", "JPEG", "GIF", "WEBP")
        ),
        (tone(440), "audio/wav"),
        (b"ID3\x04" + bytes(99), "audio/mpeg"),
        (b"\xff\xfb\x90\x64" + bytes(99), "audio/mpeg"),
        (b"fLaC" + bytes(99), "audio/flac"),
        (picture("red", kind="BMP"), None),
        (picture("red", kind="TIFF"), None),
        (b"<svg/>", None),
        (b"", None),
        (b"\xff", None),
        (b"RIFF\0\0\0\0AVI ", None),
    ],
)
def test_the_type_is_what_the_content_says(data: bytes, kind: str | None) -> None:
    assert media.type_of(data) == kind


def test_parts_stand_in_their_order_with_the_files_own_bytes(tmp_path: Path) -> None:
    png = written(tmp_path / "0.jpg", picture("blue"))
    sound = written(tmp_path / "1.mp3", tone(440))
    body = body_of("First.", "\n", png, "What is it?", sound)
    parts = sent(body)
    assert [part["type"] for part in parts] == ["text", "text", "image_url", "text", "input_audio"]
    assert [part["text"] for part in parts if part["type"] == "text"] == [
        "First.",
        "\n",
        "What is it?",
    ]
    assert parts[2]["image_url"]["url"].startswith("data:image/png;base64,"), (
        "whatever its name says"
    )
    assert parts[4]["input_audio"]["format"] == "wav"
    assert (content_of(parts[2]), content_of(parts[4])) == (png.read_bytes(), sound.read_bytes())
    stored = json.loads(openai_api.json_text(body))["messages"][0]["content"]
    digest = hashlib.sha256(png.read_bytes()).hexdigest()
    assert stored[2]["image_url"]["url"] == f"sha256:{digest} image/png {png.stat().st_size} bytes"
    assert base64.b64encode(png.read_bytes()).decode()[:40] not in json.dumps(stored)


def test_a_key_goes_by_what_is_sent_and_not_by_where_it_lies(tmp_path: Path) -> None:
    one = written(tmp_path / "one.png", picture("red", side=100))
    same = written(tmp_path / "same.png", one.read_bytes())
    other = written(tmp_path / "other.png", picture("blue"))
    assert key_of("What?", one) == key_of("What?", same) != key_of("What?", other)
    assert key_of("What?", one) != key_of("Where?", one) != key_of(one, "Where?")
    assert key_of(one) == key_of(one, max_image_side=100) != key_of(one, max_image_side=99)
    before = key_of(one)
    written(one, picture("blue", side=100))
    assert key_of(one) != before, "another picture under the same path"


def test_16_bits_become_8_from_black_to_white(tmp_path: Path) -> None:
    """Pillow's own `convert` makes all but the darkest of it white."""
    deep = Image.new("I;16", (3, 1))
    for x, value in enumerate((0, 32768, 65535)):
        deep.putpixel((x, 0), value)
    deep.save(tmp_path / "deep.png")
    (part,) = sent(body_of(tmp_path / "deep.png"))
    seen = shown(content_of(part))
    assert (seen.mode, seen.format, list(seen.tobytes())) == ("L", "PNG", [0, 128, 255])


@pytest.mark.parametrize(
    ("kind", "mode", "sent_as"),
    [
        ("PNG", "RGB", "PNG"),
        ("PNG", "P", "PNG"),
        ("PNG", "LA", "PNG"),
        ("JPEG", "RGB", "JPEG"),
        ("GIF", "P", "PNG"),
    ],
)
def test_a_large_picture_is_made_smaller(
    kind: str, mode: str, sent_as: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "large", picture("red", side=200, kind=kind, mode=mode))
    (part,) = sent(body_of(file, max_image_side=50))
    seen = shown(content_of(part))
    assert (seen.size, seen.format) == ((50, 50), sent_as)
    assert mode == "LA" or middle_of(content_of(part)) == "red"
    (untouched,) = sent(body_of(file, max_image_side=200))
    assert content_of(untouched) == file.read_bytes()


def test_a_photograph_that_a_mark_turns_stays_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (200, 100), "red").save(tmp_path / "x.jpg", "JPEG", exif=exif)
    (part,) = sent(body_of(tmp_path / "x.jpg", max_image_side=50))
    assert shown(content_of(part)).size == (25, 50)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (picture("red")[:200], "x.jpg is a broken picture (image/png): "),
        (picture("red", kind="JPEG")[:300], "x.jpg is a broken picture (image/jpeg): "),
        (b"\x89PNG\r\n\x1a\n", "x.jpg is a broken picture (image/png): "),
        (
            picture("red", kind="BMP"),
            "x.jpg is neither a PNG, JPEG, GIF or WebP picture nor a WAV, MP3 or FLAC sound",
        ),
        (None, "x.jpg is not there"),
        ("a pipe", "x.jpg is not a file"),
    ],
)
def test_what_cannot_be_sent_says_so(data: bytes | str | None, said: str, tmp_path: Path) -> None:
    if isinstance(data, bytes):
        written(tmp_path / "x.jpg", data)
    elif data == "a pipe":
        os.mkfifo(tmp_path / "x.jpg")
    with pytest.raises(UnusableMedium) as caught:
        body_of(tmp_path / "x.jpg")
    assert said in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_changes_before_it_is_sent_is_not_sent(tmp_path: Path) -> None:
    file = written(tmp_path / "x.png", picture("red"))
    body = body_of(file)
    written(file, picture("blue"))
    with pytest.raises(UnusableMedium, match=naming("was changed")):
        media.with_file_contents(body)


@pytest.mark.parametrize(
    ("sides", "max_image_side", "tokens"),
    [
        ((1024, 1024), None, 765),
        ((2048, 4096), None, 1105),
        ((150, 150), None, 255),
        ((513, 512), None, 425),
        ((4000, 40), None, 765),
        ((1024, 1024), 512, 255),
        ((1024, 1024), 4000, 765),
    ],
)
def test_a_picture_takes_tokens_for_each_tile(
    sides: tuple[int, int], max_image_side: int | None, tokens: int, tmp_path: Path
) -> None:
    """The first two are OpenAI's own examples, the third its price calculator's."""
    Image.new("1", sides).save(tmp_path / "x.png")
    assert media.tokens_of(tmp_path / "x.png", max_image_side) == tokens
    assert (
        media.tokens_in(body_of("What?", tmp_path / "x.png", max_image_side=max_image_side))
        == tokens
    )


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (tone(440, seconds=2), 21),
        (b"ID3" + bytes(99), 0),
        (picture("red")[:20], 0),
        (b"", 0),
        (tone(440)[:28] + bytes(9), 0),
    ],
)
def test_a_second_of_sound_takes_ten_tokens_and_nothing_is_guessed(
    data: bytes, tokens: int, tmp_path: Path
) -> None:
    assert media.tokens_of(written(tmp_path / "x", data), None) == tokens


def test_a_limit_a_minute_counts_pictures(tmp_path: Path) -> None:
    file = written(tmp_path / "x.png", picture("red"))
    of_text = limits.estimated_tokens(json.loads(openai_api.json_text(body_of("What?", file))))
    assert limits.estimated_tokens(body_of("What?", file)) == of_text + 255


def test_as_a_text_a_picture_is_a_line(tmp_path: Path) -> None:
    file = written(tmp_path / "x.png", picture("red", side=48))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    objects = [
        {"content_type": "text/plain", "text": "Look."},
        {"content_type": "image/jpeg", "location": str(file)},
        {"content_type": "text/plain", "text": "Is it red?"},
        {"content_type": "image/png", "location": str(tmp_path / "y")},
    ]
    assert media.as_text(objects).splitlines() == [
        "Look.",
        f"[image 1: image/png, {file.stat().st_size} bytes, sha256 {digest}]",
        "Is it red?",
        "[image 2: y is not there]",
    ]


def test_a_text_has_its_pictures_in_their_places(tmp_path: Path) -> None:
    """A judge's request has its text among the media objects, too; what was cut with its place is not left out unsaid."""
    files = [
        {"location": str(written(tmp_path / f"{name}.png", picture(name)))}
        for name in ("red", "blue")
    ]
    turns = [
        {"role": "user", "content": f"A{media.FILE_MARK}\n{media.FILE_MARK}"},
        {"role": "assistant", "content": media.FILE_MARK},
    ]
    first, second = media.messages_of([*files, {"text": "A"}], SendingRule(), turns)
    assert [part["type"] for part in first["content"]] == ["text", "image_url", "image_url"]
    assert second["content"] == [{"type": "text", "text": media.FILE_MARK}], (
        "what a model said has no picture"
    )
    alone = media.messages_of(
        [*files, {"text": "A"}], SendingRule(), [{"role": "user", "content": "A"}]
    )
    assert [part["type"] for part in alone[0]["content"]] == ["image_url", "image_url", "text"]
    with pytest.raises(UnusableMedium, match=naming("no place in")):
        media.messages_of(
            files, SendingRule(), [{"role": "user", "content": f"A{media.FILE_MARK}"}]
        )
