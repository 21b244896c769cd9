"""Metadata of pictures and sounds: names, places, comments and tags, cut out of a file.

The segments and chunks that hold them are left out; samples and pixels stay, byte for byte. A
colour profile goes too: its description is free text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping

REMOVED = "EXIF, XMP, IPTC, colour profiles, comments and tags"

_PNG_HEAD = 8
_PNG_KEPT = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB sBIT bKGD hIST pHYs "
    b"acTL fcTL fdAT cICP mDCv cLLi".split()
)
_WEBP_KEPT = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF"))
_WEBP_FLAGS_OF_METADATA = 0x20 | 0x08 | 0x04  # a colour profile, EXIF, XMP
_WAV_KEPT = frozenset((b"fmt ", b"fact", b"data"))
_FLAC_KEPT = frozenset((0, 3))  # STREAMINFO, SEEKTABLE
_FLAC_LAST = 0x80

_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""A marker in what is compressed, where 0xFF is followed by 0 or by a restart's number."""
_JPEG_END = 0xD9
_JPEG_SCAN = 0xDA
_JPEG_ALONE = frozenset((0x01, 0xD8, *range(0xD0, 0xD8)))  # without a length
_JPEG_COMMENT = 0xFE
_JPEG_APPLICATIONS = range(0xE0, 0xF0)
_JFIF_SIZE = 14  # without its small picture
_ADOBE_SIZE = 12  # how the colours are stored

_GIF_KEPT_APPLICATIONS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")  # how often an animation is repeated
_GIF_EXTENSION = 0x21
_GIF_PICTURE = 0x2C
_GIF_END = 0x3B
_GIF_CONTROL = 0xF9
_GIF_APPLICATION = 0xFF

_ID3_HEAD = 10
_ID3V1_SIZE = 128
_APE_SIZE = 32


class BrokenFile(ValueError):
    """A file whose parts cannot be told apart."""


def without_metadata(data: bytes, kind: str) -> bytes:
    """The file without its metadata; the same bytes where it has none.

    Raises:
        BrokenFile: its parts cannot be told apart.
    """
    try:
        return _STRIPPERS[kind](data)
    except (IndexError, struct.error):
        raise BrokenFile("it ends too early") from None


def _png(data: bytes) -> bytes:
    parts = [data[:_PNG_HEAD]]
    at = _PNG_HEAD
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name = data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data):
            raise BrokenFile("a chunk is cut off")
        if name in _PNG_KEPT:
            parts.append(data[at:end])
        if name == b"IEND":
            break
        at = end
    return b"".join(parts)


def _jpeg(data: bytes) -> bytes:
    parts = []
    at = 0
    while at < len(data):
        match = _JPEG_MARKER.match(data, at)
        if match is None:
            raise BrokenFile("a segment begins with no marker")
        marker = match[1][0]
        if marker == _JPEG_END:
            parts.append(data[at : match.end()])
            break
        if marker in _JPEG_ALONE:
            parts.append(data[at : match.end()])
            at = match.end()
            continue
        (length,) = struct.unpack_from(">H", data, match.end())
        end = match.end() + length
        if length < 2 or end > len(data):
            raise BrokenFile("a segment is cut off")
        if marker == _JPEG_SCAN:
            following = _JPEG_MARKER.search(data, end)
            end = len(data) if following is None else following.start()
            parts.append(data[at:end])
        else:
            parts.append(_jpeg_segment(marker, data[match.end() + 2 : end], data[at:end]))
        at = end
    return b"".join(parts)


def _jpeg_segment(marker: int, content: bytes, segment: bytes) -> bytes:
    """What stays of a segment: of an application's, how colours and pixels are meant."""
    if marker == _JPEG_COMMENT:
        return b""
    if marker not in _JPEG_APPLICATIONS:
        return segment
    if content.startswith(b"JFIF\0"):
        if len(content) == _JFIF_SIZE:
            return segment
        kept = content[: _JFIF_SIZE - 2] + b"\0\0"
    elif content.startswith(b"Adobe"):
        if len(content) == _ADOBE_SIZE:
            return segment
        kept = content[:_ADOBE_SIZE]
    else:
        return b""
    return bytes((0xFF, marker)) + struct.pack(">H", len(kept) + 2) + kept


def _gif(data: bytes) -> bytes:
    at = 13 + _gif_palette(data[10])
    parts = [data[:at]]
    while data[at] != _GIF_END:
        if data[at] == _GIF_PICTURE:
            begins = at + 10 + _gif_palette(data[at + 9]) + 1
            is_kept = True
        elif data[at] == _GIF_EXTENSION:
            begins = at + 2
            is_kept = data[at + 1] == _GIF_CONTROL
            if data[at + 1] == _GIF_APPLICATION:
                is_kept = data[at + 3 : at + 14] in _GIF_KEPT_APPLICATIONS
        else:
            raise BrokenFile("a block is of no kind")
        end = _end_of_blocks(data, begins)
        if is_kept:
            parts.append(data[at:end])
        at = end
    return b"".join([*parts, data[at : at + 1]])


