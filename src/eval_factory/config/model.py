"""Defines the pydantic models of a merged run config, and explains wrong values to the user.

An explanation turns pydantic's finding into a sentence with the complete path of the value.
`descriptions.yml` describes each key. The sections have no defaults, because their defaults are in
framework.yml. Only the entries of lists, `Judge` and `TokenPrice`, have defaults here.

This module does not use `from __future__ import annotations`. Annotations would then be texts, and
pydantic would compile each of them at the start of every command.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import did_you_mean, unmet_expectation
from eval_factory.core.safe_files import expand_home
from eval_factory.core.secrets import (
    REDACTED,
    Redactor,
    is_variable_name,
    looks_like_key,
    secret_field_of,
    secret_field_of_url,
)
from eval_factory.core.strict_model import StrictModel
from eval_factory.core.urls import SERVED_SCHEME, base_of, endpoint_type_of
from eval_factory.tasks.asking_forms import MAX_REPEATS, MAX_TURNS
from eval_factory.tasks.choice_question import MAX_ORDERS

PARAMS_PATH = "config.params"
EXTRA_PATH = "config.params.extra"
"""The paths of two sections of a run config."""
DEMO_SCHEME = "demo"
DEMO_URLS = ("demo://baseline",)  # the URLs of the embedded endpoint

MAX_TIMEOUT_S = 24 * 3600.0
"""The maximum of `request_timeout`, in seconds: a day. No server keeps a connection for longer, and
sockets do not accept a timeout of 1e10 seconds.
"""

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
_CountOrShare = Annotated[
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


def _without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
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
    _without_secrets(headers)
    return headers


Headers = Annotated[dict[str, str], AfterValidator(_sendable_headers)]
"""The user's own headers: name -> value. The values of variables `${NAME}` are never stored."""


def _quoted(field: str) -> str:
    """Return the name of a field in quotation marks, with any secret in the name redacted."""
    return Redactor().redact_text(repr(field))


ByBatch = Annotated[bool, Field(strict=True)] | Literal["fallback"]
"""True if requests are sent by batch. With `fallback`, requests that a batch left unanswered are
then sent one by one.
"""


