"""The types of values in configurations, such as URLs, headers and names of variables.

A type is an annotation with which pydantic checks a value. Most types also have a pattern with
which an editor checks the value. `model.py` has the models that use these types.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.safe_files import expand_home
from eval_factory.core.secrets import (
    Redactor,
    is_variable_name,
    looks_like_key,
    secret_field_of,
    secret_field_of_url,
)
from eval_factory.core.urls import SERVED_SCHEME, base_of, endpoint_type_of

DEMO_SCHEME = "demo"
DEMO_URLS = ("demo://baseline",)  # the URLs of the embedded endpoint
_MONTH = r"20[0-9]{2}-(0[1-9]|1[0-2])"  # a pattern of months such as 2024-06
_ROLE = r"[a-z][a-z0-9_-]{0,40}"  # a pattern of the names of judges and of OAuth services


def _variable_name(text: str) -> str:
    """Return the name of an environment variable; raise ValueError if the text is not a name."""
    # The message never shows the text, because the text may be the API key itself.
    if looks_like_key(text) or not is_variable_name(text):
        raise ValueError(
            "must be the NAME of an environment variable that holds the key, such as "
            "OPENAI_API_KEY (null: send none); this value cannot be a name (it is not shown, "
            "because it may be a key)"
        )
    return text


def _endpoint_url(text: str) -> str:
    """Return the URL of an endpoint; raise ValueError if it is wrong or holds a secret."""
    parts = urlsplit(text)
    if parts.scheme == DEMO_SCHEME:
        if text not in DEMO_URLS:
            raise ValueError(f"the embedded endpoint is {', '.join(DEMO_URLS)}")
        return text
    if parts.scheme == SERVED_SCHEME and parts.hostname:
        return text
    if parts.scheme not in ("http", "https"):
        raise ValueError(
            f"needs a scheme: https://... or http://..., or {DEMO_URLS[0]} "
            "for the embedded endpoint"
        )
    if not parts.hostname:
        raise ValueError("names no host")
    if "@" in parts.netloc:
        raise ValueError(
            "must not hold a user name or password (they are not shown); give the key's "
            "variable as api_key"
        )
    field = secret_field_of_url(parts)
    if field is not None:
        raise ValueError(
            f"must not hold a secret (its field {_quoted(field)} is not shown), because the URL "
            "is written into files; put the secret into a variable and write "
            f"{_quoted(field)}=${{NAME_OF_THE_VARIABLE}}"
        )
    try:
        parts.port  # noqa: B018 - the property raises if it is not a port
    except ValueError:
        raise ValueError("has a port that is not a number from 0 to 65535") from None
    return text


def _refuse_boolean(value: object) -> object:
    """Return the value unless it is a boolean, which Python accepts as a number."""
    if isinstance(value, bool):
        # The message about this error shows the value, unlike the message about a ValueError.
        raise PydanticCustomError("float_type", "must be a number")
    return value


def _one_line(text: str) -> str:
    """Return a text of one line; raise ValueError if it is empty or has control characters."""
    if not text.strip():
        raise ValueError("must not be empty")
    if any(ord(character) < 32 for character in text):
        raise ValueError("must be one line without control characters")
    return text


def editor_pattern(pattern: str) -> WithJsonSchema:
    """Return the JSON Schema by which an editor checks a text.

    A text with `${NAME}` is always accepted. eval-factory itself checks a text with its own code,
    which gives better messages.
    """
    return WithJsonSchema({"type": "string", "pattern": rf"{pattern}|\$\{{"})


VariableName = Annotated[
    str, AfterValidator(_variable_name), editor_pattern(r"^[A-Za-z_][A-Za-z0-9_]*$")
]
OneLineText = Annotated[str, StringConstraints(strict=True), AfterValidator(_one_line)]
PathText = Annotated[OneLineText, AfterValidator(expand_home)]
"""A path as the user wrote it, with `~` replaced by the home folder."""

MAX_COUNT = 10**9  # the maximum of every count; a larger number is a typing error

PositiveInteger = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
_SHARE_SCHEMA = {"type": "number", "exclusiveMinimum": 0.0, "exclusiveMaximum": 1.0}
CountOrShare = Annotated[
    PositiveInteger,
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_COUNT}, _SHARE_SCHEMA]}
    ),
]
"""A count, or in JSON Schema also a share. Shares are replaced by counts before the validation."""
Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_refuse_boolean)]


def _checked_role(text: str) -> str:
    if not re.fullmatch(_ROLE, text) or text == MODEL_ROLE:
        raise ValueError(f"must be lower-case letters, digits, - and _, and not {MODEL_ROLE!r}")
    return text


Role = Annotated[str, AfterValidator(_checked_role), editor_pattern(rf"^(?!{MODEL_ROLE}$){_ROLE}$")]


def _checked_month(value: object) -> object:
    # pydantic has not checked the type yet: YAML reads a year without a month as a number.
    if not isinstance(value, str) or not re.fullmatch(_MONTH, value):
        raise ValueError("must be a month such as 2024-06")
    return value


Month = Annotated[str, BeforeValidator(_checked_month), editor_pattern(rf"^{_MONTH}$")]


def _checked_urls(value: object) -> object:
    """Return the checked URL, or the checked list of URLs of several servers of one model.

    A list with a single URL is returned as the URL.
    """
    if isinstance(value, str):
        return _endpoint_url(value)
    if not isinstance(value, list):
        raise PydanticCustomError("string_type", "must be text")
    if not value:
        raise ValueError("is an empty list; it needs the URL of at least one server")
    for number, url in enumerate(value, 1):
        if not isinstance(url, str):
            raise ValueError(
                f"must be a URL, or a list of URLs; number {number} of the list is not a URL"
            )
        try:
            _endpoint_url(url)
        except ValueError as error:
            raise ValueError(f"number {number} of the list: {error}") from None
    if len(value) == 1:
        return value[0]
    return _checked_servers(value)


def _checked_servers(urls: list[str]) -> list[str]:
    """Return the URLs; raise ValueError if endpoint types are mixed or two servers are equal."""
    if any(urlsplit(url).scheme in (DEMO_SCHEME, SERVED_SCHEME) for url in urls):
        raise ValueError("a list of several servers may hold only http:// and https:// URLs")
    # A full URL has an endpoint type. A base URL has none, and fits full URLs of any type.
    types = set(map(endpoint_type_of, urls)) - {None}
    if len(types) > 1:
        raise ValueError(
            f"the list holds URLs of {' and '.join(sorted(map(str, types)))}; all have to be of "
            "one kind"
        )
    bases = list(map(base_of, urls))
    repeated = []
    for url, base in zip(urls, bases, strict=True):
        if bases.count(base) > 1:
            repeated.append(url)
    if repeated:
        raise ValueError(f"the list holds the same server twice: {' and '.join(repeated)}")
    return urls


# An editor accepts `https://host:8000/v1` and `demo://baseline`.
_Server = Annotated[
    str, editor_pattern(rf"^https?://[^/?#@\s]+([/?#]|$)|^({'|'.join(map(re.escape, DEMO_URLS))})$")
]
Url = Annotated[
    _Server | Annotated[list[_Server], Field(min_length=1)], BeforeValidator(_checked_urls)
]
"""The URL of one server, or the URLs of several servers of the same model."""


def urls_in(url: str | list[str] | None) -> tuple[str, ...]:
    """Return all server URLs of a configuration's `url`; an empty tuple if `url` is None."""
    if url is None:
        return ()
    if isinstance(url, str):
        return (url,)
    return tuple(url)


