"""Removes the metadata of picture and sound files: names, places, comments and tags.

Segments, chunks and blocks are the parts of such files. Parts with metadata are left out; samples
and pixels stay, byte for byte. Also left out are:
- colour profiles, because their description is free text,
- chunks with a size that the format's standard does not allow,
- bytes after the end of the picture or sound, and bytes between two parts of the file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

REMOVED_METADATA = (
    "EXIF, XMP, IPTC, colour profiles, comments and tags"  # as messages name the metadata
)

_PNG_HEAD = 8  # bytes of the signature
_PNG_CHUNK_FRAME = 12  # bytes of a chunk besides its content: length, name and checksum
_PNG_SIZES: Mapping[bytes, range] = {
    b"IHDR": range(13, 14),
    b"PLTE": range(3, 769, 3),
    b"IDAT": range(1 << 31),
    b"IEND": range(1),
    b"tRNS": range(257),
    b"gAMA": range(4, 5),
    b"cHRM": range(32, 33),
    b"sRGB": range(1, 2),
    b"sBIT": range(1, 5),
    b"bKGD": range(1, 7),
    b"pHYs": range(9, 10),
    b"acTL": range(8, 9),
    b"fcTL": range(26, 27),
    b"fdAT": range(4, 1 << 31),
    b"cICP": range(4, 5),
    b"mDCV": range(24, 25),
    b"cLLI": range(8, 9),
}
"""The chunks that stay, each with its allowed sizes in bytes (PNG, third edition, section 11)."""
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # the complete last chunk, without content
_PNG_COLOUR_TYPE_POSITION = 25
_PNG_PALETTE = 3  # the colour type of a picture with a palette
_PNG_MAX_TRANSPARENCY_SIZE = 6  # bytes of the chunk tRNS in a picture without a palette

_RIFF_HEAD = 12  # bytes of the head of a WebP or WAV file
# the number of bytes that stay of some kinds of chunk; other chunks stay complete
_WEBP_SIZES: Mapping[bytes, int] = {b"VP8X": 10, b"ANIM": 6}
_WEBP_KEPT = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF"))
_WEBP_PIXELS = frozenset((b"VP8 ", b"VP8L"))
_WEBP_FLAGS_OF_METADATA = 0x20 | 0x08 | 0x04  # flags for a colour profile, EXIF and XMP
_WEBP_FRAME_HEAD = 16  # bytes before the chunks of a frame
_WAV_KEPT = frozenset((b"fmt ", b"fact", b"data"))
_WAV_FORMAT_SIZE = 16  # bytes of the format that all kinds of samples have
_WAV_EXTENSION_SIZE_FIELD = 2  # bytes of the field after the format, with the extension's size
_WAV_MAX_EXTENSION_SIZE = 32  # bytes of the format's extension; MS ADPCM has the longest
_WAV_PLAIN_KINDS = (1, 3)  # integer and floating-point samples, whose format has no extension
_WAV_FACT_SIZE = 4
_FLAC_HEAD = 4  # bytes of the signature
_FLAC_BLOCK_HEAD = 4  # bytes before the content of a block: the first has the kind, three the size
_FLAC_INFO = 0  # the kind of the block with the facts about the samples
_FLAC_SEEK_TABLE = 3  # a kind of block
_FLAC_INFO_SIZE = 34
_FLAC_SEEK_POINT_SIZE = 18
_FLAC_LAST = 0x80  # the flag of the last block, in the byte with its kind

_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""Finds the next marker, such as FF E1 (of the segment with EXIF), also after compressed pixels.

In compressed pixels, 0xFF is only followed by 0 or by the number of a restart marker.
"""
_JPEG_END = 0xD9
_JPEG_SCAN = 0xDA  # begins compressed pixels
_JPEG_ALONE = frozenset((0x01, 0xD8, *range(0xD0, 0xD8)))  # markers without a length
_JPEG_PIXELS = frozenset((*range(0xC0, 0xD0), 0xDB, 0xDC, 0xDD))  # describe compressed pixels
_JPEG_LINES = 0xDC  # states the number of lines of the picture
_JPEG_LINES_SIZE = 2
_JPEG_APPLICATIONS = range(0xE0, 0xF0)
_JFIF_SIZE = 14  # bytes of a JFIF segment without its thumbnail
_ADOBE_SIZE = 12  # bytes of an Adobe segment, which states how the colours are stored

