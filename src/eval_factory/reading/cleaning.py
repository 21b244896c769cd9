"""Removes from a completion the parts that are not the answer: thinking, template marks and markup.

Thinking is never read, because an option that a model considers in its thinking is not its answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from eval_factory.reading.phrases import any_of

MAX_COMBINING = 30
"""The greatest number of combining marks per letter, as in Unicode's stream-safe text (UAX #15)."""

# The marks around thinking, as regular expressions
_TAGS = "think|seed:think|thinking|thought|reasoning|scratchpad"
_BEGIN_MARKS = (
    "<unused94>",  # MedGemma
    rf"<(?:{_TAGS})>",  # DeepSeek, Qwen and many others
    r"\[THINK\]",  # Magistral
    "◁think▷",  # Kimi
    r"<\|channel\|>analysis",  # gpt-oss
    r"\A\s*#+ *Thinking *:?$",  # HuatuoGPT
)
_END_MARKS = (
    "<unused95>",
    rf"</(?:{_TAGS})>",
    r"\[/THINK\]",
    "◁/think▷",
    r"<\|channel\|>final(?:<\|message\|>)?",
    r"^#+ *Final Response *:?$",
)
_THINKING_BEGINS = re.compile("|".join(_BEGIN_MARKS), re.IGNORECASE | re.MULTILINE)
_THINKING_ENDS = re.compile("|".join(_END_MARKS), re.IGNORECASE | re.MULTILINE)

# The marks of chat templates around a turn of a conversation
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|return)\|>|<end_of_turn>|<eos>|</s>"
    "|<\uff5cend\u2581of\u2581sentence\uff5c>"  # DeepSeek
    r"|\[INST\]"
)
# "<|im_start|>assistant", "<bos>", "[/INST]"
_TURN_BEGINS = re.compile(
    r"(?:<\|start_header_id\|>|<\|im_start\|>|<start_of_turn>)(?:assistant|model)?"
    r"|<\|[^|<>\n]{1,40}\|>|<(?:bos|s|pad)>|\[/INST\]|<unused\d+>"
)
_NEXT_QUESTION = re.compile(rf"\n{any_of('next_question')} *:", re.IGNORECASE)  # "\nQuestion 2:"

_LATEX_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
"""A box with its content up to the closing brace: "\\boxed{7}" in "\\boxed{7} of 9"."""
# the beginning of a box: "<answer>", "\boxed" without a closing brace
_BOX = re.compile(r"<\|begin_of_box\|>|\\boxed(?=\{)|<(?:final[ _])?answer>", re.IGNORECASE)
_SIGNS_OF_TEMPLATES = ("<", "[", "◁", "#", "\\boxed")
"""Each mark of thinking, of a template or of a box contains at least one of these signs.

A text without these signs is not searched for marks, which saves time.
"""

# Marks of Markdown and LaTeX, and the signs of which such a mark has at least one
# a mark at the start of a line: "```python", "## ", "> ", "- "
_LINE_MARK = re.compile(r"```\w*|(?:[#>]+|[-•*])[ \t]+|#+")
_SIGNS_OF_LINE_MARKS = frozenset("`#>-•*")
# a mark inside a line: "*" and "_" of bold text, "<b>", "</b>", "\text", "\("
_INLINE_MARK = re.compile(r"[*_$`{}]|</?[a-z]{1,10}>|\\(?:textbf|text|mathrm|mathbf)|\\[()\[\]]")
_SIGNS_OF_INLINE_MARKS = ("*", "_", "$", "`", "{", "}", "<", "\\")
_TO_ASCII = 0xFEE0  # the difference between the code of a full-width sign and its ASCII sign
_FULL_WIDTH = {code: code - _TO_ASCII for code in range(0xFF01, 0xFF5F)}
# curly, low and angle quotes; curly single quotes and an accent; hyphens, dashes and a minus sign
_DOUBLE_QUOTES = dict.fromkeys((0x201C, 0x201D, 0x201E, 0xAB, 0xBB), '"')
_SINGLE_QUOTES = dict.fromkeys((0x2018, 0x2019, 0xB4), "'")
_DASHES = dict.fromkeys((0x2010, 0x2011, 0x2013, 0x2014, 0x2212), "-")
_PLAIN_SIGNS: dict[int, int | str] = {
    **_FULL_WIDTH,
    **_DOUBLE_QUOTES,
    **_SINGLE_QUOTES,
    **_DASHES,
}
# A tick or a cross at the end of a line is a verdict on the option: "B. Duodenal ulcer \u2713".
_TICK = re.compile(r"[ |*]*[\u2713\u2714\u2705]\ufe0f?(?=[ |*]*$)", re.MULTILINE)
_CROSS = re.compile(r"[ |*]*[\u2717\u2718\u274c]\ufe0f?(?=[ |*]*$)", re.MULTILINE)
_ABBREVIATIONS = re.compile(r"(?<!\w)([ie])\. ?([eg])\.")
"""Abbreviations whose letters are not labels of options: "i.e." and "e.g."."""
_SIGNS_OF_ABBREVIATIONS = (".g.", ". g.", ".e.", ". e.")
_MAY_COMBINE = re.compile(
    r"[^\x00-\u02ff\u2000-\u20cf\u2100-\u22ff\u4e00-\u9fff\uac00-\ud7af\uff00-\uffef]"
)
"""Finds signs that may be combining marks. The listed Unicode blocks contain no such marks."""


