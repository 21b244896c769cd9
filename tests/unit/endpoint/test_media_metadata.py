"""Names and places in pictures and sounds: what is sent holds none, and the same pixels."""

from __future__ import annotations

import base64
import hashlib
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from PIL import Image, ImageOps, PngImagePlugin

from builders import endpoint_settings, plan
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.endpoint import media
from eval_factory.endpoint.media import Medium, SendingRule
from eval_factory.endpoint.media_metadata import BrokenFile, without_metadata
from eval_factory.plan.run_plan import SENDS_METADATA_KEY, Plan
from eval_factory.scoring.provenance import _picture_changes
from eval_factory.workflows.dry_run import preview
from seeing_endpoint import tone

NAME = b"Jane Roe 1961-02-03"
ARTIST = 0x013B
ORIENTATION = 0x0112
GPS = 0x8825


def drawn(mode: str = "RGB") -> Image.Image:
    picture = Image.new("RGB", (24, 16))
    for x in range(24):
        for y in range(16):
            picture.putpixel((x, y), (x * 10, y * 15, x * y // 2))
    return picture.convert(mode)


def exif(orientation: int = 1) -> bytes:
    known = Image.Exif()
    known[ARTIST] = NAME.decode()
    known[ORIENTATION] = orientation
    known.get_ifd(GPS)[1] = "N"
    return known.tobytes()


def profile() -> bytes:
    """No colour profile, but its bytes are kept by what writes pictures."""
    return struct.pack(">I", 128 + len(NAME)) + bytes(124) + NAME


def saved(form: str, **more: Any) -> bytes:
    out = io.BytesIO()
    picture = drawn("P" if form == "GIF" else "RGB")
    picture.save(out, form, **more)
    return out.getvalue()


def png() -> bytes:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", NAME.decode())
    texts.add_text("Description", NAME.decode(), zip=True)
    texts.add_itxt("Title", NAME.decode())
    return saved("PNG", pnginfo=texts, exif=exif(), icc_profile=profile(), dpi=(300, 300))


def jpeg() -> bytes:
    data = saved("JPEG", exif=exif(), icc_profile=profile(), comment=NAME, progressive=True)
    iptc = b"Photoshop 3.0\0" + NAME
    segment = b"\xff\xed" + struct.pack(">H", len(iptc) + 2) + iptc
    return data[:2] + segment + data[2:] + NAME  # as telephones add a second picture


def gif() -> bytes:
    frames = [drawn("P"), drawn("P").rotate(90)]
    out = io.BytesIO()
    frames[0].save(
        out, "GIF", save_all=True, append_images=frames[1:], loop=3, duration=50, comment=NAME
    )
    data = out.getvalue()
    xmp = b"\x21\xff\x0bXMP DataXMP" + bytes([len(NAME)]) + NAME + b"\0"
    return data[:-1] + xmp + data[-1:] + NAME


def webp() -> bytes:
    return saved("WEBP", exif=exif(), xmp=NAME, icc_profile=profile(), lossless=True)


def wav() -> bytes:
    data = tone(440)
    content = b"INFOIART" + struct.pack("<I", len(NAME)) + NAME + b"\0"
    listed = b"LIST" + struct.pack("<I", len(content)) + content
    body = data[8:12] + listed + data[12:] + listed
    return b"RIFF" + struct.pack("<I", len(body)) + body


def id3() -> bytes:
    content = b"TPE1" + struct.pack(">I", len(NAME) + 1) + b"\0\0\0" + NAME + bytes(40)
    return b"ID3\x03\0\0" + bytes([0, 0, len(content) >> 7, len(content) & 0x7F]) + content


FRAMES = b"\xff\xfb\x90\x00" + bytes(413)  # 417 bytes: 144 * 128,000 bit/s / 44,100 Hz


def mp3() -> bytes:
    ape_head = b"APETAGEX" + struct.pack("<IIII", 2000, 64, 1, 0xA0000000) + bytes(8)
    ape_foot = b"APETAGEX" + struct.pack("<IIII", 2000, 64, 1, 0x80000000) + bytes(8)
    ape = ape_head + NAME.ljust(32) + ape_foot
    return id3() + id3() + FRAMES + ape + b"TAG" + NAME.ljust(125)


def flac() -> bytes:
    info = b"\0" + (34).to_bytes(3, "big") + bytes(34)
    comment = b"\x84" + len(NAME).to_bytes(3, "big") + NAME
    return b"fLaC" + info + comment + b"\xff\xf8" + bytes(60)


PICTURES = {"png": png, "jpeg": jpeg, "gif": gif, "webp": webp}
SOUNDS = {"wav": wav, "mp3": mp3, "flac": flac}


REMOVING = SendingRule()


def medium(file: Path, data: bytes, rule: SendingRule = REMOVING) -> bytes:
    file.write_bytes(data)
    content = Medium.of(file, rule).content()
    return base64.b64decode(content.rpartition(",")[2])


def pixels(data: bytes) -> list[tuple[str, tuple[int, int], bytes]]:
    found = []
    with Image.open(io.BytesIO(data)) as picture:
        for frame in range(getattr(picture, "n_frames", 1)):
            picture.seek(frame)
            found.append((picture.mode, picture.size, picture.tobytes()))
    return found


@pytest.mark.parametrize("form", [*PICTURES, *SOUNDS])
def test_what_is_sent_holds_no_name(form: str, tmp_path: Path) -> None:
    data = {**PICTURES, **SOUNDS}[form]()
    assert NAME in data
    assert medium(tmp_path / "kept", data, SendingRule(keeps_metadata=True)) == data
    cut = medium(tmp_path / "cut", data)
    for part in (NAME, b"Exif", b"eXIf", b"EXIF", b"ICC", b"tEXt", b"zTXt", b"TAG", b"LIST"):
        assert part not in cut
    assert media.type_of(cut) == media.type_of(data)
    assert medium(tmp_path / "cut", cut) == cut


@pytest.mark.parametrize("form", PICTURES)
def test_pixels_are_the_same(form: str, tmp_path: Path) -> None:
    data = PICTURES[form]()
    cut = medium(tmp_path / "x", data)
    assert pixels(cut) == pixels(data)
    with Image.open(io.BytesIO(cut)) as shown:
        assert not shown.getexif()
        assert not {"comment", "xmp", "icc_profile", "exif"} & set(shown.info)
        if form == "gif":
            assert (shown.info["loop"], len(pixels(cut))) == (3, 2)
        if form == "png":
            assert round(shown.info["dpi"][0]) == 300


def test_samples_are_the_same() -> None:
    assert without_metadata(wav(), "audio/wav") == tone(440)
    assert without_metadata(mp3(), "audio/mpeg") == FRAMES
    assert without_metadata(flac(), "audio/flac").endswith(b"\xff\xf8" + bytes(60))


def segment(marker: int, content: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content


def chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc32(name + content))
    )


def riff(kind: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    body = kind
    for name, content in chunks:
        body += name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def in_jpeg() -> Iterator[tuple[str, bytes]]:
    plain = saved("JPEG")
    scan = plain.index(b"\xff\xda")
    for marker in (*range(0xE0, 0xF0), 0xDC, 0xFE):
        part = segment(marker, NAME)
        yield f"{marker:02x} before the scan", plain[:scan] + part + plain[scan:]
        yield f"{marker:02x} after the scan", plain[:-2] + part + plain[-2:]
    small_picture = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\1\1" + NAME)
    yield "small picture", plain[:2] + small_picture + plain[20:]
    yield "junk before a marker", plain[:scan] + NAME + plain[scan:]
    yield "second picture", plain + plain[:2] + segment(0xFE, NAME) + plain[2:]


def in_png() -> Iterator[tuple[str, bytes]]:
    plain = saved("PNG")
    names = (
        b"tEXt iTXt zTXt tIME sPLT prVt gIFx dSIG PLTE tRNS gAMA sRGB sBIT bKGD "
        b"hIST pHYs acTL cICP mDCV cLLI mDCv cLLi"
    )
    for name in names.split():
        part = chunk(name, NAME)
        if name != b"acTL":
            yield f"{name.decode()} at the beginning", plain[:33] + part + plain[33:]
        yield f"{name.decode()} at the end", plain[:-12] + part + plain[-12:]
    palette = chunk(b"PLTE", NAME + b"--")  # as a palette that no pixel needs
    yield "suggested palette", plain[:33] + palette + plain[33:]
    yield "after the end", plain + NAME
    yield "in the end", plain[:-12] + chunk(b"IEND", NAME)
    yield "in the head", plain[:8] + chunk(b"IHDR", plain[16:29] + NAME) + plain[33:]


def in_gif() -> Iterator[tuple[str, bytes]]:
    plain = saved("GIF")
    block = bytes([len(NAME)]) + NAME + b"\0"
    extensions = {
        "comment": b"\xfe" + block,
        "text": b"\x01" + block,
        "control": b"\xf9" + block,
        "control with more": b"\xf9\x04\0\0\0\0" + block,
        "repeats": b"\xff\x0bNETSCAPE2.0" + block,
        "repeats with more": b"\xff\x0bNETSCAPE2.0\x03\1\0\0" + block,
        "of no kind": b"\xce" + block,
    }
    begins = 13 + (3 << (plain[10] & 7) + 1)
    for name, extension in extensions.items():
        yield f"{name} at the beginning", plain[:begins] + b"\x21" + extension + plain[begins:]
        yield f"{name} at the end", plain[:-1] + b"\x21" + extension + plain[-1:]
    yield "after the end", plain + NAME


def in_webp() -> Iterator[tuple[str, bytes]]:
    head = b"VP8X", bytes(4) + (23).to_bytes(3, "little") + (15).to_bytes(3, "little")
    drawing = b"VP8L", saved("WEBP", lossless=True)[20:]
    for name in (b"EXIF", b"XMP ", b"ICCP", b"ABCD", b"ALPH", b"ANIM"):
        yield name.decode(), riff(b"WEBP", head, drawing, (name, NAME))
    yield "after the end", saved("WEBP", lossless=True) + NAME
    out = io.BytesIO()
    frames = [drawn(), drawn().rotate(90)]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    for where in (b"ANMF", b"ANIM"):
        chunks = []
        at = 12
        while at < len(moving := out.getvalue()):
            (length,) = struct.unpack_from("<I", moving, at + 4)
            content = moving[at + 8 : at + 8 + length]
            if moving[at : at + 4] == where:
                content += b"EXIF" + struct.pack("<I", len(NAME)) + NAME + b"\0"
            chunks.append((moving[at : at + 4], content))
            at += 8 + length + length % 2
        yield f"in {where.decode()} of a moving picture", riff(b"WEBP", *chunks)


def in_wav() -> Iterator[tuple[str, bytes]]:
    plain = tone(440)
    form = b"fmt ", plain[20:36]
    samples = b"data", plain[44:]
    assert riff(b"WAVE", form, samples) == plain
    names = b"LIST bext iXML id3_ cart axml _PMX cue_ note labl JUNK fact INFO DISP smpl".split()
    for name in names:
        part = name.replace(b"_", b" "), NAME
        yield f"{name.decode()} before", riff(b"WAVE", form, part, samples)
        yield f"{name.decode()} after", riff(b"WAVE", form, samples, part)
    yield "second format", riff(b"WAVE", form, samples, (b"fmt ", NAME))
    yield "second samples", riff(b"WAVE", form, samples, (b"data", NAME))
    yield "in the format", riff(b"WAVE", (b"fmt ", form[1] + NAME), samples)
    yield "after the end", plain + NAME
    yield "seven bytes after the end", plain + NAME[:7]


def in_mp3() -> Iterator[tuple[str, bytes]]:
    id3v1 = b"TAG" + NAME.ljust(125)
    lyrics = b"LYRICSBEGIN" + NAME
    footer = b"APETAGEX" + struct.pack("<IIII", 1000, 32 + len(NAME), 1, 0) + bytes(8)
    in_utf16 = b"TPE1\0\0\0\x28\0\0\1\xff\xfe" + NAME.decode().encode("utf-16-le")
    ends = {
        "ID3v1": id3v1,
        "ID3v1 with more": b"TAG+" + NAME.ljust(223) + id3v1,
        "APE": NAME + footer,
        "APE before ID3v1": NAME + footer + id3v1,
        "lyrics 1": lyrics + b"LYRICSEND" + id3v1,
        "lyrics 2": lyrics + b"000030LYRICS200" + id3v1,
        "ID3v2": id3(),
        "ID3v2 with a foot": b"ID3\4\0\x10\0\0\0\x40" + NAME.ljust(64) + b"3DI\4\0\x10\0\0\0\x40",
        "words": NAME,
    }
    for name, end in ends.items():
        yield f"{name} at the end", FRAMES * 3 + end
        yield f"{name} between joined files", FRAMES * 2 + end + FRAMES
    of_another_kind = 2 * (mpeg_frame(0xFD, 9, 0, 522)[: -len(NAME)] + NAME)
    yield "frames of another kind", FRAMES * 2 + of_another_kind + FRAMES
    yield "ID3v2 with a wrong size", b"ID3\3\0\0\0\0\0\5" + in_utf16 + FRAMES * 3
    yield "after an empty ID3v2", b"ID3\3\0\0\0\0\0\0" + NAME + FRAMES * 3


def in_flac() -> Iterator[tuple[str, bytes]]:
    info = (34).to_bytes(3, "big") + bytes(34)
    sound = b"\xff\xf8" + bytes(60)
    named = len(NAME).to_bytes(3, "big") + NAME
    for kind in range(7):
        yield f"block {kind}", b"fLaC\0" + info + bytes([0x80 | kind]) + named + sound
    yield "ID3v1", flac() + b"TAG" + NAME.ljust(125)
    footer = b"APETAGEX" + struct.pack("<IIII", 1000, 32 + len(NAME), 1, 0) + bytes(8)
    yield "APE", flac() + NAME + footer
    yield "ID3v2 twice", id3() + id3() + flac()


PLACES = {
    "jpeg": in_jpeg,
    "png": in_png,
    "gif": in_gif,
    "webp": in_webp,
    "wav": in_wav,
    "mp3": in_mp3,
    "flac": in_flac,
}


@pytest.mark.parametrize("form", PLACES)
def test_a_name_is_sent_from_no_place_of_a_file(form: str, tmp_path: Path) -> None:
    for place, data in PLACES[form]():
        cut = medium(tmp_path / "x", data)
        for name in (NAME[:7], NAME[:7].decode().encode("utf-16-le")):
            assert name not in cut, place
        if form in PICTURES:
            assert pixels(cut) == pixels(data), place
        elif form == "mp3":
            assert cut == FRAMES * 3, place
        elif form == "wav":
            assert cut == tone(440), place
        else:
            assert cut.endswith(b"\xff\xf8" + bytes(60)), place


def mpeg_frame(first: int, bit_rate: int, rate: int, size: int) -> bytes:
    return bytes((0xFF, first, bit_rate << 4 | rate << 2, 0)) + bytes(size - 4)


@pytest.mark.parametrize(
    ("first", "bit_rate", "rate", "size"),
    [
        (0xFB, 9, 1, 384),  # MPEG 1, layer III: 144 * 128,000 / 48,000
        (0xFD, 9, 0, 522),  # MPEG 1, layer II: 144 * 160,000 / 44,100
        (0xFF, 9, 2, 432),  # MPEG 1, layer I: 4 * (12 * 288,000 / 32,000)
        (0xF3, 8, 0, 208),  # MPEG 2, layer III: 72 * 64,000 / 22,050
        (0xE3, 8, 2, 576),  # MPEG 2.5, layer III: 72 * 64,000 / 8,000
    ],
)
def test_the_frames_of_each_kind_of_mpeg_stay(
    first: int, bit_rate: int, rate: int, size: int
) -> None:
    frames = 3 * mpeg_frame(first, bit_rate, rate, size)
    assert without_metadata(id3() + frames + NAME, "audio/mpeg") == frames


def test_a_format_of_wav_holds_no_more_than_it_says() -> None:
    known = struct.pack("<HHIIHHH", 2, 1, 8000, 4096, 256, 4, 32) + bytes(32)
    samples = b"data", bytes(256)
    plain = riff(b"WAVE", (b"fmt ", known), samples)
    assert without_metadata(plain, "audio/wav") == plain
    named = riff(b"WAVE", (b"fmt ", known + NAME), samples)
    assert without_metadata(named, "audio/wav") == plain
    too_long = known[:16] + b"\xff\xff" + NAME
    assert NAME not in without_metadata(riff(b"WAVE", (b"fmt ", too_long), samples), "audio/wav")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("audio/mpeg", id3() + b"\xff\xfb\x00\x00" + bytes(413)),  # its frames say no length
        ("audio/wav", riff(b"WAVE", (b"fmt ", bytes(16)), (b"data", b"")) + bytes(100)),
        ("audio/flac", b"fLaC\x80" + (20).to_bytes(3, "big") + bytes(80)),
    ],
)
def test_a_sound_whose_samples_nobody_finds_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(BrokenFile):
        without_metadata(data, kind)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_picture_is_sent_as_it_is_shown(
    form: str, orientation: int, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"quality": 95, "subsampling": 0} if form == "JPEG" else {}
    if form == "WEBP":
        more["lossless"] = True
    data = saved(form, exif=exif(orientation), **more)
    cut = medium(tmp_path / "x", data)
    assert NAME not in cut
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(cut)) as after:
        meant = ImageOps.exif_transpose(before).convert("RGB")
        assert after.size == meant.size
        pairs = zip(meant.tobytes(), after.convert("RGB").tobytes(), strict=True)
        assert max(abs(one - two) for one, two in pairs) <= (12 if form == "JPEG" else 0)


