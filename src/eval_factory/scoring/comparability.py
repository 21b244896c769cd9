"""Compares the settings of a run with the settings of MedHELM's leaderboard, and reports each
deviation with its effect.

The file `medhelm_leaderboard.yml` lists the settings of the leaderboard. The settings of this run
are taken from the answered requests where possible, and not only from the configuration: an
endpoint may refuse a field of a request, and a user may change the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.results import MODEL_ROLE, Comparability, Deviation, Instances, Provenance
from eval_factory.core.strict_model import StrictModel
from eval_factory.data.pins import differences_from_pinned
from eval_factory.endpoint.openai_api import CHAT
from eval_factory.helm import names
from eval_factory.helm.output import AdapterSpec, read_run_record
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.model_names import same_model
from eval_factory.tasks.framework import DATA_PATH_PARAMETER
from eval_factory.tasks.reasoned import LETTER_STYLE, REASONED_STYLE
from eval_factory.tasks.upstreams import HELM

_UNKNOWN = "unknown"
MAX_SHOWN = 200  # the maximum length of the user's value in a deviation, in characters
NOT_SENT = "not sent"  # replaces the value of a field that a request does not have
_HELMS_LIMIT_FIELD = "max_tokens"
_TOKEN_LIMITS = (_HELMS_LIMIT_FIELD, "max_completion_tokens")
"""The names of the field that limits an answer's tokens: HELM's name, and OpenAI's newer name."""
NOT_A_CHOICE = (DATA_PATH_PARAMETER, "max_length", "version")
"""The scenario arguments that do not choose an evaluation."""
# the fields of a request whose values are compared with the leaderboard's values
COMPARED = frozenset({*_TOKEN_LIMITS, "temperature", "top_p"})


class LeaderboardEntry(StrictModel):
    """The settings of one run spec on the leaderboard."""

    max_tokens: int  # the largest number of tokens in an answer, as set by the run spec
    # the value of the scenario's argument `max_length`; None if the leaderboard set none
    max_length: int | None = None
    # the largest number of instances; None: the leaderboard's number for all run specs
    max_eval_instances: int | None = None
    # argument that chooses an evaluation -> the values for which the leaderboard has results
    arguments: dict[str, tuple[str, ...]] = {}
    # model -> its token limit, if this run spec has another limit for the model
    num_output_tokens: dict[str, int] = {}
    # True if HELM fixes no revision of the data, so that the leaderboard's revision is unknown
    newest_data: bool = False
    # (rows in the data, instances that HELM's scenario returns), if HELM counts equal texts once
    collapsed: tuple[int, int] | None = None


class MedhelmLeaderboard(StrictModel):
    """The settings of MedHELM's leaderboard."""

    helm: str  # the version of HELM that has these run specs
    # The largest number of instances of one evaluation. HELM drew this number at random from a
    # benchmark with more instances.
    max_eval_instances: int
    num_train_trials: int
    temperature: float
    top_p: float
    # model -> its token limit, for models that think before they answer
    num_output_tokens: dict[str, int]
    judge_max_tokens: int  # the token limit of a judge's answer
    run_specs: dict[str, LeaderboardEntry]  # by name of the run spec


@lru_cache(maxsize=1)
def load_medhelm_leaderboard() -> MedhelmLeaderboard:
    """Return the leaderboard's settings from the packaged file."""
    return MedhelmLeaderboard.model_validate(load_packaged("scoring/medhelm_leaderboard.yml"))


@dataclass(frozen=True)
class ComparedRun:
    """The facts about a run that are compared with the leaderboard."""

    plan: Plan
    adapter: AdapterSpec  # the adapter's settings in HELM's output
    instances: Instances
    asked: int  # the number of distinct instances; several trials of an instance count once
    provenance: Provenance


def comparability_of(facts: ComparedRun) -> Comparability:
    """Return the comparability of a finished run with the leaderboard.

    The comparability is unknown (None) if the leaderboard does not have the evaluation, or if its
    version of HELM is not the run's version. The record then states the reason.

    Raises:
        HelmError: HELM's record of the data that it read is not readable.
    """
    upstream = str(facts.plan.upstream)
    board = load_medhelm_leaderboard()
    helm = facts.plan.evaluation.task.helm
    evaluation = facts.plan.task_name
    entry = None
    if not helm.is_run_entry:
        entry = board.run_specs.get(helm.run_spec)
    if entry is not None:
        unlisted_argument = _unlisted_argument(facts.plan, entry)
        if unlisted_argument is not None:
            entry = None
            evaluation = f"{evaluation} with {unlisted_argument}"
    if entry is None:
        reason = f"{evaluation} is not on MedHELM's leaderboard ({upstream})"
        return Comparability(medhelm_settings=None, reason=reason, upstream=upstream)
    if facts.plan.upstream != HELM:
        reason = (
            f"which settings MedHELM's leaderboard would use with {upstream} is unknown: they are "
            f"published for {HELM} only"
        )
        return Comparability(medhelm_settings=None, reason=reason, upstream=upstream)
    deviations = (
        *_sampling_deviations(facts, board, entry),
        *_request_deviations(facts),
        *_prompt_and_sample_deviations(facts, board, entry),
        *_data_and_answer_deviations(facts, entry),
        *_judge_deviations(facts, board),
    )
    return Comparability(
        medhelm_settings=not deviations,
        deviations=deviations,
        remarks=tuple(_remarks(facts, entry)),
        upstream=upstream,
    )


