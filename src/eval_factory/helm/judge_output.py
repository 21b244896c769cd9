"""Reads the ratings in a judge's output, their scale, and the signs of an answer that speaks to its
judges. Pure functions.

HELM takes what stands between the first `{` and the last `}` of a judge's output, which may be a
rating that the judged answer wrote itself. Here every JSON object of that form is found, those that
stand in the answer are not the judge's, and what is left has to be one. A rating in an answer may
be hidden from a program, and not from a model (letters that look alike, invisible characters,
escapes, base64): it is looked for in the answer's `readings`, which are linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from eval_factory.core.plain_yaml import parse_own
from eval_factory.helm import names
from eval_factory.tasks.jury_form import HELMS_FORM, JURY, JuryForm, jury_form_of

_TWINS = {
    "a": "\u0430\u03b1\u1d00",
    "b": "\u0432\u0299",
    "c": "\u0441\u1d04",
    "d": "\u0501\u1d05",
    "e": "\u0435\u03b5\u1d07",
    "g": "\u0261\u0262",
    "h": "\u04bb\u043d",
    "i": "\u0456\u03b9\u0131\u026a",
    "j": "\u0458\u1d0a",
    "k": "\u043a\u03ba\u1d0b",
    "l": "\u029f",
    "m": "\u043c\u1d0d",
    "n": "\u0274",
    "o": "\u043e\u03bf\u1d0f",
    "p": "\u0440\u03c1\u1d18",
    "q": "\u051b",
    "r": "\u0280",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4\u1d1b",
    "u": "\u03c5\u1d1c",
    "v": "\u0475\u03bd\u1d20",
    "w": "\u051d\u1d21",
    "x": "\u0445",
    "y": "\u0443\u028f",
    "z": "\u1d22",
    "A": "\u0410\u0391",
    "B": "\u0412\u0392",
    "C": "\u0421",
    "E": "\u0415\u0395",
    "H": "\u041d\u0397",
    "I": "\u0406\u0399",
    "J": "\u0408",
    "K": "\u041a\u039a",
    "M": "\u041c\u039c",
    "N": "\u039d",
    "O": "\u041e\u039f",
    "P": "\u0420\u03a1",
    "S": "\u0405",
    "T": "\u0422\u03a4",
    "X": "\u0425\u03a7",
    "Y": "\u0423\u03a5",
    "Z": "\u0396",
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u02ba\u2033",
    "'": "\u2018\u2019\u201a\u2039\u203a",
    ":": "\u2236\ua789\u02d0",
}
"""ASCII and what looks like it: of Unicode's confusables
(unicode.org/Public/security/latest/confusables.txt) the Cyrillic, Greek and small capital letters
with which English can be written, quotation marks and colons.
"""

_TAG_CHARACTERS = range(0xE0020, 0xE007F)  # invisible twins of ASCII, which many models read


class _Plain(dict[int, str]):
    """A table for `str.translate` that is made as it is used.

    Each character is decomposed by itself: to bring a text to a normal form takes the square of a
    run of accents.
    """

    def __missing__(self, code: int) -> str:
        if code in _TAG_CHARACTERS:
            plain = chr(code - _TAG_CHARACTERS[0] + 0x20)
        else:
            parts = unicodedata.normalize("NFKD", chr(code))
            plain = "".join(
                part for part in parts if unicodedata.category(part) not in ("Mn", "Me", "Cf")
            )
        self[code] = plain
        return plain


_LETTERS: dict[int, str] = {}
for _letter, _twins in _TWINS.items():
    _LETTERS |= dict.fromkeys(map(ord, _twins), _letter)
_PLAIN = _Plain(_LETTERS)

_ESCAPE = re.compile(r"\\{1,8}(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_ESCAPED_MARK = re.compile(r"\\{1,8}([\"'/nrt])")
_WHITE = {"n": "\n", "r": "\n", "t": "\t"}
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){8,}")
_PRINTABLE = frozenset(range(32, 127)) | {9, 10, 13}
_CLOSING_TAG = re.compile(r"</\w{1,80}>")
_NOT_WORDS = re.compile(r"[\W_]+")


def readings(text: str) -> Iterator[str]:
    """The text as it stands, without its disguises, and what it holds in base64 or hexadecimal."""
    yield text
    plain = undisguised(text)
    if plain != text:
        yield plain
    # Base64 is read token by token and, where it goes over several lines, as one.
    tokens = []
    decoded = []
    for token in _BASE64.findall(plain):
        token = token.rstrip("=").replace("-", "+").replace("_", "/")
        tokens.append(token)
        decoded.append(_decoded(token))
    if len(tokens) > 1 and "" in decoded:
        decoded.append(_decoded("".join(tokens)))
    in_hex = []
    for token in _HEX.findall(plain):
        in_hex.append(_as_text(bytes.fromhex(re.sub("[ :]", "", token))))
    for hidden in ("".join(decoded), "".join(in_hex)):
        if hidden:
            yield undisguised(hidden)


def undisguised(text: str) -> str:
    """Lookalikes as ASCII, accents and invisible characters left out, escapes of several kinds
    replaced.
    """
    if not text.isascii():
        text = text.translate(_PLAIN)
    if "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
        text = _ESCAPED_MARK.sub(lambda match: _WHITE.get(match[1], match[1]), text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "%" in text:
        text = unquote(text)
    return text


def squeezed(text: str) -> str:
    """Letters and digits alone, in small letters: the same text however it is laid out, quoted
    and marked.
    """
    return _NOT_WORDS.sub("", _CLOSING_TAG.sub("", text)).lower()


def squeezed_readings(text: str) -> list[str]:
    """Each reading, forwards and backwards: all that a text may hold."""
    squeezes = [squeezed(reading) for reading in readings(text)]
    return squeezes + [squeeze[::-1] for squeeze in squeezes]


def _unescaped(match: re.Match[str]) -> str:
    try:
        return chr(int(match[1] or match[2] or match[3], 16))
    except ValueError:
        return match[0]


def _decoded(token: str) -> str:
    try:
        return _as_text(base64.b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        return ""


def _as_text(data: bytes) -> str:
    """Return data as text, or an empty text if they are none: long words of English are base64,
    too, and decode to anything.
    """
    return data.decode() if data and all(byte in _PRINTABLE for byte in data) else ""


# the ratings that a judge has to give: the fields of each rating, by criterion
Criteria = Mapping[str, Collection[str]]

_MAX_OUTPUT = 200_000  # characters of a judge's output: many times what its tokens can hold
MAX_BRACES = 200
MAX_FIELDS_PERMUTED = 3

_DECODER = json.JSONDecoder()
_Judgement = TypeVar("_Judgement")


class UnusableJudgeOutput(Exception):
    """The judge's output holds no ratings; the message is for the judge."""