def _gif_palette(flags: int) -> int:
    """Bytes of the palette that these flags announce."""
    if not flags & 0x80:
        return 0
    return 3 << (flags & 0x07) + 1


def _end_of_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += data[at] + 1
    return at + 1


def _riff_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, content) of each; a length that is too large ends with the file, as a recorder that
    was stopped leaves it.
    """
    at = 12
    while at + 8 <= len(data):
        name = data[at : at + 4]
        (length,) = struct.unpack_from("<I", data, at + 4)
        yield name, data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


def _riff(data: bytes, chunks: list[tuple[bytes, bytes]]) -> bytes:
    parts = [data[8:12]]
    for name, content in chunks:
        parts.append(name + struct.pack("<I", len(content)) + content)
        if len(content) % 2:
            parts.append(b"\0")
    body = b"".join(parts)
    return data[:4] + struct.pack("<I", len(body)) + body


def _webp(data: bytes) -> bytes:
    chunks = list(_riff_chunks(data))
    if all(name in _WEBP_KEPT for name, _ in chunks):
        return data[: 8 + struct.unpack_from("<I", data, 4)[0]]
    kept = []
    for name, content in chunks:
        if name == b"VP8X":
            content = bytes([content[0] & ~_WEBP_FLAGS_OF_METADATA]) + content[1:]
        if name in _WEBP_KEPT:
            kept.append((name, content))
    return _riff(data, kept)


def _wav(data: bytes) -> bytes:
    chunks = list(_riff_chunks(data))
    kept = [(name, content) for name, content in chunks if name in _WAV_KEPT]
    if not any(name == b"data" for name, _ in kept):
        raise BrokenFile("it holds no samples")
    if len(kept) == len(chunks):
        return data
    return _riff(data, kept)


def _flac(data: bytes) -> bytes:
    data = data[_id3_size(data) :]
    if not data.startswith(b"fLaC"):
        raise BrokenFile("it does not begin as FLAC")
    blocks = []
    at = 4
    is_last = False
    while not is_last:
        is_last = bool(data[at] & _FLAC_LAST)
        end = at + 4 + int.from_bytes(data[at + 1 : at + 4], "big")
        if data[at] & ~_FLAC_LAST in _FLAC_KEPT:
            blocks.append(bytes([data[at] & ~_FLAC_LAST]) + data[at + 1 : end])
        at = end
    if not blocks or at > len(data):
        raise BrokenFile("its first block is cut off")
    blocks[-1] = bytes([blocks[-1][0] | _FLAC_LAST]) + blocks[-1][1:]
    return b"".join([b"fLaC", *blocks, data[at:]])


def _mp3(data: bytes) -> bytes:
    begins = 0
    while size := _id3_size(data[begins : begins + _ID3_HEAD]):
        begins += size
    if begins:
        begins = data.find(b"\xff", begins)
    if begins < 0:
        raise BrokenFile("it holds no sound after its tags")
    end = len(data)
    while size := _tag_before(data, end):
        end -= size
    if end <= begins:
        raise BrokenFile("it holds no sound between its tags")
    return data[begins:end]


def _id3_size(data: bytes) -> int:
    """Bytes of the ID3v2 tag that the data begin with; 0 without one."""
    if not data.startswith(b"ID3") or len(data) < _ID3_HEAD:
        return 0
    size = 0
    for byte in data[6:_ID3_HEAD]:
        size = size << 7 | byte & 0x7F
    has_footer = bool(data[5] & 0x10)
    return _ID3_HEAD + size + (_ID3_HEAD if has_footer else 0)


def _tag_before(data: bytes, end: int) -> int:
    """Bytes of the tag (ID3v1, APE) that ends there; 0 without one."""
    if data[end - _ID3V1_SIZE : end - _ID3V1_SIZE + 3] == b"TAG":
        return _ID3V1_SIZE
    footer = data[end - _APE_SIZE : end]
    if not footer.startswith(b"APETAGEX"):
        return 0
    size, _, flags = struct.unpack_from("<III", footer, 12)
    has_header = bool(flags & 0x80000000)
    return min(end, int(size) + (_APE_SIZE if has_header else 0))


_STRIPPERS: Mapping[str, Callable[[bytes], bytes]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
    "audio/wav": _wav,
    "audio/flac": _flac,
    "audio/mpeg": _mp3,
}
"""Type of a file -> what takes its metadata out."""
