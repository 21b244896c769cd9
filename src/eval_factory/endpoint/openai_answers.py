"""Pure functions that read the answers of the OpenAI-compatible API."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.finish_reasons import FinishReason, facts_of_finish_reason
from eval_factory.core.foreign_text import message_in, message_or_default, with_each_text
from eval_factory.endpoint import event_stream, finish_reasons, native_answers, stated_errors
from eval_factory.endpoint.openai_api import BASE64_FIELD, CHAT, IMAGES

PICTURES_FIELD = "data"  # the field with the pictures of an `images` answer
FILTERED = FinishReason.FILTERED.value
CUT_OFF = FinishReason.LENGTH.value
TOO_FEW_TOKENS_MESSAGE = (
    "an answer was cut off with no text in it: "
    "a model that thinks first needs more than the {granted} output tokens"
    " that this benchmark grants; set config.params.extra.num_output_tokens, 4096 for example"
)
FULL_WINDOW_MESSAGE = (
    "an answer was cut off with no text in it after {counted} of the {granted} tokens that it was "
    "granted: the server's context window is full, set a larger window (Ollama: num_ctx; "
    "llama.cpp: --ctx-size)"
)
FILTERED_MESSAGE = "the endpoint's content filter withheld the answer"

_USED_UP_SHARE = 0.9
"""An answer with at least this share of the granted tokens was cut off by the grant.

The share is below 1 because some servers do not count every token of an answer.
"""


def cut_off_advice(granted: int, counted: int | None) -> str:
    """Return advice for an answer that was cut off before any text.

    Args:
        granted: the maximum number of tokens of the answer.
        counted: the tokens of the answer as the endpoint counted them; None: it counted no tokens.
    """
    if counted is not None and counted < _USED_UP_SHARE * granted:
        return FULL_WINDOW_MESSAGE.format(counted=counted, granted=granted)
    return TOO_FEW_TOKENS_MESSAGE.format(granted=granted)


_PATH = re.compile(r"(?:/|\.{1,2}/|~/|[A-Za-z]:[\\/]).|.*\.(?:gguf|safetensors|bin)\Z")
"""Matches a file's path, such as `/models/m`, `../m`, `~/m`, `C:/m` or `m.gguf`."""


def states_path(model_id: str, stated: Any) -> bool:
    """Return True if an answer states a file's path as its model, in place of the model's id."""
    if not isinstance(stated, str) or stated == model_id:
        return False
    return bool(_PATH.match(stated))


class UnusableAnswer(Exception):
    """A reply with a status of 2xx holds no usable answer, for example because it is not JSON.

    One more attempt is made, unless the error is of a subclass that states another rule.
    """


class InterruptedAnswer(UnusableAnswer):
    """The server stopped before its answer was complete; another attempt may succeed."""


class StatedError(UnusableAnswer):
    """A reply with a status of 2xx holds an error, whose code or words state another status.

    The reply is handled as a reply with that other status.
    """

    def __init__(self, status: int, message: str) -> None:
        """Make the error. `status` is the HTTP status that the error states."""
        super().__init__(message)
        self.status = status


class FinalAnswer(UnusableAnswer):
    """The answer cannot be used, and no further attempt is made.

    Another answer would have the same fault, and would have to be paid for.
    """


NOT_FINITE = "the answer holds a number that is not finite"
"""The message for NaN or an infinity, which is not valid JSON and which no metric can use."""

STREAM_CUT = (
    "the server streams though it was not asked to, and its stream ends before the answer is "
    "complete"
)

_MAX_TOKENS = 2**53  # a larger count of tokens is not true, and would not fit into the journal

_SURROGATE = "[\ud800-\udfff]"  # a pattern, which `re` compiles when it is used first