class Judge(StrictModel):
    """An entry of `config.params.extra.judges`.

    For a setting that is missing, the target's setting or HELM's setting for judges applies.
    """

    name: Role
    model_id: OneLineText
    url: Url | None = None
    api_key: Annotated[
        VariableName | None, Field(validation_alias=AliasChoices("api_key", "api_key_name"))
    ] = None
    oauth: Role | None = None
    use_nvcf: Annotated[bool, Field(strict=True)] = False
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: PositiveInteger | None = None
    parallelism: Parallelism | None = None
    requests_per_minute: PositiveInteger | None = None
    tokens_per_minute: PositiveInteger | None = None
    headers: Headers = {}
    batch: ByBatch = False
    structured: Annotated[bool, Field(strict=True)] = False

    @property
    def sends_no_key(self) -> bool:
        """True if the user wrote `api_key: null`.

        If the user wrote nothing, the target's API key may be used for this judge.
        """
        return self.api_key is None and "api_key" in self.model_fields_set

    @model_serializer(mode="wrap")
    def _serialized(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the judge as a dict, without an API key that the user did not write.

        A null for the API key therefore always means that the user wrote null. Settings that most
        judges do not have are left out too.
        """
        judge: dict[str, Any] = written(self)
        if not judge.get("api_key") and not self.sends_no_key:
            judge.pop("api_key", None)
        for name in ("headers", "batch", "structured"):
            if not judge.get(name):
                judge.pop(name, None)
        return judge

    @model_validator(mode="after")
    def _check_sign_in(self) -> "Judge":
        if self.api_key is not None and self.oauth is not None:
            raise ValueError(
                f"judge {self.name}: api_key and oauth are two ways of signing in; give one of them"
            )
        return self


def _without_repetition(attribute: str | None = None) -> AfterValidator:
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


_Jury = Annotated[list[Judge], Field(min_length=1)]

_Amount = Annotated[Number, Field(ge=0.0, le=float(MAX_COUNT))]  # in US dollars
PositiveNumber = Annotated[Number, Field(gt=0.0, le=float(MAX_COUNT))]


class TokenPrice(StrictModel):
    """An entry of `config.params.extra.prices`: the prices of a model in US dollars for a million
    tokens.
    """

    model_id: OneLineText
    input_per_million: _Amount
    output_per_million: _Amount
    cached_input_per_million: _Amount | None = None
    batch_discount: Annotated[Number, Field(ge=0.0, lt=1.0)] | None = None  # 0.5: half the price


PriceTable = Annotated[list[TokenPrice], Field(min_length=1)]


ExecutorName = Literal["local", "slurm"]

MoreMetric = Literal[
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "quasi_prefix_exact_match",
    "f1_score",
    "rouge_l",
    "bleu_4",
]
Seed = Annotated[int, Field(strict=True, ge=0, le=10**15)]


class StopWhen(StrictModel):
    """The section `extra.stop_when`.

    If the section has a rule, more and more instances are asked until the rule is met.
    """

    half_width: PositiveNumber | None
    beats_floor: Annotated[bool, Field(strict=True)]
    differs_from: PathText | None
    alpha: Annotated[Number, Field(gt=0.0, le=0.5)]
    seed: Seed
    # the number of instances before the first look; a look is a check of the rule
    first: Annotated[PositiveInteger, Field(ge=10)]

    @property
    def rules(self) -> dict[str, Any]:
        """The rules that are set, by their names. A valid configuration has at most one rule."""
        rules = {
            "half_width": self.half_width,
            "beats_floor": self.beats_floor,
            "differs_from": self.differs_from,
        }
        # The value of a rule that is not set is None or False.
        return {name: value for name, value in rules.items() if value}

    @property
    def text(self) -> str:
        """The rule as a text, such as `half_width 0.02` or `beats_floor`."""
        rules = []
        for name, value in self.rules.items():
            if value is True:
                rules.append(name)
            else:
                rules.append(f"{name} {value}")
        return ", ".join(rules)


class Extra(StrictModel):
    """The section `config.params.extra`."""

    data_path: PathText | None
    benchmark: PathText | None
    data_dir: PathText | None
    upstream: Literal["helm", "medhelm"]
    offline: Annotated[bool, Field(strict=True)]
    allow_code_execution: Annotated[bool, Field(strict=True)]
    num_output_tokens: PositiveInteger | None
    max_length: PositiveInteger | None
    subject: OneLineText | None
    condition: OneLineText | None
    subset: OneLineText | None
    language: OneLineText | None
    category: OneLineText | None
    version: OneLineText | None
    num_train_trials: Annotated[PositiveInteger, Field(le=1000)] | None
    gpt_judge_api_key: VariableName | None
    llama_judge_api_key: VariableName | None
    claude_judge_api_key: VariableName | None
    judges: Annotated[_Jury | None, _without_repetition("name")]
    judge_passport: PathText | None
    probe_judges: Annotated[bool, Field(strict=True)]
    judges_see_images: Annotated[bool, Field(strict=True)]
    sample_seed: Seed | None
    instances: Annotated[list[OneLineText], Field(min_length=1), _without_repetition()] | None
    stop_when: StopWhen
    criteria_per_request: Annotated[PositiveInteger, Field(le=50)] | None
    max_image_side: Annotated[int, Field(strict=True, ge=32, le=1 << 14)] | None
    keep_image_metadata: Annotated[bool, Field(strict=True)]
    only_generate: Annotated[bool, Field(strict=True)]
    stop_after_failures: Annotated[int, Field(strict=True, ge=0)]
    on_failure: Literal["exclude", "zero"]
    min_coverage: Annotated[Number, Field(ge=0.0, le=1.0)]
    max_judge_failures: Annotated[Number, Field(ge=0.0, le=1.0)]
    max_model_mismatch: Annotated[Number, Field(ge=0.0, le=1.0)]
    max_unreadable: Annotated[Number, Field(ge=0.0, le=1.0)]
    metrics: Annotated[list[MoreMetric], Field(min_length=1), _without_repetition()] | None
    shuffle_choices: Annotated[int, Field(strict=True, ge=2, le=MAX_ORDERS)] | None
    repeats: Annotated[int, Field(strict=True, ge=2, le=MAX_REPEATS)] | None
    perturb: Annotated[list[str], Field(min_length=1), _without_repetition()] | None
    perturb_unchecked: Annotated[bool, Field(strict=True)]
    pushback: Annotated[int, Field(strict=True, ge=1, le=MAX_TURNS)] | None
    confidence: Literal["stated", "stated_only", "logprobs"] | None
    allow_abstain: Annotated[bool, Field(strict=True)]
    blind_control: Annotated[bool, Field(strict=True)]
    cost_of_wrong: Annotated[Number, Field(ge=0.0, le=1000.0)]
    ask_unread: Annotated[bool, Field(strict=True)]
    options_only: Annotated[bool, Field(strict=True)]
    none_of_the_others: Annotated[bool, Field(strict=True)]
    answer_style: Literal["letter", "reasoned"]
    chance_questions: Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)] | None
    prices: Annotated[PriceTable | None, _without_repetition("model_id")]
    max_cost: PositiveNumber | None
    max_requests: PositiveInteger | None
    max_tokens_total: Annotated[int, Field(strict=True, ge=1, le=10**15)] | None
    max_wall_s: PositiveNumber | None


class Params(StrictModel):
    """The section `config.params`."""

    limit_samples: _CountOrShare | None
    parallelism: Parallelism
    max_new_tokens: PositiveInteger | None
    max_retries: Annotated[int, Field(strict=True, ge=0, le=100)]
    request_timeout: Annotated[Number, Field(gt=0.0, le=MAX_TIMEOUT_S)]
    temperature: Temperature | None
    top_p: TopP | None
    extra: Extra


class RunSection(StrictModel):
    """The section `config`."""

    type: OneLineText
    output_dir: PathText
    params: Params


class AdapterConfig(StrictModel):
    """The section `target.api_endpoint.adapter_config`."""

    use_nvcf: Annotated[bool, Field(strict=True)]
    params_to_add: Annotated[dict[str, Any], AfterValidator(_without_secrets)]
    params_to_remove: list[str]
    params_to_rename: dict[str, str]
    custom_system_prompt: str | None
    start_reasoning_token: OneLineText
    end_reasoning_token: OneLineText


class ApiEndpoint(StrictModel):
    """The section `target.api_endpoint`."""

    url: Url
    model_id: OneLineText
    type: Literal["chat", "completions", "images"]
    api_key: Annotated[
        VariableName | None, Field(validation_alias=AliasChoices("api_key", "api_key_name"))
    ]
    oauth: Role | None
    requests_per_minute: PositiveInteger | None
    tokens_per_minute: PositiveInteger | None
    headers: Headers
    batch: ByBatch
    training_cutoff: Month | None
    adapter_config: AdapterConfig

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all servers."""
        return urls_in(self.url)

    @property
    def is_demo(self) -> bool:
        """True if this is the embedded endpoint."""
        return self.url in DEMO_URLS


class TargetSection(StrictModel):
    """The section `target`."""

    api_endpoint: ApiEndpoint


class RunConfig(StrictModel):
    """A complete run config, after all layers were merged."""

    config: RunSection
    target: TargetSection


UNKNOWN_KEY = "unknown key "
"""The beginning of the message about an unknown key. Such a problem does not prevent other checks.
"""
MAX_SHOWN = 200  # the number of characters of a wrong value that a message shows


def problems_with(
    tree: Any, tree_path: str, model: type[BaseModel], optional: Collection[tuple[str, ...]] = ()
) -> Iterator[str]:
    """Yield a message for each problem that pydantic finds in a tree.

    Args:
        tree: the tree to check.
        tree_path: the dotted path of the tree in its file.
        model: the model of the tree.
        optional: the paths in the tree that may be missing, because another layer may set them.
    """
    try:
        model.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] == "missing" and detail["loc"] in optional:
                continue
            parts = []
            for part in detail["loc"]:
                # A text with "[" is not a key, but pydantic's name of an alternative of a union.
                if isinstance(part, int) or "[" not in part:
                    parts.append(part)
            path = tree_path
            for part in parts:
                if isinstance(part, int):
                    path += f"[{part}]"
                else:
                    path += f".{part}"
            if detail["type"] == "extra_forbidden":
                yield unknown_key_message(path, str(parts[-1]), known_keys(model, parts[:-1]))
            else:
                yield f"{path}: {wrong_value_message(detail)}"


