"""Makes the plan of a run: its endpoints, the arguments of its scenario, and its identity.

The identity is a hash of all settings that affect requests. A run with the same identity can reuse
stored answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from eval_factory.config.asking_rules import chance_questions_of
from eval_factory.config.model import ApiEndpoint, Judge
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import SCENARIO_PARAMETERS, prescribed_judges_by_role
from eval_factory.config.value_types import DEMO_URLS, urls_in
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.rundir import RunDir
from eval_factory.core.urls import origin_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings
from eval_factory.endpoint.openai_api import CHAT, Adapter
from eval_factory.plan.role_servers import RoleServers, named_servers, read_earlier_servers
from eval_factory.tasks.asking_forms import ASKING_KEYS, LOGPROBS, STATED
from eval_factory.tasks.reasoned import LETTER_STYLE
from eval_factory.tasks.run_specs import IMAGES
from eval_factory.tasks.upstreams import Upstream

SENDS_METADATA_KEY = "sends_image_metadata"
"""The key in the run_config.yml of a folder whose first run sent pictures with their metadata.

Early versions of eval-factory did not remove metadata.
"""
IDENTITY_VERSION = 1  # the version of the rules by which the identity is computed
# the dotted paths of two parts of the configuration
URL_SETTING = "target.api_endpoint.url"
STOP_WHEN_SETTING = "config.params.extra.stop_when"
HELM_SUITE = "eval-factory"  # the argument `--suite` of helm-run: the folder below `runs/`


def _paths(section: str, *names: str) -> set[str]:
    """Return the dotted paths of the settings with these names in a section."""
    return {f"{section}.{name}" for name in names}


RUNTIME_SETTINGS = frozenset(
    {"config.output_dir"}
    | _paths("config.params", "parallelism", "max_retries", "request_timeout")
    | _paths(
        "config.params.extra",
        # allows changed questions that a clinician has to read; `perturb` names these changes
        "perturb_unchecked",
        # the file with a judge's measured agreement with physicians; identified by its digest,
        # which is among the digests of the data
        "judge_passport",
        "data_dir",  # .run_state.json identifies the bundle
        "allow_code_execution",  # without this permission, there is no run at all
        "offline",
        "stop_after_failures",
        "on_failure",
        "min_coverage",
        "max_judge_failures",
        "max_model_mismatch",
        "max_unreadable",
        "prices",
        "max_cost",
        "max_requests",
        "max_tokens_total",
        "max_wall_s",
        "gpt_judge_api_key",
        "llama_judge_api_key",
        "claude_judge_api_key",
    )
    | _paths(
        "target.api_endpoint",
        "api_key",
        "oauth",
        "requests_per_minute",
        "tokens_per_minute",
        "batch",
        "training_cutoff",
    )
)
"""Settings that change neither requests nor answers, but only how a run proceeds or how its result
is judged. All other settings are a part of the identity.
"""
JUDGE_RUNTIME_SETTINGS = frozenset(
    {"api_key", "oauth", "parallelism", "requests_per_minute", "tokens_per_minute", "batch"}
)
"""The settings of a judge that change neither requests nor answers."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run: all facts that the later steps of the run need."""

    evaluation: Evaluation
    rundir: RunDir
    model: EndpointPlan
    judges: tuple[EndpointPlan, ...]  # the judges of the configuration, or the default jury
    # the judges that HELM's own annotators name; they are asked through eval-factory's client too
    prescribed: tuple[EndpointPlan, ...]
    scenario_arguments: Mapping[str, str | int]
    identity: str
    # the servers of the folder's last run, by role; empty if no endpoint has or had several servers
    earlier_servers: Mapping[str, RoleServers]
    # True if the folder's first run sent pictures with their metadata: this run does so too
    sends_metadata_as_before: bool = False
    asks_model: bool = True  # False if this plan sends no request to the model

    @property
    def task_name(self) -> str:
        """The name of the task."""
        return self.evaluation.task.name

    @property
    def upstream(self) -> Upstream:
        """The HELM package that runs the task."""
        return self.evaluation.task.helm.upstream

    @property
    def endpoints(self) -> tuple[EndpointPlan, ...]:
        """The endpoints that get requests. The model is left out if its answers exist already."""
        if self.has_answers or not self.asks_model:
            return self.all_endpoints[1:]  # without the model, which is the first
        return self.all_endpoints

    @property
    def all_endpoints(self) -> tuple[EndpointPlan, ...]:
        """All endpoints, with the model first."""
        return (self.model, *self.judges, *self.prescribed)

    @property
    def has_answers(self) -> bool:
        """True if the user's benchmark contains the answers of the model."""
        return self.evaluation.benchmark is not None and self.evaluation.benchmark.has_answers

    @property
    def asks_demo(self) -> bool:
        """True if the embedded demo endpoint answers instead of a real model."""
        return self.model.is_demo and not self.has_answers

    @property
    def trials(self) -> int:
        """The number of HELM's trials: more than one only if prompts contain examples."""
        if self.evaluation.task.helm.is_zero_shot:
            return 1
        return self.evaluation.extra.num_train_trials or 1

    @property
    def chance_questions(self) -> int:
        """The maximum number of correctly answered questions that are asked again unchanged.

        The right answers that are lost in this way are lost by chance.
        """
        return chance_questions_of(self.evaluation)

    @property
    def allows_longer_answers(self) -> bool:
        """True if some answers may be longer than the benchmark's limit of output tokens.

        A question may be asked again in other forms (further askings). In a further asking, a limit
        below `asking_forms.MIN_ANSWER_TOKENS` is raised to this number.
        """
        extra = self.evaluation.extra
        # None: a run of an earlier version, whose further askings did not raise the limit
        if extra.chance_questions is None:
            return False
        forms = (
            extra.perturb,
            extra.pushback,
            extra.allow_abstain,
            extra.confidence == STATED,
            extra.blind_control,
            extra.options_only,
            extra.none_of_the_others,
            extra.ask_unread,
        )
        return any(forms)

    @property
    def askings(self) -> int:
        """The maximum number of requests for a question in a trial, without `chance_questions`."""
        extra = self.evaluation.extra
        askings = extra.shuffle_choices or 1  # one asking for each order of the choices
        if extra.repeats is not None:
            askings += extra.repeats - 1  # `repeats` includes the first asking
        if extra.perturb is not None:
            askings += len(extra.perturb)
        if extra.pushback is not None:
            askings += extra.pushback
        if extra.confidence == STATED:
            askings += 1
        if extra.allow_abstain:
            askings += 1
        if extra.blind_control:
            askings += 2  # with a grey picture, and with the picture of another question
        for is_asked in (extra.options_only, extra.none_of_the_others, extra.ask_unread):
            if is_asked:
                askings += 1
        return askings


