"""Defines the pydantic models of a merged run config.

`value_types.py` has the types of the values, `model_problems.py` explains wrong values to the user,
and `descriptions.yml` describes each key. The sections have no defaults, because their defaults are
in framework.yml. Only the entries of lists, `Judge` and `TokenPrice`, have defaults here.

This module does not use `from __future__ import annotations`. Annotations would then be texts, and
pydantic would compile each of them at the start of every command.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from eval_factory.config.value_types import (
    DEMO_URLS,
    MAX_COUNT,
    Amount,
    CountOrShare,
    Headers,
    Month,
    Number,
    OneLineText,
    Parallelism,
    PathText,
    PositiveInteger,
    PositiveNumber,
    Role,
    Seed,
    Temperature,
    TopP,
    Url,
    VariableName,
    urls_in,
    without_repetition,
    without_secrets,
)
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.asking_forms import MAX_REPEATS, MAX_TURNS
from eval_factory.tasks.choice_question import MAX_ORDERS

PARAMS_PATH = "config.params"
EXTRA_PATH = "config.params.extra"
"""The paths of two sections of a run config."""

MAX_TIMEOUT_S = 24 * 3600.0
"""The maximum of `request_timeout`, in seconds: a day. No server keeps a connection for longer, and
sockets do not accept a timeout of 1e10 seconds.
"""


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


_Jury = Annotated[list[Judge], Field(min_length=1)]


class TokenPrice(StrictModel):
    """An entry of `config.params.extra.prices`: the prices of a model in US dollars for a million
    tokens.
    """

    model_id: OneLineText
    input_per_million: Amount
    output_per_million: Amount
    cached_input_per_million: Amount | None = None
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


class StopWhen(StrictModel):
    """The section `extra.stop_when`.

    If the section has a rule, more and more instances are asked until the rule is met.
    """

    # The rules: the interval of the score has at most this half width; the score is shown to be
    # above the floor, the best score without a model; or it is shown to differ from this result's.
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
    judges: Annotated[_Jury | None, without_repetition("name")]
    judge_passport: PathText | None
    probe_judges: Annotated[bool, Field(strict=True)]
    judges_see_images: Annotated[bool, Field(strict=True)]
    sample_seed: Seed | None
    instances: Annotated[list[OneLineText], Field(min_length=1), without_repetition()] | None
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
    metrics: Annotated[list[MoreMetric], Field(min_length=1), without_repetition()] | None
    shuffle_choices: Annotated[int, Field(strict=True, ge=2, le=MAX_ORDERS)] | None
    repeats: Annotated[int, Field(strict=True, ge=2, le=MAX_REPEATS)] | None
    perturb: Annotated[list[str], Field(min_length=1), without_repetition()] | None
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
    prices: Annotated[PriceTable | None, without_repetition("model_id")]
    max_cost: PositiveNumber | None
    max_requests: PositiveInteger | None
    max_tokens_total: Annotated[int, Field(strict=True, ge=1, le=10**15)] | None
    max_wall_s: PositiveNumber | None


class Params(StrictModel):
    """The section `config.params`."""

    limit_samples: CountOrShare | None
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
    params_to_add: Annotated[dict[str, Any], AfterValidator(without_secrets)]
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