_GIF_KEPT_APPLICATIONS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")  # state how often an animation repeats
# the first byte of a block
_GIF_EXTENSION = 0x21
_GIF_PICTURE = 0x2C
_GIF_END = 0x3B
# the second byte of an extension, and the bytes of the complete extension
_GIF_CONTROL = 0xF9
_GIF_CONTROL_SIZE = 8
_GIF_APPLICATION = 0xFF
_GIF_REPEATS_SIZE = 19

_ID3_HEAD = 10  # bytes of the head of an ID3v2 tag
_ID3V1_SIZE = 128  # bytes of an ID3v1 tag
_APE_SIZE = 32  # bytes of the footer of an APE tag, and of its header

_MPEG_HEAD = re.compile(rb"\xff[\xe2-\xe7\xf2-\xff][\x10-\xef]")
"""Finds a header of an MPEG audio frame, such as FF FB 90.

Its first eleven bits are 1. The second byte then holds a version and a layer that exist, and the
third byte an index of a bit rate from 1 to 14.
"""
_MPEG_COMMON_BITS = 0xFFFE0C00
"""A mask of the header's bits that are equal in all frames: version, layer and sampling rate."""
_MPEG_KBIT: Mapping[tuple[bool, int], Sequence[int]] = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""The bit rates in kbit/s, by (True for MPEG 1, number of the layer).