@dataclass(frozen=True)
class EndpointPlan(EndpointSettings):
    """The settings of an endpoint, with the facts that only HELM needs."""

    _: KW_ONLY
    # the maximum number of tokens of prompt and answer together; None: HELM cuts no prompt
    max_length: int | None = None
    alias: str | None = None  # the text from which HELM's name is made; None: the model id
    helm_name: str | None = None  # HELM's complete name; None: it is made from `alias`
    shows_images: bool = False  # True if requests are known to contain pictures
    # the benchmark's limit of output tokens; None: only HELM knows the limit
    output_tokens: int | None = None

    @property
    def slug(self) -> str:
        """The name of the model for HELM and for file systems."""
        return slug_of(self.alias or self.model_id)


def make_plan(evaluation: Evaluation, rundir: RunDir | None = None) -> Plan:
    """Return the plan of an evaluation; nothing is written to disk.

    `rundir`: the output folder; None for the output folder of the configuration.
    """
    rundir = rundir or RunDir(evaluation.output_dir.absolute())
    earlier_servers = read_earlier_servers(evaluation, rundir)
    sends_as_before = sends_metadata_as_before(evaluation, rundir)
    params = evaluation.params
    endpoint = evaluation.endpoint
    extra = params.extra
    keeps_metadata = extra.keep_image_metadata or sends_as_before
    # A scenario may have a parameter `max_length` itself; the setting is then for the scenario.
    is_for_scenario = "max_length" in evaluation.task.helm.parameters
    key_names: tuple[str, ...] = ()
    needs_no_key = endpoint.is_demo or bool(endpoint.oauth)  # an OAuth token replaces the key
    if endpoint.api_key is not None and not needs_no_key:
        key_names = (str(endpoint.api_key),)
    shared = _shared_settings(
        evaluation, endpoint, role=MODEL_ROLE, urls=endpoint.urls, earlier_servers=earlier_servers
    )
    model = EndpointPlan(
        **shared,
        endpoint_type=endpoint.type,
        key_names=key_names,
        parallelism=params.parallelism,
        top_p=params.top_p,
        max_length=None if is_for_scenario else extra.max_length,
        use_nvcf=endpoint.adapter_config.use_nvcf,
        max_image_side=extra.max_image_side,
        keeps_metadata=keeps_metadata,
        shows_images=evaluation.task.helm.media == IMAGES,
        output_tokens=evaluation.max_output_tokens,
        adapter=_adapter_of(endpoint, with_logprobs=extra.confidence == LOGPROBS),
    )
    return Plan(
        evaluation=evaluation,
        rundir=rundir,
        model=model,
        judges=tuple(
            _judge_endpoint(evaluation, judge, earlier_servers, keeps_metadata=keeps_metadata)
            for judge in jury_of(evaluation)
        ),
        prescribed=_prescribed_judges(evaluation, earlier_servers, keeps_metadata=keeps_metadata),
        scenario_arguments=_scenario_arguments(evaluation),
        identity=identity_of(evaluation, earlier_servers),
        earlier_servers=earlier_servers,
        sends_metadata_as_before=sends_as_before,
    )


