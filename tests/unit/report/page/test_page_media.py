"""Pictures and sounds in pages: what is shown, what is only named, and what a folder cannot smuggle in."""

from __future__ import annotations

import base64
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval_factory.report.documents import instance_fields
from eval_factory.report.page.blocks import readable_page
from eval_factory.report.page.document import result_page, shown_results
from eval_factory.report.page.page_media import PageMedia
from eval_factory.report.reader import load_result
from seeing_endpoint import COLOURS, middle_of, picture, tone
from stored_results import instance, kept, result, written

HELD = re.compile(r'data-sha256="(\w+)" data-type="([^"]*)">([^<]*)<')


def held_by(media: PageMedia, folder: Path, *records: dict[str, Any]) -> list[bytes]:
    """Return what it adds."""
    found = HELD.findall("".join(media.add(folder, records)))
    return [base64.b64decode(text, validate=True) for _, _, text in found]


def test_a_page_holds_each_content_once_and_without_texts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    red = kept(folder, "red.png", picture("red"))
    sound = kept(folder, "a.wav", tone(440), "audio/wav")
    again = kept(folder, "again.png", picture("red"))
    records = [
        instance("q0", 1.0, media=(red, sound)),
        instance("q1", 1.0, media=(again,)),
        instance("q2", 0.0),
    ]
    page = (written(folder, result(records)) / "report.html").read_text("utf-8")
    assert [one[:2] for one in HELD.findall(page)] == [
        (red["sha256"], "image/jpeg"),
        (sound["sha256"], "audio/wav"),
    ]
    assert "img-src data:; media-src data:;" in page
    readable = readable_page(page)
    assert (
        f'"media": [["image/png", "{red["sha256"]}", "{red["file"]}"], ["audio/wav", ' in readable
    )
    assert not HELD.search(readable), "another version of Pillow makes other bytes"
    stored = load_result(folder)
    assert [one.media for one in stored.result.instances] == [one.media for one in records]
    assert result_page(stored) == page
    without = result_page(stored, with_texts=False)
    assert not HELD.search(without)
    assert not any(
        word in readable_page(without) for word in (red["sha256"], "red.png", "audio/wav")
    )
    assert ["media" in instance_fields(one) for one in records] == [True, True, False]
    (tmp_path / "again").mkdir()  # as verify and annotate import make it
    (tmp_path / "again" / "helm").symlink_to(folder / "helm")
    assert (written(tmp_path / "again", result(records)) / "report.html").read_text("utf-8") == page


def test_what_one_of_two_results_has_lost_the_other_one_shows(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        written(
            folder, result([instance("q0", 1.0, media=(kept(folder, "red.png", picture("red")),))])
        )
    (folders[0] / "helm/scenarios/x/red.png").unlink()
    shown = shown_results([load_result(folder) for folder in folders], ["A", "B"])
    assert [len(HELD.findall("".join(one.instances.blocks))) for one in shown] == [0, 1]


def test_a_copy_is_small_upright_and_only_what_is_seen(tmp_path: Path) -> None:
    turned = Image.Exif()
    out = io.BytesIO()
    # a quarter to the right; a description
    turned[0x0112] = 6
    turned[0x010E] = "Miller, Jane"
    Image.new("RGB", (1600, 400)).save(out, "JPEG", exif=turned, comment=b"born 1950")
    record = kept(tmp_path, "a.jpg", out.getvalue(), "image/jpeg")
    (small,), (large,) = (held_by(PageMedia(side), tmp_path, record) for side in (512, 1024))
    assert [Image.open(io.BytesIO(one)).size for one in (small, large)] == [(128, 512), (256, 1024)]
    assert not any(word in small for word in (b"Miller", b"born"))


@pytest.mark.parametrize("mode", ["I;16", "LA", "RGBA", "P", "CMYK", "1"])
def test_every_kind_of_pixel_is_shown(mode: str, tmp_path: Path) -> None:
    drawn = Image.open(io.BytesIO(picture("green")))
    out = io.BytesIO()
    plain = Image.new(mode, (48, 48), 30_000) if mode == "I;16" else drawn.convert(mode)
    kind = "jpeg" if mode == "CMYK" else "png"
    plain.save(out, kind)
    (data,) = held_by(PageMedia(), tmp_path, kept(tmp_path, "a", out.getvalue(), f"image/{kind}"))
    middle: Any = Image.open(io.BytesIO(data)).getpixel((24, 24))
    assert (
        abs(middle[0] - 117) < 3
        if mode == "I;16"
        else mode in ("LA", "1") or middle_of(data) == "green"
    )


def test_beyond_the_limit_nothing_is_read_any_more(tmp_path: Path) -> None:
    first, second, third = (kept(tmp_path, f"{one}.png", picture(one, side=200)) for one in COLOURS)
    media = PageMedia(remaining=len(HELD.findall(PageMedia().add(tmp_path, [first])[0])[0][2]) + 9)
    assert [middle_of(data) for data in held_by(media, tmp_path, first, second, third)] == ["red"]
    assert (held_by(media, tmp_path, third), media.remaining) == ([], 0)
    assert (
        held_by(
            PageMedia(), tmp_path, kept(tmp_path, "long.wav", bytes(1 << 20) + b"!", "audio/wav")
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "kind", "data"),
    [
        ("broken.png", "image/png", picture("red")[:90]),
        ("markup.svg", "image/svg+xml", b"<svg onload='alert(1)'/>"),
        ("page.png", "text/html", b"<script>alert(1)</script>"),
        ("<script>.png", 'image/png" onerror="alert(1)', picture("red")),
        ("lies.png", "image/png", b"%!PS-Adobe-3.0 EPSF-3.0"),
    ],
)
def test_what_is_no_picture_is_a_line(name: str, kind: str, data: bytes, tmp_path: Path) -> None:
    records = [instance("q0", 1.0, media=(kept(tmp_path, name, data, kind),))]
    page = (written(tmp_path, result(records)) / "report.html").read_text("utf-8")
    assert (HELD.search(page), "onerror" in page, name in readable_page(page)) == (
        None,
        False,
        True,
    )


def test_no_file_elsewhere_is_shown_and_none_that_is_another_now(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    outside = tmp_path / "outside.png"
    record = kept(folder, "red.png", picture("red"))
    outside.write_bytes(picture("red"))
    (folder / "link.png").symlink_to(outside)
    os.mkfifo(folder / "fifo.png")
    for name in (str(outside), "../outside.png", "link.png", "fifo.png", "\0", "x" * 999):
        assert held_by(PageMedia(), folder, {**record, "file": name}) == [], name
    assert len(held_by(PageMedia(), folder, record)) == 1
    (folder / record["file"]).write_bytes(picture("blue"))
    assert held_by(PageMedia(), folder, record) == []