A frame's header holds the index of its bit rate, from 1. Source: ISO 11172-3 and 13818-3.
"""
_MPEG_RATES = (44_100, 48_000, 32_000)  # sampling rates of MPEG 1, in Hz
_MPEG_RATE_DIVISORS = {3: 1, 2: 2, 0: 4}  # by the version's number: MPEG 1, 2, 2.5


class BrokenFile(ValueError):
    """The parts of a file cannot be separated."""


def without_metadata(data: bytes, kind: str) -> bytes:
    """Return the file without its metadata; a file without metadata is returned unchanged.

    Args:
        data: the complete file.
        kind: the media type of the file, such as `image/jpeg` or `audio/wav`.

    Raises:
        BrokenFile: the parts of the file cannot be separated.
    """
    try:
        return _STRIPPERS[kind](data)
    except (IndexError, struct.error):  # a read after the end of the data
        raise BrokenFile("it ends too early") from None


def _png(data: bytes) -> bytes:
    """Return a PNG picture without its metadata."""
    parts = [data[:_PNG_HEAD]]
    position = _PNG_HEAD
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        name = data[position + 4 : position + 8]
        end = position + _PNG_CHUNK_FRAME + length
        if end > len(data):
            raise BrokenFile("a chunk is cut off")
        if name == b"IEND":
            parts.append(_PNG_END)
            break
        if _stays_in_png(name, length, data[_PNG_COLOUR_TYPE_POSITION]):
            parts.append(data[position:end])
        elif name == b"IHDR":
            raise BrokenFile("its first chunk has a wrong size")
        position = end
    return b"".join(parts)


def _stays_in_png(name: bytes, size: int, colour_type: int) -> bool:
    """Return True if a chunk of this name and size stays in the picture."""
    if size not in _PNG_SIZES.get(name, ()):
        return False
    if name == b"PLTE":  # in a picture without a palette, PLTE only suggests colours
        return colour_type == _PNG_PALETTE
    if name == b"tRNS" and colour_type != _PNG_PALETTE:
        return size <= _PNG_MAX_TRANSPARENCY_SIZE
    return True


def _jpeg(data: bytes) -> bytes:
    """Return a JPEG picture without its metadata."""
    parts = []
    position = 0
    while position < len(data):
        match = _JPEG_MARKER.search(data, position)
        if match is None:
            break
        marker = match[1][0]  # the number of the marker
        position = match.start()  # drop the bytes before the marker, which no program reads
        if marker == _JPEG_END:
            parts.append(data[position : match.end()])
            break
        if marker in _JPEG_ALONE:
            parts.append(data[position : match.end()])
            position = match.end()
            continue
        (length,) = struct.unpack_from(">H", data, match.end())
        end = match.end() + length
        if length < 2 or end > len(data):
            raise BrokenFile("a segment is cut off")
        if marker == _JPEG_SCAN:
            following = _JPEG_MARKER.search(data, end)
            end = len(data) if following is None else following.start()
            parts.append(data[position:end])
        else:
            parts.append(_kept_segment(marker, data[match.end() + 2 : end], data[position:end]))
        position = end
    return b"".join(parts)


def _kept_segment(marker: int, content: bytes, segment: bytes) -> bytes:
    """Return the part of a segment that stays; empty if nothing stays.

    Application segments only stay if they state how colours (Adobe) or pixels (JFIF) are meant.
    """
    if marker == _JPEG_LINES and len(content) != _JPEG_LINES_SIZE:
        return b""
    if marker in _JPEG_PIXELS:
        return segment
    if marker not in _JPEG_APPLICATIONS:
        return b""
    if content.startswith(b"JFIF\0") and len(content) >= _JFIF_SIZE:
        if len(content) == _JFIF_SIZE:
            return segment
        kept = content[: _JFIF_SIZE - 2] + b"\0\0"  # a thumbnail of 0 x 0 pixels
    elif content.startswith(b"Adobe") and len(content) >= _ADOBE_SIZE:
        if len(content) == _ADOBE_SIZE:
            return segment
        kept = content[:_ADOBE_SIZE]
    else:
        return b""
    return bytes((0xFF, marker)) + struct.pack(">H", len(kept) + 2) + kept


def _gif(data: bytes) -> bytes:
    """Return a GIF picture without its metadata."""
    position = 13 + _gif_palette_size(data[10])  # 13: the size of the head; byte 10 holds its flags
    parts = [data[:position]]
    while position < len(data) and data[position] != _GIF_END:
        if data[position] == _GIF_PICTURE:
            # 10: the size of the picture's head; 1: the byte with the size of its codes
            first_block = position + 10 + _gif_palette_size(data[position + 9]) + 1
        elif data[position] == _GIF_EXTENSION:
            first_block = position + 2
        else:
            raise BrokenFile("a block is of an unknown kind")
        end = _end_of_blocks(data, first_block)
        if data[position] == _GIF_PICTURE or _stays_in_gif(data[position:end]):
            parts.append(data[position:end])
        position = end
    return b"".join([*parts, bytes((_GIF_END,))])


def _stays_in_gif(extension: bytes) -> bool:
    """Return True if an extension only states how long, or how often, a picture is shown."""
    if extension[1] == _GIF_CONTROL:
        return len(extension) == _GIF_CONTROL_SIZE
    is_application = extension[1] == _GIF_APPLICATION and len(extension) == _GIF_REPEATS_SIZE
    return is_application and extension[3:14] in _GIF_KEPT_APPLICATIONS


def _gif_palette_size(flags: int) -> int:
    """Return the size in bytes of the palette that these flags announce."""
    if not flags & 0x80:
        return 0
    colours = 2 << (flags & 0x07)  # 2 to 256
    return 3 * colours


def _end_of_blocks(data: bytes, position: int) -> int:
    """Return the position after a series of data blocks, each of which begins with its length."""
    while data[position]:
        position += data[position] + 1
    return position + 1


def _riff_chunks(data: bytes, position: int = _RIFF_HEAD) -> list[tuple[bytes, bytes]]:
    """Return the (name, content) of each chunk, from `position` on.

    If a chunk's length is too large, its content ends with the file: a recorder that was stopped
    leaves such files.
    """
    chunks = []
    while position + 8 <= len(data):
        name = data[position : position + 4]
        (length,) = struct.unpack_from("<I", data, position + 4)
        chunks.append((name, data[position + 8 : position + 8 + length]))
        position += 8 + length + length % 2  # an odd length is followed by a byte of padding
    return chunks


def _riff_bytes(chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of chunks, each a (name, content)."""
    parts = []
    for name, content in chunks:
        parts.append(name + struct.pack("<I", len(content)) + content)
        if len(content) % 2:
            parts.append(b"\0")
    return b"".join(parts)