def parse_answer(data: bytes, content_type: str = "") -> Any:
    """Return the JSON document in a body, or the answer of an event stream.

    Halves of surrogate pairs and invalid bytes become U+FFFD, because no file can hold them.
    Numbers that other programs cannot read (not finite, or with too many digits) become null,
    except in `logprobs`, whose numbers eval-factory needs.

    Args:
        data: the body.
        content_type: the value of the Content-Type header.

    Raises:
        UnusableAnswer: the body holds no JSON, an incomplete stream, or `logprobs` with a number
            that is not finite or has too many digits.
    """
    try:
        text = _text_of(data, content_type)
        if event_stream.is_stream(content_type, data):
            return _without_surrogates(event_stream.answer_in(text, _parsed))
        answer = _parsed(text)
        has_surrogates = not text.isascii() and re.search(_SURROGATE, text)
        # JSON may also write half of a surrogate pair as an escape, such as `\ud83d`.
        if has_surrogates or re.search(r"\\u[dD][89a-fA-F]", text):
            return _without_surrogates(answer)
        return answer
    except event_stream.StreamCutError:
        failure = STREAM_CUT
    except (ValueError, RecursionError):
        failure = "the answer is not JSON" + _page_in(data)
    # Raise here, not in an `except` block: the error's context would keep the text in memory.
    raise UnusableAnswer(failure)


# in a Content-Type: `charset="iso-8859-1"`, `charset=utf-8`
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def _text_of(data: bytes, content_type: str) -> str:
    """Decode a body: as Unicode JSON (RFC 8259), or else by the charset of its Content-Type.

    If both fail, invalid bytes become U+FFFD.
    """
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        charset = _CHARSET.search(content_type)
    if charset is not None:
        try:
            return data.decode(charset[1])
        except (LookupError, ValueError):
            pass
    return data.decode(encoding, "replace")


_PAGE_HEAD = 20_000  # the number of bytes in which the title of a page is looked for
_PAGE = re.compile(rb"\s*<(?:!doctype html|html|head)\b", re.IGNORECASE)  # "<!DOCTYPE html"
_TITLE = re.compile(rb"<title[^<>]{0,200}>\s*([^<]{1,200})", re.IGNORECASE)  # "<title>Sign in"


def _page_in(data: bytes) -> str:
    """Return the words that follow "the answer is not JSON" if the body is a web page.

    The words name the page's title. Return an empty text if the body is not a web page.
    """
    beginning = data[:_PAGE_HEAD]
    if not _PAGE.match(beginning):
        return ""
    title = _TITLE.search(beginning)
    if title is None:
        return " but a web page"
    return f" but a web page: {title[1].decode('utf-8', 'replace').strip()}"


def _without_surrogates(answer: Any) -> Any:
    """Return the document with U+FFFD for each half of a surrogate pair."""
    return with_each_text(
        answer, lambda text: re.sub(_SURROGATE, "\N{REPLACEMENT CHARACTER}", text)
    )


class _TooLong:
    """A placeholder for a whole number with more than `_MAX_DIGITS` digits."""


_TOO_LONG = _TooLong()
# fields in which a number that cannot be read makes the answer unusable
_FIELDS_WITH_NEEDED_NUMBERS = frozenset({"logprobs"})
_MAX_DIGITS = 4000  # the maximum number of digits of a whole number; Python itself reads 4,300


def _parsed(text: str) -> Any:
    """Parse a JSON document; parse it again, leniently, if a number is too long or not finite."""
    try:
        return parse_strictly(text)
    except (UnusableAnswer, ValueError):
        # A number is not finite or too long, or the text is not JSON. For the latter,
        # `_lenient_decode` raises the error again.
        return _without_unreadable_numbers(_lenient_decode(text))


def _without_unreadable_numbers(value: Any, *, is_needed: bool = False) -> Any:
    """Return the value with null for each number that is not finite or has too many digits.

    Args:
        value: a JSON document, or any value within it.
        is_needed: whether the value belongs to one of `_FIELDS_WITH_NEEDED_NUMBERS`.

    Raises:
        UnusableAnswer: a needed number is not finite, or has too many digits.
    """
    if isinstance(value, dict):
        checked = {}
        for name, entry in value.items():
            is_needed_here = is_needed or name in _FIELDS_WITH_NEEDED_NUMBERS
            checked[name] = _without_unreadable_numbers(entry, is_needed=is_needed_here)
        return checked
    if isinstance(value, list):
        return [_without_unreadable_numbers(entry, is_needed=is_needed) for entry in value]
    if value is _TOO_LONG or (isinstance(value, float) and not math.isfinite(value)):
        if is_needed:
            raise UnusableAnswer(NOT_FINITE)
        return None
    return value