def _unlisted_argument(plan: Plan, entry: LeaderboardEntry) -> str | None:
    """Return the first argument, as `name=value`, for which the leaderboard has no result.

    Arguments with HELM's default value, and the arguments of `NOT_A_CHOICE`, are skipped. The
    result is None if the leaderboard has results for all other arguments.
    """
    indexed = plan.evaluation.task.helm.indexed
    parameters: Mapping[str, Any] = {}
    if indexed is not None:
        parameters = indexed.parameters
    for name, value in plan.scenario_arguments.items():
        is_default = parameters.get(name, {}).get("default") == value
        if name in NOT_A_CHOICE or is_default:
            continue
        if str(value) not in entry.arguments.get(name, ()):
            return f"{name}={value}"
    return None


def _sampling_deviations(
    facts: ComparedRun, board: MedhelmLeaderboard, entry: LeaderboardEntry
) -> Iterator[Deviation]:
    """Yield the deviations in the token limit, the temperature and top_p."""
    sent = _sampling_sent(facts)
    limit_by_model = {**board.num_output_tokens, **entry.num_output_tokens}
    expected = _token_limit_of(limit_by_model, facts.plan.model.model_id, entry.max_tokens)
    actual = _differing_values(sent, _token_limit_names(facts.plan), expected)
    if actual is not None:
        limits = _listed(sorted(set(limit_by_model.values())))
        models = _listed(model.rpartition("/")[2] for model in limit_by_model)
        effect = (
            f"answers are cut off at another length: the leaderboard granted {limits} "
            f"tokens to {models}"
        )
        yield Deviation("max_tokens", leaderboard=expected, here=actual, effect=effect)
    for name, value, effect in (
        ("temperature", board.temperature, "answers vary from run to run"),
        ("top_p", board.top_p, "the model chooses each word from another set of words"),
    ):
        actual = _differing_values(sent, (name,), value)
        if actual is not None:
            if NOT_SENT in str(actual):  # at least one request did not have the field
                effect = "the model's own default was used"
            yield Deviation(name, leaderboard=value, here=actual, effect=effect)


def _sampling_sent(facts: ComparedRun) -> Sequence[Mapping[str, Any]]:
    """Return the distinct sampling settings of the model's answered requests.

    If no request was answered, return the configured settings, or nothing if HELM did not record
    the token limit and the temperature.
    """
    model = facts.provenance.endpoints.get(MODEL_ROLE)
    adapter = facts.adapter
    if model is not None and model.sampling:
        return model.sampling
    if adapter.max_tokens is None or adapter.temperature is None:
        return ()
    top_p = facts.plan.model.top_p
    if top_p is None:
        top_p = 1.0  # HELM's default
    return [{"max_tokens": adapter.max_tokens, "temperature": adapter.temperature, "top_p": top_p}]


def _token_limit_of(limit_by_model: Mapping[str, int], model: str, default: int) -> int:
    """Return the leaderboard's token limit for a model's answers.

    `default` is the limit of models that are not in the mapping.
    """
    for name, limit in limit_by_model.items():
        if same_model(name, model):
            return limit
    return default


def _token_limit_names(plan: Plan) -> tuple[str, ...]:
    """Return the names that the token limit may have in a request.

    The user may have renamed HELM's field (`params_to_rename`).
    """
    renamed = plan.model.adapter.params_to_rename.get(_HELMS_LIMIT_FIELD)
    if renamed is None:
        return _TOKEN_LIMITS
    return (*_TOKEN_LIMITS, renamed)


def _differing_values(
    sent: Iterable[Mapping[str, Any]], fields: Sequence[str], expected: Any
) -> str | int | float | None:
    """Return the values of a field in the requests, if any value differs from the leaderboard's.

    Args:
        sent: the settings of the requests.
        fields: the names that the field may have; the first name that a request has counts.
        expected: the leaderboard's value.

    Returns:
        None if there are no requests, or if all requests have the leaderboard's value. Otherwise
        the distinct values: a number if there is only one value and it is a number, else a text.
    """
    values: list[Any] = []
    for settings in sent:
        value = _value_under(settings, fields)
        if value not in values:
            values.append(value)
    if not values or values == [expected]:
        return None
    first: str | int | float = values[0]
    if len(values) == 1 and type(first) in (int, float):  # neither a text nor True or False
        return first
    return _listed(values)


