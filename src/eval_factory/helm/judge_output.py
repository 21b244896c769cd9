"""Reads the ratings in a judge's output, and drops ratings that the judged answer states itself.

HELM reads the text between the first `{` and the last `}` of a judge's output. That text may be a
rating that the judge quotes from the judged answer. This module finds every rating in the output,
and drops the ratings that are in the answer too. The remaining ratings must not differ.

An answer may hide a rating from programs, but not from models: by lookalike letters, invisible
characters, escapes or base64. Ratings are therefore looked for in all `readings` of the answer. The
readings take a time that is linear in the length of the answer.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.helm import names
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JURY_METRIC, JuryForm, jury_form_of

_LOOKALIKES = {
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
"""The characters that look like each ASCII character.

The table is a selection of Unicode's confusables
(unicode.org/Public/security/latest/confusables.txt):
Cyrillic, Greek and small capital letters with which English can be written, quotation marks and
colons.
"""

# Unicode's tag characters: invisible copies of ASCII, from the space on, which many models read
_TAG_CHARACTERS = range(0xE0020, 0xE007F)
_REMOVED_CATEGORIES = ("Mn", "Me", "Cf")  # of Unicode: accents and invisible characters


class _PlainCharacters(dict[int, str]):
    """A table for `str.translate` that replaces disguised characters by plain ones.

    An entry is made when its character first occurs. Each character is decomposed on its own:
    normalizing a complete text takes quadratic time if the text has many accents in a row.
    """

    def __missing__(self, code: int) -> str:
        if code in _TAG_CHARACTERS:
            plain = chr(code - _TAG_CHARACTERS[0] + ord(" "))
        else:
            parts = unicodedata.normalize("NFKD", chr(code))
            plain = "".join(
                part for part in parts if unicodedata.category(part) not in _REMOVED_CATEGORIES
            )
        self[code] = plain
        return plain


_PLAIN_CHARACTERS = _PlainCharacters()
for _plain, _lookalikes in _LOOKALIKES.items():
    for _lookalike in _lookalikes:
        _PLAIN_CHARACTERS[ord(_lookalike)] = _plain

# Escapes may begin with several backslashes, because an escaped text may be escaped again.
# "\u{41}", "\u0041", "\\x41": the letter A
_ESCAPE = re.compile(r"\\{1,8}(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_ESCAPED_CHARACTER = re.compile(r"\\{1,8}([\"'/nrt])")  # '\"', "\n"
_WHITE_SPACE = {"n": "\n", "r": "\n", "t": "\t"}  # by the letter of the escape
# "&#65;", "&#x41;", "&quot;"
_HTML_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")  # "eyJhY2N1cmFjeSI6NX0=" is '{"accuracy":5}'
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){8,}")  # "7b 22 73 63 6f 72 65 22", "7b:22:73:..."
_PRINTABLE = frozenset(range(32, 127)) | {9, 10, 13}  # ASCII, tab and line breaks
_CLOSING_TAG = re.compile(r"</\w{1,80}>")  # "</score>"
_NOT_WORDS = re.compile(r"[\W_]+")  # everything but letters and digits


def readings(text: str) -> Iterator[str]:
    """Yield the texts that a model may read in a text.

    These are the text itself, the text without disguises, and the texts that the text encodes in
    base64 or hexadecimal digits.
    """
    yield text
    plain = undisguised(text)
    if plain != text:
        yield plain
    # Decode each base64 token on its own. If a token encodes no text, also decode all tokens
    # together: a long base64 text may be divided into lines.
    tokens = []
    from_base64 = []
    for token in _BASE64.findall(plain):
        token = token.rstrip("=").replace("-", "+").replace("_", "/")
        tokens.append(token)
        from_base64.append(_decoded(token))
    if len(tokens) > 1 and "" in from_base64:
        from_base64.append(_decoded("".join(tokens)))
    from_hex = []
    for digits in _HEX.findall(plain):
        from_hex.append(_as_text(bytes.fromhex(re.sub("[ :]", "", digits))))
    for hidden in ("".join(from_base64), "".join(from_hex)):
        if hidden:
            yield undisguised(hidden)


def undisguised(text: str) -> str:
    """Return a text without disguises.

    Lookalike characters become ASCII, accents and invisible characters are removed, and escapes of
    several kinds are replaced by their characters.
    """
    if not text.isascii():
        text = text.translate(_PLAIN_CHARACTERS)
    if "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
        text = _ESCAPED_CHARACTER.sub(lambda match: _WHITE_SPACE.get(match[1], match[1]), text)
    if "&" in text:
        text = _HTML_ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "%" in text:
        text = unquote(text)  # "%22" becomes a quotation mark, as in URLs
    return text


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, in lower case.

    Texts that differ only in layout, quotation marks or markup become equal. The name of a closing
    tag is dropped, but not that of an opening tag: `<score>5</score>` becomes `score5`.
    """
    return _NOT_WORDS.sub("", _CLOSING_TAG.sub("", text)).lower()