def _scenario_arguments(evaluation: Evaluation) -> dict[str, str | int]:
    """Return the arguments of the scenario: from the task, and from the settings that it declares.

    The keys are HELM's names of the arguments.
    """
    declared = evaluation.task.helm.parameters
    arguments: dict[str, str | int] = dict(evaluation.task.helm.arguments)
    for name in (*SCENARIO_PARAMETERS, "max_length"):
        value = getattr(evaluation.extra, name)
        if name in declared and value is not None:
            arguments[declared[name].helm_name or name] = value
    return arguments


def _adapter_of(endpoint: ApiEndpoint, *, with_logprobs: bool) -> Adapter:
    """Return the user's changes to requests (`adapter_config`, which is not HELM's adapter).

    `with_logprobs`: True to request log probabilities.
    """
    adapter = Adapter(**endpoint.adapter_config.model_dump(exclude={"use_nvcf"}))
    if not with_logprobs:
        return adapter
    # The chat API takes a boolean, the completions API the number of alternatives to each token.
    logprobs = True if endpoint.type == CHAT else 1
    return replace(adapter, params_to_add={**adapter.params_to_add, "logprobs": logprobs})


def jury_of(evaluation: Evaluation) -> list[Judge]:
    """Return the judges of the configuration, or the default jury at the target's URL.

    Returns an empty list if the task needs no jury.
    """
    extra = evaluation.extra
    defaults = evaluation.framework.judges
    roles = evaluation.task.helm.judges
    if extra.judges and roles:
        return extra.judges
    judges = []
    for role in roles:
        default = defaults[role]
        # `default.api_key` is the name of a setting, whose value is the name of the variable.
        variable = getattr(extra, default.api_key)
        judges.append(Judge(name=role, model_id=default.model_id, api_key=variable))
    return judges


