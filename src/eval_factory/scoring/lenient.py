"""The option that an answer to a multiple-choice question states, however it is written.

Labels and texts of options become one sign each, so that one list of patterns reads them all. Of
JSON the field `answer` is taken; markup and options that are denied ("not A") are taken out. Then
the first of these readings that finds an option decides, and where it finds several, none is
stated: what opens the answer; what is said to be the answer, as in MMLU-Pro's rule (Y. Wang et al.,
NeurIPS 2024, arXiv 2406.01574, `evaluate_from_api.py`); the last line, read as an answer of its
own; "option B", "(B)". Letters that are words state nothing: "A patient", "E. coli".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.words import alternatives

LENIENT = ".lenient"
METRIC = "exact_match"

_LABELS = 0xE000
_WITH_TEXT = 0xE080
_TEXTS = 0xE100
_MAX_OPTIONS = 0x80
"""An option's label becomes the sign with the option's number from the first of these on, its label
and text one from the second on, its text alone one from the third on. They are Unicode's for
private use.
"""
_LABEL = "[\ue000-\ue0ff]"
_TEXT = "[\ue100-\ue1ff]"
_ANY = "[\ue000-\ue1ff]"
_ALONE = r"[^\w\n]*[\ue000-\ue1ff][^\w\n\ue000-\ue1ff]*"
_NAMED = "[\ue080-\ue1ff]"
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_IN_WORD = "0-9A-Za-zÀ-ɏ"
_END = rf"(?![{_IN_WORD}])"

_W = alternatives("option")
_OPTION = _W["option"]
_ANSWER = rf"(?:{_W['answer']}|{_OPTION}|{_W['signed_answer']})"
_IS = rf"(?:{_W['is']}{_END}|[是为は:=])"
_ARE = f"{_W['are']}{_END}"
_NOT = _W["not"]
_AND = _W["and"]
_REASON = f"{_W['reason']}{_END}"
_RIGHT = f"(?:is|ist|es|est|é) (?:(?:the|la|die|clearly|most) ){{0,3}}{_W['right']}"
_WRONG = f"{_W['wrong']}{_END}"
_DOUBT = _W["doubt"]
_OPEN = r"['(\[]{0,3}"
_JOINED = (
    rf"[ \n]?[,;/&+.)\]:'’]{{0,3}}[ \n]?(?:{_AND} )?(?:(?:maybe|perhaps) )?(?:{_OPTION} )?{_OPEN}"  # noqa: RUF001
)
_ONE = (
    rf"(?:{_LABEL}(?!\)? {_ARE})|{_TEXT}(?= ?(?:$|[.!;\n。)]|\(?{_LABEL}|{_JOINED}{_ANY}"
    rf"|,? {_REASON})))"
)
_STATED = rf"(?P<stated>{_ONE}(?:{_JOINED}{_ONE})*)"
_SEVERAL = rf"\(?{_ANY}(?:\)?,? ?(?:{_AND} )?\(?{_ANY}){{0,9}}"

_FIELD = re.compile(
    r'"(?:(?:final|correct|best|selected|chosen|your|my)[ _]?)?(?:answer|choice|option|letter'
    r"|label|antwort|respuesta"
    r'|resposta|réponse)(?:[ _](?:letter|choice|option|label))?"\s*:'
    r'\s*(?:"((?:[^"\\]|\\.)*)"|(\[[^\[\]]{0,200}\])|([-+]?\d[\d.]*))',
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"^[ \t]*```\w*|^[ \t]*(?:[#>]+|[-•*])[ \t]+|[*_$`{}\"“”„«»\ue000-\ue1ff]|</?[a-z]+>"
    r"|\\(?:textbf|text|mathrm|mathbf)|\\[()\[\]]",
    re.MULTILINE,
)
_BOX = re.compile(r"\\boxed\b|<(?:final[ _])?answer>", re.IGNORECASE)
_GOES_ON = (
    r"(?=$|\n|[.,:;!?/&+|–—。、，)\]'’]| ?[(\-–—=]|[^\x00-ɏ]"  # noqa: RUF001
    rf"|(?i: (?:{_REASON}|{_ARE}"
    rf"|{_NOT})))(?![.,]\d)(?!['’][A-Za-z])(?!-\w)(?!\.[A-Za-z](?![A-Za-z]))"  # noqa: RUF001
)
"""What may follow a label: not "A patient", "D-dimer", "I'm" or "E.g."."""
_SAYS = rf"(?<![{_IN_WORD}]){_ANSWER}(?: (?!would |could |{_IS})[^\W\d]+){{0,4}} ?{_IS}\s?:?\s?"
SAID = re.compile(
    rf"{_SAYS}(?:(?:the|la|die|(?-i:[ao])|l'|{_ANSWER}|therefore|clearly"
    rf"|most likely)\s){{0,3}}['(\[ ]{{0,3}}",
    re.IGNORECASE,
)
_OPENING = re.compile(rf"[^\w(\ue000-\ue1ff]{{0,20}}(?:{_OPTION} )?{_OPEN}{_STATED}", re.IGNORECASE)
_IS_SAID = re.compile(rf"{SAID.pattern}{_STATED}|(?P<right>{_ANY})(?=\)? {_RIGHT})", re.IGNORECASE)
_CALLED = re.compile(
    rf"(?<![{_IN_WORD}])(?:(?:{_ANSWER}|choose|select|pick|go with|it is|it's|must be|would be"
    r"|think|say|probably"
    rf"|therefore,?|thus,?|but|sondern|sino|选|選)\s?|{_IS} (?={_LABEL}\.?(?:\n|$))"
    rf"|(?=\({_LABEL}\))){_OPEN}{_STATED}",
    re.IGNORECASE,
)
_DENIED = re.compile(
    rf"(?:{_OPTION}s? )?{_SEVERAL}(?: \([^()\n]{{0,100}})?\)? (?:{_ARE} (?:\w+ ){{0,2}}?{_WRONG}"
    rf"|{_NOT})"
    rf"|(?<![{_IN_WORD}]){_DOUBT}{_END}[^.,;:\n\ue000-\ue1ff]{{0,40}}{_SEVERAL}",
    re.IGNORECASE,
)
_LISTED = re.compile(
    rf"^\(?({_LABEL})(?! ?{_ARE})|[ (]({_LABEL})[.):] ", re.MULTILINE | re.IGNORECASE
)


def answer_field(text: str) -> str:
    """What the answer's field says, where the text is JSON that has one, complete or cut off;
    else the text.
    """
    found = [next(filter(None, match), "") for match in _FIELD.findall(text)]
    return "\n".join(found) if found else text


def label_in(answer: str, options: Mapping[str, str]) -> str | None:
    """The label of the option that an answer states; None where it states none, or several.

    `options`: label -> the option's text; empty, or the label itself, where it is not known.
    """
    if not options or not answer.strip():
        return None
    text = _DENIED.sub(" ", _with_signs(_plain(answer_field(answer)), options)).strip()
    found = (
        _opening(text)
        or _states(*_IS_SAID.finditer(text))
        or _last_line(text)
        or _states(*_CALLED.finditer(text))
    )
    return list(options)[found.pop()] if len(found) == 1 else None


def _plain(text: str) -> str:
    """Without Markdown, LaTeX and full-width signs; what stands in a box is said to be the
    answer.
    """
    text = _MARKUP.sub("", _BOX.sub("\nAnswer: ", text.translate(_FULL_WIDTH)))
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()


def _with_signs(answer: str, options: Mapping[str, str]) -> str:
    """An option's text goes before labels in it ("C. difficile"); a label and the text behind it
    are one.
    """
    plain = [_plain(text).rstrip(".").lower() for text in options.values()]
    labels = {label.lower(): number for number, label in enumerate(options)}
    known = [(number, text) for number, text in enumerate(plain) if text and text not in labels]
    for number, text in sorted(known, key=lambda one: len(one[1]), reverse=True):
        if plain.count(text) == 1 and text in answer.lower():
            words = re.compile(rf"(?<![{_IN_WORD}]){re.escape(text)}{_END}", re.IGNORECASE)
            answer = words.sub(chr(_TEXTS + number), answer)

    def sign(match: re.Match[str]) -> str:
        label = match[1] or match[4]
        between = match[2] or ""
        text = match[3] or ""
        number = labels[label.lower()]
        if text == chr(_TEXTS + number):
            return chr(_WITH_TEXT + number)
        # "A duodenal ulcer"
        return match[0] if between == " " else chr(_LABELS + number) + between + text

    return _labels_of(tuple(options), bool(known)).sub(sign, answer)


@lru_cache(maxsize=64)
def _labels_of(labels: tuple[str, ...], texts_known: bool) -> re.Pattern[str]:
    """A label and the text behind it, or a label alone; it costs more than an answer's reading
    to compile.
    """
    one = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    no_word = r"(?!\. [a-z])" if texts_known else ""
    no_step = r"(?![.)] [A-Za-z])" if one[0].isdigit() else ""
    lower = (
        "" if one[0].isdigit() else rf"|(?:{one.lower()})(?=[.):\]](?:[\s{_TEXT[1:-1]}]|$)|\s*$)"
    )
    return re.compile(
        rf"(?<![{_IN_WORD}])(?<![A-Za-z]-)(?:({one}{lower})([.,:)\]'’( \n–—-]{{1,4}})({_TEXT})"  # noqa: RUF001
        rf"|((?:{one}){_GOES_ON}{no_word}{no_step}{lower}))"
    )


def _states(*matches: re.Match[str] | None) -> set[int]:
    """The numbers of the options that these state."""
    stated = "".join("".join(filter(None, match.groups())) for match in matches if match)
    return {ord(sign) % _MAX_OPTIONS for sign in re.findall(_ANY, stated)}


def _opening(text: str) -> set[int]:
    """Where the options are listed, A and then B, or each in a line, the first of them is no
    answer.
    """
    lines = text.split("\n")
    if all(re.fullmatch(_ALONE, line) for line in lines):
        return {ord(sign) % _MAX_OPTIONS for sign in re.findall(_ANY, text)}
    places = {
        ord(match[1] or match[2]) % _MAX_OPTIONS: match.start()
        for match in reversed([*_LISTED.finditer(text)])
    }
    listed = sorted(places, key=places.__getitem__)
    in_order = listed[:2] == [0, 1] and text[: places[1]].rstrip()[-1:] != ":"
    is_list = in_order or (len(lines) > 1 and all(map(_LISTED.match, lines)))
    return set() if is_list else _states(_OPENING.match(text))


def _last_line(text: str) -> set[int]:
    """A line that is one of several with options is none, unless it is the option alone."""
    before, _, line = text.rpartition("\n")
    label_alone = re.fullmatch(_ALONE, line) and not re.search(_NAMED, line)
    return (
        _states(_OPENING.match(line))
        if before and (label_alone or not _LISTED.search(before))
        else set()
    )


def lenient_metrics(
    metrics: Iterable[MetricValues], values: Mapping[InstanceKey, float]
) -> list[MetricValues]:
    """`exact_match.lenient`, for each split in which HELM computed exact_match of what was not
    perturbed.

    An instance without an answer has no value by the readings; it keeps its slot, with 0, for
    bounds.
    """
    return [
        MetricValues(
            METRIC + LENIENT + metric.label.removeprefix(METRIC),
            METRIC + LENIENT,
            None,
            scale=metric.scale,
            values={key: values.get(key, 0.0) for key in metric.values},
            split=metric.split,
        )
        for metric in metrics
        if metric.name == METRIC and metric.perturbation is None and metric.values
    ]