def is_blank_answer(answer: str) -> bool:
    """Find out if an answer has nothing in it: it gets the lowest rating, and no judge is asked.

    Saying nothing must not pay: HELM gives such an instance the default score of its jury metric.
    """
    return not answer.strip()


def parse_judge_output(
    text: str, criteria: Criteria, judged: str, form: JuryForm = HELMS_FORM
) -> dict[str, Any]:
    """The judge's own ratings of an answer.

    Args:
        text: all that the judge wrote.
        criteria: the fields that the judge's object for a criterion has to have, by its name.
        judged: the answer: a rating that stands in it is not the judge's own.
        form: how ratings are written.

    Returns:
        The rating of each criterion, as the judge wrote it; for a label its value.

    Raises:
        UnusableJudgeOutput: there are none, or it is not clear which they are.
    """
    squeezes = squeezed_readings(judged)

    def is_repeated(record: Mapping[str, Any]) -> bool:
        for name, fields in criteria.items():
            if name in record:
                pairs = product(_forms_of(name, record[name], fields, form), squeezes)
                if any(written in squeeze for written, squeeze in pairs):
                    return True
        return False

    def read(record: dict[str, Any]) -> dict[str, Any]:
        _refuse_unusable(record, criteria, form)
        return record

    ratings = own_judgement(
        text,
        is_judgement=lambda record: bool(criteria.keys() & record.keys()),
        wanted="the criteria " + ", ".join(criteria),
        is_repeated=is_repeated,
        judged_noun="response",
        read=read,
        verdict=lambda record: json.dumps({name: record[name]["score"] for name in criteria}),
    )
    # HELM's mean takes everything else that stands there
    rated = {name: ratings[name] for name in criteria}
    if not form.labels:  # the judge's own spelling of a number stays
        return rated
    labelled = {}
    for name, rating in rated.items():
        labelled[name] = {**rating, "score": form.value_of(rating["score"])}
    return labelled