def squeezed_readings(text: str) -> list[str]:
    """Return each reading of a text, reduced to letters and digits, forwards and backwards.

    Backwards, because an answer may ask its judge to read a text from its end.
    """
    squeezes = [squeezed(reading) for reading in readings(text)]
    return squeezes + [squeeze[::-1] for squeeze in squeezes]


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape; the escape itself if there is no such character."""
    code = match[1] or match[2] or match[3]
    try:
        return chr(int(code, 16))
    except ValueError:
        return match[0]


def _decoded(token: str) -> str:
    """Return the text that a base64 token encodes; empty if the token encodes no text."""
    padding = "=" * (-len(token) % 4)  # base64 text has a multiple of 4 characters
    try:
        return _as_text(base64.b64decode(token + padding))
    except (binascii.Error, ValueError):
        return ""


def _as_text(data: bytes) -> str:
    """Return data as text; empty if the data are not printable ASCII.

    Long English words look like base64 too, but decode to arbitrary bytes.
    """
    if data and all(byte in _PRINTABLE for byte in data):
        return data.decode()
    return ""


# from each criterion's name to the fields that its rating has to have, such as `score`
Criteria = Mapping[str, Collection[str]]

_MAX_OUTPUT = 200_000  # characters of a judge's output, far more than a judge's tokens allow
MAX_BRACES = 200  # the maximum number of opening braces that are tried
MAX_FIELDS_PERMUTED = 3  # if a rating has more fields, only the judge's order of them is looked for

_DECODER = json.JSONDecoder()
_Judgement = TypeVar("_Judgement")


class UnusableJudgeOutput(Exception):
    """The judge's output holds no usable judgement; the message tells the judge why."""


def is_blank_answer(answer: str) -> bool:
    """Return True if an answer is empty or only white space.

    A blank answer gets the lowest rating, and no judge is asked. It must not have an advantage:
    HELM would give a blank answer the default score of the jury metric.
    """
    return not answer.strip()


def parse_judge_output(
    text: str, criteria: Criteria, judged: str, form: JuryForm = HELMS_JURY_FORM
) -> dict[str, Any]:
    """Return a judge's ratings of an answer.

    Args:
        text: the complete output of the judge.
        criteria: the criteria, with the fields of their ratings.
        judged: the judged answer. A rating that is in the answer is not the judge's own.
        form: the form of the ratings: their scale, labels and criteria.

    Returns:
        The rating of each criterion, as the judge wrote it: `{"accuracy": {"score": 4,
        "explanation": "..."}}`. A label is replaced by its value.

    Raises:
        UnusableJudgeOutput: the output holds no usable ratings of the judge, or several ratings
            that differ.
    """
    squeezes = squeezed_readings(judged)  # the answer as letters and digits only

    def is_repeated(record: Mapping[str, Any]) -> bool:
        """Return True if the rating of any criterion is in the judged answer."""
        for name, fields in criteria.items():
            if name in record:
                spellings = _spellings_of(name, record[name], fields, form)
                pairs = product(spellings, squeezes)
                if any(spelling in squeeze for spelling, squeeze in pairs):
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
    # Drop the judge's further criteria, because HELM would include them in the mean.
    rated = {name: ratings[name] for name in criteria}
    if not form.labels:  # Without labels, the judge wrote numbers, which stay as they are.
        return rated
    labelled = {}
    for name, rating in rated.items():
        labelled[name] = {**rating, "score": form.value_of(rating["score"])}
    return labelled