def _riff_file(data: bytes, kept: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a RIFF file that has only these chunks.

    If all chunks are kept, the head of the file stays too, byte for byte.
    """
    chunks = _riff_bytes(kept)
    if kept == _riff_chunks(data):
        return data[: _RIFF_HEAD + len(chunks)]
    body = data[8:12] + chunks  # these four bytes are the format, such as WEBP
    return data[:4] + struct.pack("<I", len(body)) + body


def _webp(data: bytes) -> bytes:
    """Return a WebP picture without its metadata; of several chunks of a kind, the first stays.

    An animation keeps all its frames.
    """
    kept: list[tuple[bytes, bytes]] = []
    names: set[bytes] = set()
    for name, content in _riff_chunks(data):
        # transparency (ALPH) after the pixels does not count
        is_surplus = name in names or (name == b"ALPH" and names & _WEBP_PIXELS)
        if name not in _WEBP_KEPT or is_surplus:
            continue
        content = content[: _WEBP_SIZES.get(name)]
        if name == b"VP8X":
            content = bytes([content[0] & ~_WEBP_FLAGS_OF_METADATA]) + content[1:]
        if name == b"ANMF":
            content = _webp_frame(content)
        else:
            names.add(name)
        kept.append((name, content))
    return _riff_file(data, kept)


def _webp_frame(content: bytes) -> bytes:
    """Return a frame of an animated picture with only its head and pixels."""
    kept = []
    for name, pixels in _riff_chunks(content, _WEBP_FRAME_HEAD):
        if name in _WEBP_PIXELS or name == b"ALPH":
            kept.append((name, pixels))
    return content[:_WEBP_FRAME_HEAD] + _riff_bytes(kept)


def _wav(data: bytes) -> bytes:
    """Return a WAV sound without its metadata."""
    kept: dict[bytes, bytes] = {}
    for name, content in _riff_chunks(data):
        if name not in _WAV_KEPT or name in kept:
            continue
        if name == b"fmt ":
            content = _wav_format(content)
        if name != b"fact" or len(content) == _WAV_FACT_SIZE:
            kept[name] = content
    if not kept.get(b"data"):
        raise BrokenFile("it holds no samples")
    return _riff_file(data, list(kept.items()))


def _wav_format(content: bytes) -> bytes:
    """Return the part of a format chunk that states how samples are stored."""
    extension = _WAV_FORMAT_SIZE + _WAV_EXTENSION_SIZE_FIELD  # the position of the extension
    if len(content) <= extension:
        return content
    (kind,) = struct.unpack_from("<H", content)
    (extension_size,) = struct.unpack_from("<H", content, _WAV_FORMAT_SIZE)
    if kind in _WAV_PLAIN_KINDS or extension_size > _WAV_MAX_EXTENSION_SIZE:
        return content[:_WAV_FORMAT_SIZE]
    return content[: extension + extension_size]


def _flac(data: bytes) -> bytes:
    """Return a FLAC sound without its metadata."""
    data = data[end_of_first_tags(data) :]
    if not data.startswith(b"fLaC"):
        raise BrokenFile("it does not begin as FLAC")
    blocks: dict[int, bytes] = {}
    position = _FLAC_HEAD
    is_last = False
    while not is_last:
        is_last = bool(data[position] & _FLAC_LAST)
        kind = data[position] & ~_FLAC_LAST
        size = int.from_bytes(data[position + 1 : position + _FLAC_BLOCK_HEAD], "big")
        end = position + _FLAC_BLOCK_HEAD + size
        is_info = kind == _FLAC_INFO and size == _FLAC_INFO_SIZE
        is_seek_table = kind == _FLAC_SEEK_TABLE and size % _FLAC_SEEK_POINT_SIZE == 0
        if (is_info or is_seek_table) and kind not in blocks:
            blocks[kind] = data[position + 1 : end]  # without the byte with the kind
        position = end
    if _FLAC_INFO not in blocks or position > len(data):
        raise BrokenFile("its first block is cut off")
    parts = [b"fLaC"]
    last_kind = list(blocks)[-1]
    for kind, block in blocks.items():
        first_byte = kind
        if kind == last_kind:
            first_byte |= _FLAC_LAST
        parts.append(bytes([first_byte]) + block)
    return b"".join([*parts, data[position : _end_before_tags(data)]])


def _mp3(data: bytes) -> bytes:
    """Return only the frames of an MP3 sound.

    Tags may be before the frames, after them, and at places where files were joined.
    """
    data = data[end_of_first_tags(data) : _end_before_tags(data)]
    frames = []
    common_of_frames = None  # the common bits of the frames so far
    position = 0
    follows_a_frame = False
    while match := _MPEG_HEAD.search(data, position):
        follows_a_frame = follows_a_frame and match.start() == position
        position = match.start()
        size = _mpeg_frame_size(data, position)
        common_bits = int.from_bytes(data[position : position + 4], "big") & _MPEG_COMMON_BITS
        is_frame = size > 0 and common_of_frames in (None, common_bits)
        # Other bytes may look like a header. Without a frame directly before it, a frame only
        # counts if another frame, or the end of the data, comes directly after it.
        if is_frame and (follows_a_frame or _is_frame_or_end(data, position + size, common_bits)):
            frames.append(data[position : position + size])
            common_of_frames = common_bits
            follows_a_frame = True
            position += size
        else:
            follows_a_frame = False
            position += 1
    if not frames:
        raise BrokenFile("it holds only tags and no sound")
    return b"".join(frames)


def _is_frame_or_end(data: bytes, position: int, common_bits: int) -> bool:
    """Return True if another frame of the same sound begins at this position, or the data end.

    `common_bits` are the bits that all frames of the sound have in common.
    """
    if position == len(data):
        return True
    head = int.from_bytes(data[position : position + 4], "big")
    return head & _MPEG_COMMON_BITS == common_bits and _mpeg_frame_size(data, position) > 0


def _mpeg_frame_size(data: bytes, position: int) -> int:
    """Return the size in bytes of the MPEG audio frame that begins at this position.

    Return 0 if no frame begins there, or if its header does not state its size.
    """
    if len(data) < position + 4 or not _MPEG_HEAD.match(data, position):
        return 0
    second_byte, third_byte = data[position + 1 : position + 3]
    version = (second_byte >> 3) & 0b11
    layer = 4 - ((second_byte >> 1) & 0b11)  # the header has 3 for layer 1, and 1 for layer 3
    bit_rate_index = third_byte >> 4
    sampling_rate_index = (third_byte >> 2) & 0b11
    padding = (third_byte >> 1) & 0b1
    divisor = _MPEG_RATE_DIVISORS.get(version)
    if divisor is None or layer > 3 or sampling_rate_index >= len(_MPEG_RATES):
        return 0
    is_mpeg_1 = divisor == 1
    sampling_rate = _MPEG_RATES[sampling_rate_index] // divisor
    bit_rate = 1000 * _MPEG_KBIT[(is_mpeg_1, layer)][bit_rate_index - 1]
    # A frame has this number of samples: 384 in layer 1, 576 in layer 3 of MPEG 2, else 1152. The
    # factors below are the samples divided by 8 bits; layer 1 counts in units of 4 bytes.
    if layer == 1:
        return (12 * bit_rate // sampling_rate + padding) * 4
    if layer == 3 and not is_mpeg_1:
        return 72 * bit_rate // sampling_rate + padding
    return 144 * bit_rate // sampling_rate + padding


def _end_before_tags(data: bytes) -> int:
    """Return the position at which the tags at the end of a sound begin."""
    end = len(data)
    while size := _size_of_tag_before(data, end):
        end -= size
    return end


def end_of_first_tags(data: bytes) -> int:
    """Return the position at which the ID3v2 tags at the beginning of a sound end."""
    end = 0
    while size := _id3_size(data[end : end + _ID3_HEAD]):
        end += size
    return end


def _id3_size(data: bytes) -> int:
    """Return the size in bytes of the ID3v2 tag at the beginning of the data; 0 without a tag."""
    if not data.startswith(b"ID3") or len(data) < _ID3_HEAD:
        return 0
    size = 0
    for byte in data[6:_ID3_HEAD]:  # four bytes, each with seven bits of the size
        size = (size << 7) | (byte & 0x7F)
    has_footer = bool(data[5] & 0x10)
    return _ID3_HEAD + size + (_ID3_HEAD if has_footer else 0)


def _size_of_tag_before(data: bytes, end: int) -> int:
    """Return the size in bytes of the tag (ID3v1, APE) that ends at `end`; 0 if there is none."""
    if data[end - _ID3V1_SIZE : end - _ID3V1_SIZE + 3] == b"TAG":
        return _ID3V1_SIZE
    footer = data[end - _APE_SIZE : end]
    if not footer.startswith(b"APETAGEX"):
        return 0
    # From byte 12 on: the size of the tag with its footer, the number of its items, and its flags.
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
"""A dict from each media type to the function that removes its metadata."""