def test_a_smaller_picture_has_no_names_either(tmp_path: Path) -> None:
    for form, data in ((form, make()) for form, make in PICTURES.items()):
        cut = medium(tmp_path / form, data, SendingRule(max_image_side=12))
        assert NAME not in cut
        assert b"iCCP" not in cut


@pytest.mark.parametrize("kind", ["image/png", "image/jpeg", "image/gif", "audio/flac"])
def test_a_file_that_is_cut_off_is_told_apart(kind: str) -> None:
    whole = {"image/png": png, "image/jpeg": jpeg, "image/gif": gif, "audio/flac": flac}[kind]()
    for length in range(4, min(len(whole), 400)):
        try:
            cut = without_metadata(whole[:length], kind)
        except BrokenFile:
            continue
        assert NAME not in cut


def test_the_key_follows_what_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(png())
    objects = {"multimodal_prompt": {"media_objects": [{"location": str(file)}]}}
    asked = {"max_tokens": 5, "temperature": 0.0, "prompt": "", **objects}
    for keeps in (False, True):
        settings = endpoint_settings(keeps_metadata=keeps)
        content = medium(file, png(), settings.sending_rule)
        url = settings.body_of(asked)["messages"][0]["content"][0]["image_url"]["url"]
        assert hashlib.sha256(content).hexdigest() in url