Parallelism = Annotated[int, Field(strict=True, ge=1, le=4096)]
Temperature = Annotated[Number, Field(ge=0.0, le=100.0)]
TopP = Annotated[Number, Field(gt=0.0, le=1.0)]


def without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields; raise ValueError if they hold a secret."""
    field = secret_field_of(fields)
    # A redactor without known secrets still replaces texts that look like keys.
    if field is not None or Redactor().redact_tree(fields) != fields:
        secret = "a key" if field is None else f"a secret in its field {_quoted(field)}"
        raise ValueError(
            f"must not hold {secret} (it is not shown), because it is written into files; put "
            "it into a variable and write ${NAME_OF_THE_VARIABLE}, with KEY, TOKEN or SECRET "
            "at the name's end"
        )
    return fields


RESERVED_HEADERS = {
    "authorization": "api_key or oauth signs in",
    "content-encoding": "the client does not compress requests",
    "content-length": "the client counts the bytes",
    "content-type": "the client sends JSON",
    "connection": "the client decides how long a connection stays open",
    "expect": "the client sends each request without asking first",
    "host": "the URL names the host",
    "idempotency-key": "with one key for all requests a server may give them all one answer",
    "keep-alive": "the client decides how long a connection stays open",
    "proxy-authorization": "the proxy's URL holds its password",
    "proxy-connection": "the client decides how long a connection stays open",
    "te": "the client states how it reads answers",
    "trailer": "the client states how it sends requests",
    "transfer-encoding": "the client states how it sends requests",
    "upgrade": "the client speaks HTTP/1.1",
}
"""A header that the user must not set -> the reason."""
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")  # `${NAME}`
# a token of RFC 9110, such as `X-Team`
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")


def _sendable_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers; raise ValueError if a header cannot be sent or must not be set."""
    names = set()
    for name, value in headers.items():
        lower_name = name.lower()
        if not _HEADER_NAME.match(name):
            raise ValueError("a header's name holds letters, digits and hyphens")
        if lower_name in RESERVED_HEADERS:
            raise ValueError(
                f"the header {name} cannot be set here: {RESERVED_HEADERS[lower_name]}"
            )
        if lower_name in names:
            raise ValueError(f"the header {name} is given twice")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the header {name} holds a character that no header may hold")
        if "${" in _VARIABLE.sub("", value):
            raise ValueError(
                f"the header {name} has a ${{...}} that is not a variable: a variable's name "
                "holds letters, digits and underscores"
            )
        names.add(lower_name)
    without_secrets(headers)
    return headers


Headers = Annotated[dict[str, str], AfterValidator(_sendable_headers)]
"""The user's own headers: name -> value. The values of variables `${NAME}` are never stored."""


def _quoted(field: str) -> str:
    """Return the name of a field in quotation marks, with any secret in the name redacted."""
    return Redactor().redact_text(repr(field))


def without_repetition(attribute: str | None = None) -> AfterValidator:
    """Return a validator that raises ValueError if two entries of a list are equal.

    If `attribute` is set, two entries are equal if they have the same value of this attribute.
    """

    def check(entries: list[Any] | None) -> list[Any] | None:
        names = []
        for entry in entries or []:
            names.append(entry if attribute is None else getattr(entry, attribute))
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"names {', '.join(repeated)} twice")
        return entries

    return AfterValidator(check)


Amount = Annotated[Number, Field(ge=0.0, le=float(MAX_COUNT))]  # in US dollars
PositiveNumber = Annotated[Number, Field(gt=0.0, le=float(MAX_COUNT))]
Seed = Annotated[int, Field(strict=True, ge=0, le=10**15)]