def key_destination_lines(endpoints: Iterable[EndpointSettings]) -> list[str]:
    """Return a line for each endpoint and host, with the variables whose key the host gets."""
    lines = []
    for endpoint in endpoints:
        sent = " or else ".join(endpoint.key_names) or "no key"
        if endpoint.oauth is not None:
            sent = f"OAuth token of {endpoint.oauth.service}"
        hosts = []
        for url in endpoint.urls:
            parts = urlsplit(url)
            hosts.append(f"{parts.scheme}://{parts.netloc}")
        for host in dict.fromkeys(hosts):
            lines.append(f"{endpoint.role} at {host}: {sent}")
    return lines


def _shared_settings(
    evaluation: Evaluation,
    endpoint: ApiEndpoint | Judge,
    *,
    role: str,
    urls: Sequence[str],
    earlier_servers: Mapping[str, RoleServers],
) -> dict[str, Any]:
    """Return the settings that endpoints of models and of judges have in common.

    The keys are names of fields of `EndpointPlan`.

    Args:
        evaluation: the evaluation.
        endpoint: the section of the configuration about the endpoint.
        role: `model`, or the name of the judge.
        urls: the URLs of the endpoint's servers.
        earlier_servers: the servers of the folder's last run, by role.
    """
    params = evaluation.params
    url, servers = named_servers(urls, earlier_servers.get(role))
    return {
        "role": role,
        "url": url,
        "servers": servers,
        "model_id": endpoint.model_id,
        "oauth": oauth_of(evaluation, endpoint.oauth) if endpoint.oauth else None,
        "request_timeout": params.request_timeout,
        "max_retries": params.max_retries,
        "requests_per_minute": endpoint.requests_per_minute,
        "headers": endpoint.headers,
        "batch": endpoint.batch,
        "tokens_per_minute": endpoint.tokens_per_minute,
        "stop_after_failures": params.extra.stop_after_failures,
    }


def _prescribed_judges(
    evaluation: Evaluation, earlier_servers: Mapping[str, RoleServers], *, keeps_metadata: bool
) -> tuple[EndpointPlan, ...]:
    """Return the judges that HELM's annotators prescribe.

    A judge in `extra.judges` with the name of the role replaces the prescribed judge. Otherwise the
    prescribed judge is asked at the target's URL, with the key of the default judge.
    """
    extra = evaluation.extra
    own_judges = {judge.name: judge for judge in extra.judges or []}
    endpoints = []
    for role, deployment in prescribed_judges_by_role(
        evaluation.task.helm.prescribed_judges
    ).items():
        default = evaluation.framework.judges.get(role)
        # The first part of a deployment's name is an organization, such as openai.
        model_id = deployment.partition("/")[2]
        key_setting = {}
        if default is not None:
            # As in `jury_of`, `default.api_key` is the name of a setting.
            key_setting["api_key"] = getattr(extra, default.api_key)
            # If the default judge of this role is the same model, take its id. The id may have an
            # organization, which the endpoint requires.
            if default.model_id.rpartition("/")[2] == model_id:
                model_id = default.model_id
        judge = own_judges.get(role) or Judge(name=role, model_id=model_id, **key_setting)
        endpoint = _judge_endpoint(
            evaluation, judge, earlier_servers, keeps_metadata=keeps_metadata
        )
        endpoints.append(replace(endpoint, helm_name=deployment))
    return tuple(endpoints)