def unknown_key_message(
    path: str, name: str, known_names: Sequence[str], also: Sequence[str] = ()
) -> str:
    """Return the message about an unknown key, with the most similar known key.

    Args:
        path: the dotted path of the key in its file.
        name: the key.
        known_names: the known keys of the section, which are listed if no known key is similar.
        also: further known keys, which are suggested but never listed.
    """
    hint = did_you_mean(name, [*known_names, *also])
    if not hint and known_names:
        hint = f"; known here: {', '.join(known_names)}"
    # The user may have written an API key in place of the name of a setting.
    shown_path = REDACTED if looks_like_key(name) else path
    return f"{UNKNOWN_KEY}{shown_path}{hint}"


def wrong_value_message(detail: Any) -> str:
    """Return the message about a wrong value: the expected kind of value, and the value.

    `detail` is one of pydantic's findings, with the keys `type`, `loc`, `input` and maybe `ctx`.
    """
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "value_error":  # a validator of this program raised ValueError
        return str(detail["ctx"]["error"])
    return f"{unmet_expectation(detail)}, got {shown_value(detail.get('input'))}"


def shown_value(value: object) -> str:
    """Return a value as messages show it: without secrets and not too long."""
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    text = Redactor().redact_text(repr(value))
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]} ..."


def known_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys of the section at a path in a model, sorted.

    The list is empty if the path leads to no section, or to a section that allows any key. Numbers
    in the path are skipped, because all entries of a list have the same model.
    """
    for name in path:
        if isinstance(name, str):
            field = model.model_fields.get(name)
            section = next(_model_classes(field.annotation), None) if field else None
            if section is None:
                return []
            model = section
    return sorted(model.model_fields)


def _model_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type annotation, such as `Judge` in `list[Judge] | None`."""
    if (
        isinstance(annotation, type)
        and not get_args(annotation)
        and issubclass(annotation, BaseModel)
    ):
        yield annotation
    for argument in get_args(annotation):
        yield from _model_classes(argument)