def _whole_number(digits: str) -> Any:
    """Return the whole number, or a placeholder if the number has too many digits."""
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return _TOO_LONG


_lenient_decode = json.JSONDecoder(parse_int=_whole_number).decode


def _finite_number(digits: str) -> float:
    """Return the number; raise `UnusableAnswer` if the number is not finite."""
    number = float(digits)
    if not math.isfinite(number):  # NaN, Infinity, 1e999
        raise UnusableAnswer(NOT_FINITE)
    return number


parse_strictly = json.JSONDecoder(parse_constant=_finite_number, parse_float=_finite_number).decode
"""Parse the JSON of an answer; raise `UnusableAnswer` for a number that is not finite.

The cache of an older version of eval-factory may hold answers with such numbers. The decoder is
made once, because `json.loads` would make a decoder for each answer.
"""


@dataclass(frozen=True)
class Choice:
    """One completion of an answer."""

    text: str  # for a picture, the picture's name (endpoint/made_pictures.py)
    finish_reason: str | None
    reasoning: str | None  # the model's thinking, if the answer has a field of its own for it
    # the (token, natural logarithm of its probability) of each token of a completion;
    # empty for a chat or a picture
    tokens: tuple[tuple[str, float], ...]


_ENVELOPES = ("data", "result", "response", "output", "body")
"""The fields in which gateways put the complete answer of a server."""


def unwrapped(answer: Any) -> Any:
    """Return the answer without the envelope that some gateways put around it.

    An answer in the known form of a native API is converted to OpenAI's form. Any other answer
    keeps its content; a single choice becomes a list of one choice.
    """
    answer = _content_of(answer)
    if not isinstance(answer, dict):
        return answer
    if "choices" in answer:
        if isinstance(answer["choices"], dict):  # a single choice that is not in a list
            return {**answer, "choices": [answer["choices"]]}
        return answer
    # Convert before unwrapping: a native answer may have the model's text in a field such as
    # `response`, and the text may itself be JSON.
    converted = native_answers.in_openai_form(answer)
    if converted is not None:
        return converted
    for name in _ENVELOPES:
        inner = _content_of(answer.get(name))
        if isinstance(inner, dict) and isinstance(inner.get("choices"), list):
            return inner
    return answer


def _content_of(value: Any) -> Any:
    """Return the document in a list of one entry, or in a text; else the value itself.

    Cloud functions behind a gateway return such lists and texts.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return parse_strictly(value)
        except (UnusableAnswer, ValueError):
            return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0]
    return value


def read_answer(answer: Any, endpoint_type: str) -> tuple[Choice, ...]:
    """Return the choices in an answer, in the order of their indices.

    Raises:
        UnusableAnswer: the answer holds no choices, or an error object.
    """
    if not isinstance(answer, (dict, Mapping)):  # dict first, because the check for Mapping is slow
        raise UnusableAnswer("the answer is not a JSON object")
    choices = answer.get(PICTURES_FIELD if endpoint_type == IMAGES else "choices")
    if answer.get("error"):
        raise _error_in(answer["error"], "an error object came with status 200")
    if not isinstance(choices, list) or not choices:
        missing = "pictures" if endpoint_type == IMAGES else "choices"
        raise _error_in(answer, f"the answer holds no {missing}", may_be_no_error=True)
    try:
        if endpoint_type == IMAGES:
            # The field holds the picture's name here: `made_pictures.pictures_taken_out` has
            # replaced the picture's content.
            return tuple(
                Choice(str(picture[BASE64_FIELD]), finish_reason=None, reasoning=None, tokens=())
                for picture in choices
            )
        # Sort the choices only if each choice has an index of its own.
        indices = set()
        for choice in choices:
            index = choice.get("index")
            if type(index) is int:  # not `isinstance`: a boolean is an int too
                indices.add(index)
        if len(indices) == len(choices):
            choices = sorted(choices, key=lambda choice: choice["index"])
        return tuple(_read_choice(choice, endpoint_type) for choice in choices)
    except (AttributeError, TypeError, KeyError, ValueError, OverflowError) as error:
        raise UnusableAnswer("a choice has an unknown form") from error


_CHAT_FIELDS = ("message", "delta", "text")
_TEXT_FIELDS = ("text", "message", "delta")
"""The fields in which the text of a choice is looked for.