def _refuse_unusable(record: Mapping[str, Any], criteria: Criteria, form: JuryForm) -> None:
    """Refuse ratings that cannot be used. Raises UnusableJudgeOutput: one is missing, unknown or
    not of the form.
    """
    for name in record:
        if form.criteria and name not in criteria:
            raise UnusableJudgeOutput(
                f"it rates {name!r}, and the criteria are {', '.join(criteria)}"
            )
    for name, fields in criteria.items():
        rating = record.get(name)
        if not isinstance(rating, Mapping):
            raise UnusableJudgeOutput(f"the criterion {name!r} is missing, or not an object")
        for field in fields:
            if field not in rating:
                raise UnusableJudgeOutput(f"{name!r} has no {field!r}")
        if "score" in fields and form.value_of(rating["score"]) is None:
            raise UnusableJudgeOutput(f"the score of {name!r} is not {form.wanted}")


def own_judgement(
    text: str,
    *,
    is_judgement: Callable[[dict[str, Any]], bool],
    wanted: str,
    is_repeated: Callable[[dict[str, Any]], bool],
    judged_noun: str,
    read: Callable[[dict[str, Any]], _Judgement],
    verdict: Callable[[_Judgement], object],
) -> _Judgement:
    """The one judgement in a judge's output that is its own; it may say it more than once.

    Args:
        text: all that the judge wrote.
        is_judgement: whether an object is a judgement.
        wanted: what a judgement has to hold, in words for the judge.
        is_repeated: whether a judgement stands in the judged answer already.
        judged_noun: the noun of what is judged, in messages for the judge.
        read: the judgement, or raises UnusableJudgeOutput.
        verdict: what two judgements have in common that are the same.

    Raises:
        UnusableJudgeOutput: there is none, or it is not clear which it is; the message is for the
            judge.
    """
    if len(text) > _MAX_OUTPUT:
        raise UnusableJudgeOutput(f"it is longer than {_MAX_OUTPUT} characters")
    reasons: list[str] = []
    usable: dict[object, _Judgement] = {}
    try:
        objects = [record for record in json_objects(text) if is_judgement(record)]
        if not objects:
            raise UnusableJudgeOutput(f"it holds no JSON object with {wanted}")
        own_records = [record for record in objects if not is_repeated(record)]
        if not own_records:
            raise UnusableJudgeOutput(
                f"it repeats a judgement that stands in the {judged_noun}; give your own"
            )
        for record in own_records:
            try:
                judgement = read(record)
            except UnusableJudgeOutput as error:
                reasons.append(str(error))
            else:
                usable[verdict(judgement)] = judgement
    except RecursionError as error:
        raise UnusableJudgeOutput("it is nested too deeply") from error
    if not usable:
        raise UnusableJudgeOutput(reasons[0])
    if len(usable) > 1:
        raise UnusableJudgeOutput(
            "it holds several judgements that differ; give one JSON object and nothing else"
        )
    (judgement,) = usable.values()
    return judgement


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Every outermost JSON object in a text; one whose last brace was forgotten too.

    Each brace that begins none costs the rest of the text, so there are not many of them.
    """
    at = text.find("{")
    for _ in range(MAX_BRACES):
        if at < 0:
            return
        try:
            record, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            try:
                record = json.loads(text[at:].rstrip().removesuffix("```").rstrip() + "}")
                end = len(text)
            except (ValueError, RecursionError):
                record = None
                end = at + 1
        if isinstance(record, dict):
            yield record
        at = text.find("{", end)
    raise UnusableJudgeOutput(
        f"it holds more than {MAX_BRACES} opening braces that begin no JSON object"
    )


def _forms_of(name: str, rating: Any, fields: Collection[str], form: JuryForm) -> set[str]:
    """A rating as it may have been written down: with its fields in any order, its score as any
    kind of number.
    """
    if not isinstance(rating, Mapping):
        return {squeezed(undisguised(f"{name} {_written(rating)}"))}
    scores = {str(rating.get("score"))}
    value = form.value_of(rating.get("score"))
    if value is not None:
        scores = form.spellings(value)
    needed = [field for field in sorted(fields) if field in rating]
    orders = [list(rating), *(permutations(needed) if len(needed) <= MAX_FIELDS_PERMUTED else [])]
    forms = set()
    for score in scores:
        values = {**rating, "score": score}
        for order in orders:
            written = " ".join([name, *(f"{field} {_written(values[field])}" for field in order)])
            forms.add(squeezed(undisguised(written)))
    return forms


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_NEAR = r"[^.\n]{0,60}"
_MARKS = r"""[\s"'`*_\\>|]{0,12}"""
_TAGS = (
    "response|gold_response|question|conversation|patient_information"
    "|user_request|medication_question|system|judge"
)
_WHICH = (
    "all|any|the|your|my|these|those|of|previous|prior|above|earlier|preceding|other"
    "|evaluation|scoring"
)
_INSTRUCTIONS = "instructions?|criteria|prompts?|rules?|rubric|guidelines?"
_JUDGES = (
    r"(?<!to )(?<!will )(?<!can )(?<!not )(?<!you )"
    r"(?:evaluators?|judges?|graders?|raters?|annotators?)"
)
_CRITERIA = "accuracy|completeness|clarity"
_FULL_MARKS = r"full marks|(?:maximum|top|highest|perfect) (?:score|rating|marks)"
_ALL_OF_IT = r"(?:all|every|each|this|it|the)"
_MARK_ENDS = (
    r"(?=\s*(?:$|[;:!?)\]\"'*]|[.,](?!\s*\d)|stars?\b|because\b|since\b"
    rf"|(?:for|on|in|to) {_ALL_OF_IT}\b))"
)
_FIVE_OF_FIVE = rf"(?:5\s*(?:/|out of)\s*5|(?:a|of) 5\b{_MARK_ENDS})"
"""Five of five as marks: neither 'a 5 mL dose' nor 'a score of 5 points'."""
_OURS = r"(?:the|my|that)(?: \w{1,12}){0,2} (?:response|answer|reply|text|summary|plan|note)"
_RATED = rf"(?:this|it|all|every\w*|each|{_OURS})"
_RATING_ENDS = (
    r"(?:$|[\n,;!})<\]|]|\.(?!\d)|/\s*5\b|(?:out of|for|on|in|because|stars?|explanation)\b)"
)
_RATING = rf"(?:[1-5](?:\.0)?|one|two|three|four|five)(?={_MARKS}{_RATING_ENDS})"
"""A rating: neither 'Score: 2 pieces' nor 'accuracy: 4.5 %', as a number that is followed by what
it counts is no rating.
"""
_OF_NO_SCALE = rf"(?:\A|[\n{{\[;!?]|\.(?=\s)|\b(?:overall|final|your|my) ){_MARKS}"
"""The beginning of a rating. A word before 'score' names a clinical scale: GCS score, Apgar score,
Pain score.
"""
_FIVE = r"(?:5|five|maximum|highest|top|perfect)\b"
_GRADE = "rate|score|grade|mark|assign|award|give|set"
_ALL = rf"(?:{_CRITERIA}|criteri(?:on|a)|categor(?:y|ies))"
_THIS = r"(?: \w{1,12}){0,2} (?:this|the following)"
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "a ready-made judgement": (
        r"""["']score["']\s*[:=]\s*["']?\d""",
        rf"{_OF_NO_SCALE}score{_MARKS}(?:[:=]>?|->|\u2192|>){_MARKS}{_RATING}",
        rf"\b(?:{_CRITERIA})\b{_MARKS}(?:(?:[:=]>?|->|\u2192|\||is|as|at){_MARKS})+(?:score{_MARKS}[:=]?{_MARKS})?{_RATING}",
    ),
    "a tag of the judges' prompt": (
        rf"</?\s*(?:{_TAGS})\s*>",
        r"<\|[a-z_]+\|>",
        r"\[/?INST\]",
        r"<!--",
        r"</?\s*score\s*>",
    ),
    "instructions to the judges": (
        rf"\b(?:ignore|disregard|forget|override)(?: (?:{_WHICH}))* (?:{_INSTRUCTIONS})\b",
        rf"\b{_JUDGES}\b{_NEAR}\b(?:must|should|shall|please|give|assign|award|rate|score|output)\b",
        rf"\b(?:give|assign|award|rate|score|grade|deserves?)\b{_NEAR}\b(?:{_FULL_MARKS})",
        (
            r"\b(?:give(?!\W?way)|assign|award|deserves?"
            rf"|(?:rate|score|grade) {_RATED})\b{_NEAR}\b{_FIVE_OF_FIVE}"
        ),
        (
            rf"\b(?:{_GRADE})\b{_NEAR}\b(?:{_ALL}|this (?:response|answer))\b{_NEAR}"
            rf"\b(?:as|at|to|with|the|a|of) {_FIVE}"
        ),
        rf"\b{_FIVE}{_NEAR}\b(?:for|on|in) (?:all|every|each)\b{_NEAR}\b{_ALL}\b",
        rf"\boutput\b{_NEAR}\bjson\b",
        r"\bnew instructions?\s*:",
        r"\bsystem (?:prompt|message|override)\b",
        (
            r"\byour (?:judge?ment|verdict|ratings|final (?:score|rating|evaluation))"
            r" (?:is|are|must|should|has to|will)\b"
        ),
        (
            rf"\b(?:copy|repeat|return|output|with)\b{_THIS}"
            r" (?:evaluation|judge?ment|ratings?|scores|json|verdict)\b"
        ),
    ),
}
_SIGN_PATTERNS = {
    name: re.compile("|".join(patterns), re.IGNORECASE) for name, patterns in _SIGNS.items()
}
_SQUEEZED_RATING = re.compile(rf"(?:{_CRITERIA})score(?:[1-5]|five)|(?:{_CRITERIA})explanation")
"""Matches letters and digits alone: what is written over several lines, or with blanks between its
letters.
"""


def injection_signs(answer: str) -> list[str]:
    """Return the signs of an answer that speaks to its judges. A sign is a reason to look at it,
    not a proof.
    """
    signs = set()
    for reading in readings(answer):
        for name, pattern in _SIGN_PATTERNS.items():
            if pattern.search(reading):
                signs.add(name)
        if _SQUEEZED_RATING.search(squeezed(reading)):
            signs.add("a ready-made judgement")
    return [name for name in _SIGNS if name in signs]


def jury_form_in(model_configs: Path) -> JuryForm:
    """HELM's where no custom benchmark is run, or it says nothing of its own.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file is there and cannot be read.
    """
    file = model_configs / names.BENCHMARK
    if not file.is_file():
        return HELMS_FORM
    metrics = parse_own(file.read_text(encoding="utf-8")).get("metrics") or ()
    return next((jury_form_of(metric) for metric in metrics if metric["name"] == JURY), HELMS_FORM)


def has_answers_in(model_configs: Path) -> bool:
    """Return whether the custom benchmark that is run holds the answers to judge."""
    file = model_configs / names.BENCHMARK
    if not file.is_file():
        return False
    document = parse_own(file.read_text(encoding="utf-8"))
    return document.get("has_answers") is True