def answering_part(answer: str) -> str:
    """Return the text after thinking, up to the end of the model's turn.

    Return an empty text if the answer ends while the model is still thinking. Marks of templates
    are removed, and "Answer: " is put before the content of a box.
    """
    if not _has_any(answer, _SIGNS_OF_TEMPLATES):
        return answer
    text = answer
    for end in _THINKING_ENDS.finditer(answer):
        text = answer[end.end() :]  # after the loop: the text after the last end of thinking
    begin = _THINKING_BEGINS.search(text)
    if begin is not None:
        text = text[: begin.start()]
    for turn in _TURN_ENDS.split(text):
        reply = turn.rpartition("[/INST]")[2]  # leaves out a question that the model repeats
        words = _without_boxes(reply)
        if words.strip():
            return words
    return ""


def _without_boxes(turn: str) -> str:
    """Return a turn without template marks, with "Answer: " before the content of each box."""
    boxed = _LATEX_BOX.sub(r"\nAnswer: \1\n", turn)
    return _TURN_BEGINS.sub(" ", _BOX.sub("\nAnswer: ", boxed))


def plain_text(text: str) -> str:
    """Return a text without Markdown, LaTeX, full-width signs and empty lines.

    There is one blank between words.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", _with_bounded_marks(text)).translate(_PLAIN_SIGNS)
        text = _CROSS.sub(": incorrect", _TICK.sub(": correct", text))
    plain = _without_line_marks(text)
    if _has_any(plain, _SIGNS_OF_INLINE_MARKS):
        plain = _INLINE_MARK.sub("", plain)
    if _has_any(plain, _SIGNS_OF_ABBREVIATIONS):
        plain = _ABBREVIATIONS.sub(r"\1\2", plain)
    lines = []
    for line in plain.split("\n"):
        words = line.split()
        if words:
            lines.append(" ".join(words))
    return "\n".join(lines)


def _without_line_marks(text: str) -> str:
    """Return a text without the marks of headings, items and quotations at the starts of lines."""
    lines = []
    for line in text.split("\n"):
        words = line.strip()
        if words and words[0] in _SIGNS_OF_LINE_MARKS:
            mark = _LINE_MARK.match(words)
            if mark is not None:
                words = words[mark.end() :]
        lines.append(words)
    return "\n".join(lines)


def _has_any(text: str, signs: Iterable[str]) -> bool:
    """Return True if the text contains any of the signs."""
    return any(sign in text for sign in signs)


def _with_bounded_marks(text: str) -> str:
    """Return a text with at most `MAX_COMBINING` combining marks in a row.

    Normalising sorts the marks of each letter. The time for this grows with the square of the
    number of marks.
    """
    if not _MAY_COMBINE.search(text):
        return text
    characters = []
    marks = 0  # the number of combining marks in a row, up to this character
    for character in text:
        if unicodedata.combining(character):
            marks += 1
        else:
            marks = 0
        if marks <= MAX_COMBINING:
            characters.append(character)
    return "".join(characters)


def before_next_question(text: str) -> str:
    """Return the text up to a further question, which some models invent after their answer."""
    question = _NEXT_QUESTION.search(text)
    if question is None:
        return text
    return text[: question.start()]