The first field is the API's own. Some servers use the field of the other endpoint type, or the
field of a stream (`delta`).
"""


def _read_choice(choice: Mapping[str, Any], endpoint_type: str) -> Choice:
    """Read a choice of an answer.

    Raises:
        UnusableAnswer: the choice holds an error or no text, or the server interrupted its answer.
    """
    if choice.get("error"):
        raise _error_in(choice["error"], "a choice holds an error")
    reason = choice.get("finish_reason")
    kind = finish_reasons.kind_of(reason)
    finish = facts_of_finish_reason(kind)  # an unknown reason counts as the end of an answer
    if not finish.is_answer:
        raise InterruptedAnswer(f"the server interrupted its answer (finish_reason {reason})")
    if kind is not None:  # None: the table does not have the server's word, which then stays
        reason = kind
    is_chat = endpoint_type == CHAT
    message = _message_in(choice, _CHAT_FIELDS if is_chat else _TEXT_FIELDS)
    if message is None and reason != FILTERED:  # a filter may remove the complete field
        raise UnusableAnswer(f"a choice holds no {'message' if is_chat else 'text'}")
    message = message or {}
    content: Any = message.get("content")
    if not isinstance(content, str):
        content = _text_in(content)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(reasoning, str):
        reasoning = None
    tokens = () if is_chat else _token_logprobs(choice.get("logprobs"))
    return Choice(content, finish_reason=reason, reasoning=reasoning, tokens=tokens)


def _message_in(choice: Mapping[str, Any], fields: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the message of a choice; None if the choice has none of these fields.

    Raises:
        TypeError: the field holds neither a text nor an object.
    """
    for name in fields:
        message = choice.get(name)
        if isinstance(message, str):
            return {"content": message}
        if message is not None:
            if not isinstance(message, Mapping):
                raise TypeError(name)
            return message
    return None


def _text_in(content: Any) -> str:
    """Return the text of a message's content.

    The content is a text, a number, a part (an object with the field `text`), a list of these, or
    null. The text of null is empty.

    Raises:
        AttributeError, TypeError: the content has another form.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return str(content)
    if isinstance(content, Mapping):
        return _text_in(content.get("text"))
    return "".join(map(_text_in, content))


def _token_logprobs(logprobs: Any) -> tuple[tuple[str, float], ...]:
    """Return the tokens in a completion's `logprobs`, each with the logarithm of its probability.

    A missing logarithm becomes 0.

    Raises:
        UnusableAnswer: a logarithm, or the sum of all, is not finite.
    """
    if not isinstance(logprobs, Mapping) or not logprobs.get("tokens"):
        return ()
    values = logprobs.get("token_logprobs") or [0.0] * len(logprobs["tokens"])
    # Not strict: if the two lists of a server differ in length, the rest of the longer is ignored.
    tokens = tuple(
        (str(token), float(value or 0.0))
        for token, value in zip(logprobs["tokens"], values, strict=False)
    )
    return _checked_logprobs(tokens)


def _checked_logprobs(tokens: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """Return the tokens; raise `UnusableAnswer` if a logarithm, or the sum, is not finite."""
    # `float` accepts the text "NaN", and a sum of very large numbers may be infinite.
    if not math.isfinite(sum(value for _, value in tokens)):
        raise UnusableAnswer(NOT_FINITE)
    return tokens


def logprobs_in(answer: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return the tokens of the first choice, each with the natural logarithm of its probability.

    The result is empty if the answer holds no logarithms, or a logarithm that is not a finite
    number.
    """
    try:
        logprobs = answer["choices"][0].get("logprobs")
        if isinstance(logprobs, Mapping) and logprobs.get("content"):  # the form of `chat` answers
            pairs: list[tuple[str, float]] = []
            for token in logprobs["content"]:
                pairs.append((str(token["token"]), float(token["logprob"])))
            return _checked_logprobs(tuple(pairs))
        return _token_logprobs(logprobs)
    except (LookupError, TypeError, ValueError, AttributeError, UnusableAnswer):
        return ()