KEY = "config.params.extra.keep_image_metadata"


def planned(folder: Path, **flags: Any) -> Plan:
    return plan({"config.type": "vqa_rad", "config.output_dir": str(folder), **flags})


def test_a_folder_of_before_keeps_its_rule(tmp_path: Path) -> None:
    new = planned(tmp_path)
    assert not new.model.keeps_metadata
    run_config = tmp_path / "run_config.yml"
    document = new.evaluation.as_dict()
    run_config.write_text(to_yaml(document))
    assert not planned(tmp_path).model.keeps_metadata
    del document["config"]["params"]["extra"]["keep_image_metadata"]
    run_config.write_text(to_yaml(document))
    before = planned(tmp_path)
    assert before.model.keeps_metadata
    assert before.sends_metadata_as_before
    assert before.identity == new.identity
    # as it is written when the folder goes on
    run_config.write_text(to_yaml({**new.evaluation.as_dict(), SENDS_METADATA_KEY: True}))
    assert planned(tmp_path).model.keeps_metadata
    text_only = plan({"config.output_dir": str(tmp_path)})
    assert not text_only.model.keeps_metadata


def test_it_is_said_before_and_after(tmp_path: Path) -> None:
    kept = planned(tmp_path, **{KEY: True})
    removed = planned(tmp_path)
    assert kept.identity != removed.identity
    assert "EXIF" in str(_picture_changes(removed, "1"))
    assert _picture_changes(kept, "1") is None
    assert _picture_changes(plan(), "1") is None
    assert "keep_image_metadata: true" in preview(removed.evaluation, [])
    assert "EXIF" in preview(kept.evaluation, [])
    assert "EXIF" not in preview(plan().evaluation, [])