def _merged_headers(headers: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the headers, with the overrides added. The case of header names is ignored."""
    replaced_names = set(map(str.lower, overrides))
    merged = {}
    for name, value in headers.items():
        if name.lower() not in replaced_names:
            merged[name] = value
    return {**merged, **overrides}


def _judge_endpoint(
    evaluation: Evaluation,
    judge: Judge,
    earlier_servers: Mapping[str, RoleServers],
    *,
    keeps_metadata: bool,
) -> EndpointPlan:
    """Return the endpoint of a judge."""
    params = evaluation.params
    target = evaluation.endpoint
    urls = urls_in(judge.url) or target.urls
    shared = _shared_settings(
        evaluation, judge, role=judge.name, urls=urls, earlier_servers=earlier_servers
    )
    # The judge's own variable comes first, then the main key. The main key is sent only to hosts of
    # the target, and not if the user has set the judge's key to null.
    variables = [judge.api_key]
    target_origins = set(map(origin_of, target.urls))
    is_at_target = target_origins.issuperset(map(origin_of, urls))
    if is_at_target and not judge.sends_no_key:
        variables.append(target.api_key)
    if is_at_target:  # the same server needs the same headers
        shared["headers"] = _merged_headers(target.headers, judge.headers)
    has_key = not judge.oauth and shared["url"] not in DEMO_URLS
    key_names: tuple[str, ...] = ()
    if has_key:
        key_names = tuple(dict.fromkeys(name for name in variables if name))
    sees_images = params.extra.judges_see_images
    return EndpointPlan(
        **shared,
        endpoint_type=CHAT,
        key_names=key_names,
        parallelism=judge.parallelism or params.parallelism,
        use_nvcf=judge.use_nvcf,
        adapter=_adapter_of_judge(evaluation, judge),
        max_image_side=params.extra.max_image_side if sees_images else None,
        keeps_metadata=keeps_metadata and sees_images,
        sees_images=sees_images,
        shows_images=sees_images,
        structured=judge.structured,
    )


def _adapter_of_judge(evaluation: Evaluation, judge: Judge) -> Adapter:
    """Return the changes to the requests of a judge.

    Of the target's changes, only the reasoning markers apply to judges. The judge's own parameters
    are added. All other changes have their default values.
    """
    changes = evaluation.endpoint.adapter_config.model_dump(exclude={"use_nvcf"})
    defaults = evaluation.framework.defaults.target["api_endpoint"]["adapter_config"]
    for name in changes:
        # `start_reasoning_token` and `end_reasoning_token` are the reasoning markers
        if not name.endswith("_reasoning_token"):
            changes[name] = defaults[name]
    changes["params_to_add"] = {}
    for name in ("temperature", "top_p", "max_tokens"):
        value = getattr(judge, name)
        if value is not None:
            changes["params_to_add"][name] = value
    return Adapter(**changes)


def oauth_of(evaluation: Evaluation, service: str) -> OAuthSettings:
    """Return the OAuth settings of a service; URL and scope are None if framework.yml has none."""
    entry = evaluation.framework.oauth.get(service)
    if entry is None:
        return OAuthSettings(service, token_url=None, scope=None)
    return OAuthSettings(service, token_url=entry.token_url, scope=entry.scope)


def identity_of(
    evaluation: Evaluation, earlier_servers: Mapping[str, RoleServers] = MappingProxyType({})
) -> str:
    """Return the identity of a run: a hash of all settings that affect requests.

    Stored answers can be reused only by a run with the same identity. Settings without a value or
    without effect are left out. A setting that a later version adds therefore does not change the
    identity of earlier runs.

    `earlier_servers`: the servers of the folder's last run, by role.
    """
    values = _values_with_effect(evaluation)
    # The identity has the name of the servers: servers may be added to an endpoint, or removed,
    # without a new identity.
    values[URL_SETTING], _ = named_servers(
        evaluation.endpoint.urls, earlier_servers.get(MODEL_ROLE)
    )
    values["config.type"] = evaluation.task.name
    # The paths in the arguments are absolute: equal relative paths may be different files.
    values["helm.arguments"] = evaluation.task.helm.arguments
    configured_judges = values.pop("config.params.extra.judges", None)
    # the settings of each configured judge; of the default jury a dict from the role to the model
    judges: Any
    if configured_judges is None:
        judges = {}
        for role in evaluation.task.helm.judges:
            judges[role] = evaluation.framework.judges[role].model_id
    else:
        judges = []
        for configured_judge in configured_judges:
            judge = dict(configured_judge)
            for name in JUDGE_RUNTIME_SETTINGS:
                judge.pop(name, None)
            if judge["url"] is not None:
                earlier = earlier_servers.get(judge["name"])
                judge["url"], _ = named_servers(urls_in(judge["url"]), earlier)
            judges.append(judge)
    parts: dict[str, Any] = {"values": values, "judges": judges}
    # The user's own benchmark is identified by the digests of its files, not by their path.
    if evaluation.benchmark is not None:
        del values["config.params.extra.benchmark"]
        parts["benchmark"] = dict(evaluation.benchmark.sha256)
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return f"v{IDENTITY_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _values_with_effect(evaluation: Evaluation) -> dict[str, Any]:
    """Return the values of all settings that may affect requests, by dotted path."""
    extra = evaluation.extra
    paths_without_effect = []
    if evaluation.stop_when is None:
        paths_without_effect.append(STOP_WHEN_SETTING)
    if not extra.allow_abstain:
        paths_without_effect.append("config.params.extra.cost_of_wrong")
    further_askings = (getattr(extra, name) for name in ASKING_KEYS)
    if not any(further_askings):
        paths_without_effect.append("config.params.extra.chance_questions")
    if extra.answer_style == LETTER_STYLE:
        paths_without_effect.append("config.params.extra.answer_style")
    values = {}
    for path, value in leaves_of(evaluation.as_dict()):
        # `value not in (None, False)` would be wrong: a temperature of 0 is equal to False.
        is_set = value is not None and value is not False
        # `startswith`, because a path without effect may be that of a section, as
        # `STOP_WHEN_SETTING` is.
        changes_nothing = path in RUNTIME_SETTINGS or path.startswith(tuple(paths_without_effect))
        if is_set and not changes_nothing:
            values[path] = value
    return values


def leaves_of(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return each setting as a tuple of its dotted path and its value.

    A mapping whose keys the user chooses (`params_to_...`) is one value.

    Args:
        tree: `config` and `target`, or a section of them.
        prefix: the dotted path of the section; empty at the top.
    """
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        is_section = isinstance(value, Mapping) and not key.startswith("params_to_")
        if is_section:
            leaves.extend(leaves_of(value, path))
        else:
            leaves.append((path, value))
    return leaves


_MAX_SLUG = 60  # the maximum length of a slug without the hash, in characters


def slug_of(model_id: str) -> str:
    """Return a name for a model that all file systems and HELM accept.

    The name has lower-case letters, digits, dots and hyphens. If characters were replaced or cut, a
    hash of the complete id is appended, so that two model ids never get the same name.
    """
    # "Org/Model_7B (v2)" -> "org-model-7b-v2"
    with_hyphens = re.sub(r"[^a-z0-9.]+", "-", model_id.lower()).strip("-.")
    slug = with_hyphens[:_MAX_SLUG].rstrip("-.")
    if slug == model_id:
        return slug
    digest = hashlib.sha256(model_id.encode()).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


# "      keep_image_metadata: false"
_METADATA_KEY = re.compile(r"^ +keep_image_metadata:", re.MULTILINE)
"""Matches a run_config.yml of the versions that remove metadata: only these have this setting."""


def may_send_files(evaluation: Evaluation) -> bool:
    """Return True if requests may contain pictures or sounds.

    Also True for tasks about which this is unknown before HELM runs.
    """
    benchmark = evaluation.benchmark
    if benchmark is not None:
        return benchmark.rows_with_pictures > 0
    helm = evaluation.task.helm
    is_unknown = helm.indexed is None  # the run spec is not one of HELM's
    return helm.media is not None or is_unknown


def sends_metadata_as_before(evaluation: Evaluation, rundir: RunDir) -> bool:
    """Return True if the folder's first run sent pictures with their metadata.

    A stored answer is found by its request. Later runs in the folder therefore send the metadata
    too: otherwise their requests would differ from those of the stored answers.
    """
    if not may_send_files(evaluation):
        return False
    try:
        text = rundir.run_config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False  # most often because this is the first run in the folder
    # Only an early version, which always sent the metadata, wrote a file without the setting. A
    # later run in the folder has replaced this file by one with `SENDS_METADATA_KEY`.
    is_of_early_version = _METADATA_KEY.search(text) is None
    return f"\n{SENDS_METADATA_KEY}:" in text or is_of_early_version