def _error_in(document: Any, problem: str, *, may_be_no_error: bool = False) -> UnusableAnswer:
    """Return the error for an answer without choices, or with an error object.

    Args:
        document: the error object, or the complete answer.
        problem: what is wrong with the answer, for the message.
        may_be_no_error: whether the document may be an answer, not an error object. If such a
            document has no error message, the returned error states only the problem.
    """
    code = stated_errors.code_in(document)
    words = message_in(document)
    if words is None and may_be_no_error:
        return UnusableAnswer(problem)
    shown_error = message_or_default(document)
    if code is not None and str(code) != shown_error:
        shown_error = f"{code}: {shown_error}"
    message = f"{problem}: {shown_error}"
    status = stated_errors.status_of(code, words or "")
    if status is None:
        return UnusableAnswer(message)
    return StatedError(status, message)


@dataclass(frozen=True)
class Completion:
    """An answer with the values that eval-factory reads from the answer."""

    body: dict[str, Any]
    choices: tuple[Choice, ...]
    tokens: tuple[int | None, int | None]  # of prompt and answer, as `token_counts_of` returns them
    # the contents of the pictures that are not stored yet, by the pictures' names
    pictures: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of bytes of the text of all choices, with the thinking."""
        return sum(
            len(f"{choice.text}{choice.reasoning or ''}".encode("utf-8", "replace"))
            for choice in self.choices
        )


def completion_of(answer: Any, endpoint_type: str) -> Completion:
    """Read an answer.

    Raises:
        UnusableAnswer: the answer holds no choices, or an error object.
    """
    return Completion(
        answer,
        choices=read_answer(answer, endpoint_type),
        tokens=token_counts_of(answer),
    )


def token_counts_of(answer: Any) -> tuple[int | None, int | None]:
    """Return (tokens of the prompt, tokens of the answer) as the endpoint counted them.

    A number is None if the endpoint did not count the tokens, or states an impossible number.
    """
    usage = answer.get("usage") if isinstance(answer, (dict, Mapping)) else None
    if not isinstance(usage, (dict, Mapping)):
        return None, None
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))


_CACHED_TOKENS = (
    ("cached_tokens",),
    ("cache_read_input_tokens", "cache_creation_input_tokens"),
    ("prompt_cache_hit_tokens",),
)
"""Fields of `usage` with the tokens of the prompt that were read from, or written to, a cache.

Each row has the fields of one provider: Moonshot, Anthropic (whose two numbers are added) and
DeepSeek. OpenAI has the first field within `prompt_tokens_details`.
"""


def cached_tokens_of(answer: Any) -> int:
    """Return the tokens of the prompt that a server read from, or wrote to, its cache.

    Some servers do not count these tokens in `prompt_tokens`. A server may state the same tokens in
    several fields; the largest number counts.
    """
    usage = answer.get("usage") if isinstance(answer, (dict, Mapping)) else None
    if not isinstance(usage, (dict, Mapping)):
        return 0
    documents = [usage]
    details = usage.get("prompt_tokens_details")
    if isinstance(details, (dict, Mapping)):
        documents.append(details)
    counts: list[int] = []
    for document in documents:
        for names in _CACHED_TOKENS:
            counts.append(sum(_count(document.get(name)) or 0 for name in names))
    return max(counts)


def _count(value: Any) -> int | None:
    """Return the value if it is a possible number of tokens, else None."""
    # Do not use `isinstance`: a boolean is an int too.
    if type(value) is int and 0 <= value <= _MAX_TOKENS:
        return value
    return None
