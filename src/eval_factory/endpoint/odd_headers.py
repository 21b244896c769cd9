"""Corrects the head of an HTTP answer that a strict parser refuses.

A head is the status line and the header fields. The corrections are those that RFC 9110 and RFC
9112 allow a client:
- Words of the status line may be separated by any white space (RFC 9112, 4).
- Folded lines become a single line (RFC 9112, 5.2).
- White space before a colon is removed (RFC 9112, 5.1).
- Equal values of Content-Length become a single value (RFC 9110, 8.6).
- A control character in a value becomes a space (RFC 9110, 5.5), except in the fields that state
  where an answer ends: with such a field, the parser has to refuse the answer.
- A field whose name is not a token (RFC 9110, 5.6.2) is left out.
"""

from __future__ import annotations

import re

MAX_HEAD = 1 << 16  # the maximum size of a head, in bytes
_END = re.compile(rb"\r?\n\r?\n")  # the end of the last line, and the empty line after it
_TOKEN = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # a field's name, such as `Content-Length`
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # control characters except the tab
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})  # state where an answer ends


def end_of_head(data: bytes) -> int | None:
    """Return the position in the data at which the body begins; None if the head is incomplete."""
    empty_line = _END.search(data)
    if empty_line is None:
        return None
    return empty_line.end()


def readable_head(head: bytes) -> bytes:
    """Return the head with all corrections; a head with other faults is still refused."""
    first, *rest = re.split(rb"\r?\n", head.rstrip(b"\r\n"))
    fields: list[bytes] = []
    for line in rest:
        if line[:1] in (b" ", b"\t") and fields:  # a folded line
            fields[-1] += b" " + line.strip(b" \t")
        else:
            fields.append(line)
    lines = [b" ".join(first.split(maxsplit=2))]  # the version, the status and its words
    lengths = set[bytes]()  # the values of Content-Length so far
    for field in fields:
        name, colon, value = field.partition(b":")
        name = name.rstrip(b" \t")
        value = value.strip(b" \t")
        is_framing = name.lower() in _FRAMING
        if not colon or (is_framing and _CONTROLS.search(value)):
            lines.append(field)  # keep the field as it is; the parser then refuses the answer
            continue
        if not _TOKEN.match(name):
            continue
        if not is_framing:
            value = _CONTROLS.sub(b" ", value).strip(b" \t")
        if name.lower() == b"content-length":
            values = {part.strip(b" \t") for part in value.split(b",")}
            if len(values) == 1 and values == lengths:
                continue
            if len(values) == 1:
                (value,) = values
            lengths |= values  # with different lengths, the parser refuses the answer
        lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])