def _value_under(settings: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value under the first of the names that the settings have."""
    for name in names:
        if name in settings:
            return settings[name]
    return NOT_SENT


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _request_deviations(facts: ComparedRun) -> Iterator[Deviation]:
    """Yield the user's changes of the requests, except in the fields that are compared by value."""
    model = facts.plan.model
    if model.endpoint_type != CHAT:
        yield Deviation(
            "endpoint type",
            leaderboard=CHAT,
            here=model.endpoint_type,
            effect="the model sees the prompt without its chat format",
        )
    elif model.adapter.custom_system_prompt is not None:
        effect = "the model gets more instructions than the benchmark has"
        yield Deviation(
            "system prompt", leaderboard="none", here="custom_system_prompt", effect=effect
        )
    effect = "the endpoint may give other answers"
    compared = {*COMPARED, *_token_limit_names(facts.plan)}
    for name, value in model.adapter.params_to_add.items():
        if name not in compared:
            shown_value = one_line(str(value), limit=MAX_SHOWN)
            yield Deviation(
                f"params_to_add: {name}", leaderboard=NOT_SENT, here=shown_value, effect=effect
            )
    for old, new in model.adapter.params_to_rename.items():
        # The value of the token limit is compared, also under its new name.
        if old != _HELMS_LIMIT_FIELD:
            yield Deviation(f"params_to_rename: {old}", leaderboard=old, here=new, effect=effect)


def _prompt_and_sample_deviations(
    facts: ComparedRun, board: MedhelmLeaderboard, entry: LeaderboardEntry
) -> Iterator[Deviation]:
    """Yield the deviations in the prompts, the trials, the sample and the failed instances."""
    style = facts.plan.evaluation.extra.answer_style
    if style == REASONED_STYLE:
        effect = "the prompts ask for reasoning and then for the answer in a last line"
        yield Deviation("answer_style", leaderboard=LETTER_STYLE, here=style, effect=effect)
    limit = facts.plan.evaluation.extra.max_length
    if limit != entry.max_length:
        cut = facts.instances.prompt_truncated
        effect = "other records are left out, or shown only in part"
        if entry.max_length is None:
            effect = f"{cut} of {facts.instances.requested} prompts were cut"
        yield Deviation(
            "max_length",
            leaderboard=_or_none(entry.max_length),
            here=_or_none(limit),
            effect=effect,
        )
    trials = facts.adapter.num_train_trials
    if trials != board.num_train_trials:
        effect = "each instance is asked several times, each time with other examples"
        yield Deviation(
            "num_train_trials", leaderboard=board.num_train_trials, here=trials, effect=effect
        )
    yield from _sample_deviations(facts, entry.max_eval_instances or board.max_eval_instances)
    if facts.instances.failed:
        effect = "they are left out of the score"
        if facts.plan.evaluation.extra.on_failure == "zero":
            effect = "they count as 0"
        yield Deviation(
            "failed instances", leaderboard=0, here=facts.instances.failed, effect=effect
        )


def _or_none(limit: int | None) -> int | str:
    if limit is None:
        return "none"
    return limit


def _sample_deviations(facts: ComparedRun, max_instances: int) -> Iterator[Deviation]:
    """Yield the deviations in the sample of instances.

    `max_instances` is the largest number of instances on the leaderboard for this evaluation.
    """
    params = facts.plan.evaluation.params
    available = facts.plan.evaluation.task.about.instances  # the size of the complete benchmark
    limit = params.limit_samples
    seed = params.extra.sample_seed
    seed_setting = "sample_seed"  # the setting with the seed
    stop = facts.plan.evaluation.stop_when
    drawn = read_run_record(facts.plan.rundir.helm).drawn_sample
    if stop and drawn:  # `stop_when` drew the sample with its own seed
        limit = drawn.asked
        seed = stop.seed
        seed_setting = "stop_when"
        available = drawn.of
    if params.extra.instances is not None:
        yield Deviation(
            "instances",
            leaderboard="HELM's draw",
            here=f"{facts.asked} by name",
            effect=(
                "these instances were chosen by name: they are not a random sample of the benchmark"
            ),
        )
        return
    # True if the limit selected a part of the benchmark
    was_drawn = facts.asked == limit and limit != available
    if facts.asked > max_instances:
        advice = f"set limit_samples to {max_instances}"
        if seed is not None:
            advice += f", leave {seed_setting} out"
        effect = (
            f"{facts.asked} instances were asked; {advice}: HELM then draws the leaderboard's "
            "instances"
        )
        yield Deviation(
            "limit_samples", leaderboard=max_instances, here=_or_none(limit), effect=effect
        )
    elif limit is not None and limit < max_instances and was_drawn:
        effect = f"{facts.asked} instances were asked"
        if seed is None:
            effect = f"a part of the leaderboard's instances: {effect}"
        yield Deviation("limit_samples", leaderboard=max_instances, here=limit, effect=effect)
    if seed is not None and was_drawn:
        effect = "these are not the instances that HELM draws"
        yield Deviation(seed_setting, leaderboard="HELM's draw", here=seed, effect=effect)


def _data_and_answer_deviations(facts: ComparedRun, entry: LeaderboardEntry) -> Iterator[Deviation]:
    """Yield the deviations in the data, and in the treatment of the answers."""
    plan = facts.plan
    provenance = facts.provenance
    if DATA_PATH_PARAMETER in plan.scenario_arguments:
        effect = "nobody can tell whether your files have the same content as the leaderboard's"
        yield Deviation(
            "data",
            leaderboard=_UNKNOWN,
            here="your own files (provenance.dataset_files)",
            effect=effect,
        )
    elif entry.newest_data:
        revisions = _listed(sorted(set(provenance.dataset_revisions.values()))) or _UNKNOWN
        effect = (
            "HELM reads the newest revision of these data, "
            "and nobody recorded which revision the leaderboard read"
        )
        yield Deviation("data revision", leaderboard=_UNKNOWN, here=revisions, effect=effect)
    else:
        for name, pinned, actual in differences_from_pinned(plan, provenance.dataset_files):
            yield Deviation(
                f"data: {name}",
                leaderboard=pinned,
                here=actual,
                effect="other questions or answers may have been asked",
            )
    if stripped := facts.instances.thinking_stripped:
        effect = (
            f"eval-factory took the model's thinking out of {stripped} answers before it scored "
            "them; HELM alone scores all of the text"
        )
        yield Deviation("thinking", leaderboard="scored", here="taken out", effect=effect)
    if unjudged := facts.instances.unjudged:
        effect = (
            f"{unjudged} answers have no judgement; the score whose name ends with .helm is HELM's "
            "own value"
        )
        yield Deviation(
            "answers without a judgement",
            leaderboard="rated 1",
            here="left out of the score",
            effect=effect,
        )


def _judge_deviations(facts: ComparedRun, board: MedhelmLeaderboard) -> Iterator[Deviation]:
    """Yield the deviations in the judges' models and sampling; nothing if there are no judges."""
    judges = facts.plan.judges
    if not judges:
        return
    expected = [deployment.rpartition("/")[2] for deployment in names.DEFAULT_JURY.values()]
    models = list(_models_of_judges(facts))
    has_each_judge = all(_is_in_jury(model, models) for model in expected)
    if len(models) != len(expected) or not has_each_judge:
        stated_models = _listed(stated for _, stated in models)
        yield Deviation(
            "judges",
            leaderboard=_listed(expected),
            here=stated_models,
            effect="another jury rates by another standard",
        )
    for judge in judges:
        endpoint = facts.provenance.endpoints.get(judge.role)
        sent: Sequence[Mapping[str, Any]] = ()
        if endpoint is not None:
            sent = endpoint.sampling
        for fields, value in (
            (("temperature",), board.temperature),
            (("top_p",), board.top_p),
            (_TOKEN_LIMITS, board.judge_max_tokens),
        ):
            actual = _differing_values(sent, fields, value)
            if actual is not None:
                name = f"judge {judge.role}: {fields[0]}"
                yield Deviation(
                    name, leaderboard=value, here=actual, effect="the judge's ratings may differ"
                )


def _models_of_judges(facts: ComparedRun) -> Iterator[tuple[str, str]]:
    """Yield the requested model of each judge, and the model that the judge's answers state."""
    for judge in facts.plan.judges:
        endpoint = facts.provenance.endpoints.get(judge.role)
        stated = judge.model_id
        if endpoint is not None:
            stated = endpoint.main_model
        yield judge.model_id, stated


def _is_in_jury(model: str, models: Sequence[tuple[str, str]]) -> bool:
    """Return True if a judge has this model, both as requested and as stated."""
    for requested, stated in models:
        if same_model(model, requested) and same_model(model, stated):
            return True
    return False


def _remarks(facts: ComparedRun, entry: LeaderboardEntry) -> Iterator[str]:
    """Yield remarks on settings that a reader may mistake for deviations."""
    trials = facts.plan.evaluation.extra.num_train_trials
    if trials not in (None, 1) and facts.adapter.max_train_instances == 0:
        yield (
            f"num_train_trials: {trials} has no effect: "
            "the prompts have no examples, so HELM makes one trial"
        )
    if entry.collapsed is not None:
        rows, instances = entry.collapsed
        yield (
            f"HELM uses {instances} of the data's {rows} rows, because HELM counts equal texts "
            "once; so did the leaderboard"
        )