def _refuse_unusable(record: Mapping[str, Any], criteria: Criteria, form: JuryForm) -> None:
    """Check that ratings can be used.

    Raises:
        UnusableJudgeOutput: a rating or a field is missing, a criterion is unknown, or a score does
            not have the required form.
    """
    # If the form states no criteria, a judge may add some: `parse_judge_output` drops them.
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
            raise UnusableJudgeOutput(f"the score of {name!r} is not {form.rating_description}")


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
    """Return the single judgement in a judge's output that is the judge's own.

    The output may contain this judgement several times.

    Args:
        text: the complete output of the judge.
        is_judgement: returns True if an object is a judgement.
        wanted: the required content of a judgement, for messages to the judge.
        is_repeated: returns True if a judgement is already in the judged answer.
        judged_noun: a noun for the judged text, for messages to the judge.
        read: reads the judgement in an object, or raises UnusableJudgeOutput.
        verdict: returns the part of a judgement that counts, such as its scores; judgements with
            equal verdicts do not differ, and the last of them is returned.

    Raises:
        UnusableJudgeOutput: the output holds no usable judgement, or several that differ. The
            message is written to the judge.
    """
    if len(text) > _MAX_OUTPUT:
        raise UnusableJudgeOutput(f"it is longer than {_MAX_OUTPUT} characters")
    reasons: list[str] = []  # why judgements are not usable
    usable: dict[object, _Judgement] = {}  # by verdict
    try:
        records = [record for record in json_objects(text) if is_judgement(record)]
        if not records:
            raise UnusableJudgeOutput(f"it holds no JSON object with {wanted}")
        own_records = [record for record in records if not is_repeated(record)]
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
    """Yield every outermost JSON object in a text, even if the last closing brace is missing.

    For each brace that begins no object, the text is parsed to its end without a result. Therefore
    only `MAX_BRACES` braces are tried.

    Raises:
        UnusableJudgeOutput: the text has more braces.
    """
    position = text.find("{")
    for _ in range(MAX_BRACES):
        if position < 0:
            return
        try:
            record, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            record = _object_without_last_brace(text[position:])
            end = position + 1 if record is None else len(text)
        if record is not None:
            yield record
        position = text.find("{", end)
    if position >= 0:
        raise UnusableJudgeOutput(f"it holds more than {MAX_BRACES} opening braces")


def _object_without_last_brace(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text that lacks its last closing brace; None if there is none."""
    # A judge may put the object into a code block of Markdown, which ends with ```.
    unclosed = text.rstrip().removesuffix("```").rstrip()
    try:
        record: dict[str, Any] = json.loads(unclosed + "}")
    except (ValueError, RecursionError):
        return None
    return record


def _spellings_of(name: str, rating: Any, fields: Collection[str], form: JuryForm) -> set[str]:
    """Return the spellings of a rating that may be in an answer, reduced to letters and digits.

    The spellings differ in the order of the fields and in the form of the score.

    Args:
        name: the name of the rated criterion.
        rating: the rating, as the judge wrote it.
        fields: the fields that the rating has to have.
        form: the form of the ratings.
    """
    if not isinstance(rating, Mapping):
        return {squeezed(undisguised(f"{name} {_written(rating)}"))}
    scores = {str(rating.get("score"))}
    value = form.value_of(rating.get("score"))
    if value is not None:
        scores = form.spellings(value)
    required_fields = [field for field in sorted(fields) if field in rating]
    orders: list[Sequence[str]] = [list(rating)]
    if len(required_fields) <= MAX_FIELDS_PERMUTED:
        orders += permutations(required_fields)
    spellings = set()
    for score in scores:
        values = {**rating, "score": score}
        for order in orders:
            parts = [name]
            for field in order:
                parts.append(f"{field} {_written(values[field])}")
            spellings.add(squeezed(undisguised(" ".join(parts))))
    return spellings


def _written(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def jury_form_in(model_configs: Path) -> JuryForm:
    """Return the form of the jury's ratings in a run.

    Return HELM's form unless the run's custom benchmark states another form.

    Args:
        model_configs: the folder of the run's generated files.

    Raises:
        OSError, ValueError, KeyError, TypeError: benchmark.yaml exists but cannot be read.
    """
    file = model_configs / names.BENCHMARK_FILE
    if not file.is_file():
        return HELMS_JURY_FORM
    document = parse_own_text(file.read_text(encoding="utf-8"))
    for metric in document.get("metrics") or ():  # a rubric benchmark has none
        if metric["name"] == JURY_METRIC:
            return jury_form_of(metric)
    return HELMS_JURY_FORM


def has_answers_in(model_configs: Path) -> bool:
    """Return True if the run's custom benchmark brings the answers to judge with it.

    Args:
        model_configs: the folder of the run's generated files.

    Raises:
        OSError, ValueError: benchmark.yaml exists but cannot be read.
    """
    file = model_configs / names.BENCHMARK_FILE
    if not file.is_file():
        return False
    document = parse_own_text(file.read_text(encoding="utf-8"))
    return document.get("has_answers") is True
