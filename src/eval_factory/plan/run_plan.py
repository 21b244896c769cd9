"""The plan of a run: the endpoints by role, the scenario's arguments, and the identity by which a
run is known again.
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

from eval_factory.config.model import DEMO_URLS, ApiEndpoint, Judge, urls_in
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import (
    SCENARIO_PARAMETERS,
    chance_questions_of,
    prescribed_roles,
)
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.rundir import RunDir
from eval_factory.core.urls import base_of, origin_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings
from eval_factory.endpoint.openai_api import CHAT, Adapter
from eval_factory.tasks.asking_forms import ASKED_AGAIN_BY, ASKED_AGAIN_IF, LOGPROBS, STATED
from eval_factory.tasks.reasoned import LETTER
from eval_factory.tasks.run_specs import IMAGES
from eval_factory.tasks.upstreams import Upstream

KEPT_BY = "answers_kept_by"  # the section of run_config.yml; only if there were several servers
SENDS_METADATA = "sends_image_metadata"
"""The mark in run_config.yml of a folder that was begun before metadata were removed."""
IDENTITY_VERSION = 1
URL = "target.api_endpoint.url"
STOP_WHEN = "config.params.extra.stop_when"
HELM_SUITE = "eval-factory"  # the one suite of an output folder: a folder holds one evaluation


def _paths(group: str, *names: str) -> set[str]:
    return {f"{group}.{name}" for name in names}


RUNTIME_ONLY = frozenset(
    {"config.output_dir"}
    | _paths("config.params", "parallelism", "max_retries", "request_timeout")
    | _paths(
        "config.params.extra",
        "perturb_unchecked",  # it allows families, and changes no question
        "judge_passport",  # which one it is, its digest among those of the data says
        "data_dir",  # which bundle it was, .run_state.json remembers
        "allow_code_execution",  # without it there is no run to compare with
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
"""Values that change how a run goes or how its result is judged, not what is asked or answered;
all others do.
"""
JUDGE_RUNTIME_ONLY = frozenset(
    {"api_key", "oauth", "parallelism", "requests_per_minute", "tokens_per_minute", "batch"}
)
"""The same values of a judge."""


@dataclass(frozen=True)
class Plan:
    """Everything that the later stages need to know."""

    evaluation: Evaluation
    rundir: RunDir
    model: EndpointPlan
    judges: tuple[EndpointPlan, ...]  # the jury that the configuration names
    # the judges that HELM's own annotators name; asked through our client too
    prescribed: tuple[EndpointPlan, ...]
    scenario_arguments: Mapping[str, str | int]
    identity: str
    # the servers of the folder's last run, by role, if there are several
    servers_before: Mapping[str, SameServers]
    # the folder was begun before metadata of pictures were removed, and goes on so
    sends_metadata_as_before: bool = False
    asks_model: bool = True

    @property
    def task_name(self) -> str:
        return self.evaluation.task.name

    @property
    def upstream(self) -> Upstream:
        """The HELM that runs it."""
        return self.evaluation.task.helm.upstream

    @property
    def endpoints(self) -> tuple[EndpointPlan, ...]:
        """The endpoints that are asked: not the model if its answers are there already."""
        return self.known_to_helm[self.has_answers or not self.asks_model :]

    @property
    def known_to_helm(self) -> tuple[EndpointPlan, ...]:
        """All endpoints, the model first."""
        return (self.model, *self.judges, *self.prescribed)

    @property
    def has_answers(self) -> bool:
        return self.evaluation.benchmark is not None and self.evaluation.benchmark.has_answers

    @property
    def asks_demo(self) -> bool:
        """True if the embedded endpoint answers in the model's place."""
        return self.model.is_demo and not self.has_answers

    @property
    def trials(self) -> int:
        """The number of times that an instance is asked: more than once only where prompts hold
        examples.
        """
        if self.evaluation.task.helm.is_zero_shot:
            return 1
        return self.evaluation.extra.num_train_trials or 1

    @property
    def chance_questions(self) -> int:
        """The most right answers that are asked for once more in the same words."""
        return chance_questions_of(self.evaluation)

    @property
    def gives_room(self) -> bool:
        """True if some answers may be longer than the benchmark grants
        (`asking_forms.MIN_ANSWER_TOKENS`).
        """
        extra = self.evaluation.extra
        if extra.chance_questions is None:  # the run of an earlier version gave none
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
        """The most times that a question is asked in a trial, without `chance_questions`."""
        extra = self.evaluation.extra
        askings = extra.shuffle_choices or 1
        if extra.repeats is not None:
            askings += extra.repeats - 1
        if extra.perturb is not None:
            askings += len(extra.perturb)
        if extra.pushback is not None:
            askings += extra.pushback
        if extra.confidence == STATED:
            askings += 1
        if extra.allow_abstain:
            askings += 1
        if extra.blind_control:
            askings += 2
        for is_asked in (extra.options_only, extra.none_of_the_others, extra.ask_unread):
            if is_asked:
                askings += 1
        return askings


@dataclass(frozen=True)
class EndpointPlan(EndpointSettings):
    """An endpoint's settings, and what HELM has to know of it beside: by which name, with
    prompts of which length.
    """

    _: KW_ONLY
    # tokens of a prompt and its answer together; None: HELM cuts no prompt
    max_length: int | None = None
    alias: str | None = None  # the base of HELM's name if that is not the model id
    helm_name: str | None = None  # HELM's name itself, if who calls helm-run chose it
    shows_images: bool = False  # True if it is known that the requests hold pictures
    # tokens that the benchmark grants an answer; None: HELM alone knows
    output_tokens: int | None = None

    @property
    def slug(self) -> str:
        return slug_of(self.alias or self.model_id)


def make_plan(evaluation: Evaluation, rundir: RunDir | None = None) -> Plan:
    """The plan of an evaluation; nothing on disk is touched. `rundir`: its folder, if not in
    the folder of its configuration.
    """
    rundir = rundir or RunDir(evaluation.output_dir.absolute())
    before = servers_before(evaluation, rundir)
    sends_as_before = sends_metadata_as_before(evaluation, rundir)
    params = evaluation.params
    endpoint = evaluation.endpoint
    extra = params.extra
    keeps_metadata = extra.keep_image_metadata or sends_as_before
    declared = evaluation.task.helm.parameters
    jury = jury_of(evaluation)
    has_key = not endpoint.is_demo and not endpoint.oauth and endpoint.api_key is not None
    model = EndpointPlan(
        **_shared_settings(evaluation, MODEL_ROLE, endpoint, endpoint.urls, before),
        endpoint_type=endpoint.type,
        key_names=(str(endpoint.api_key),) if has_key else (),
        parallelism=params.parallelism,
        top_p=params.top_p,
        max_length=None if "max_length" in declared else extra.max_length,
        use_nvcf=endpoint.adapter_config.use_nvcf,
        max_image_side=extra.max_image_side,
        keeps_metadata=keeps_metadata,
        shows_images=evaluation.task.helm.media == IMAGES,
        output_tokens=evaluation.output_tokens,
        adapter=_adapter_of(endpoint, with_logprobs=extra.confidence == LOGPROBS),
    )
    arguments: dict[str, str | int] = dict(evaluation.task.helm.arguments)
    for name in (*SCENARIO_PARAMETERS, "max_length"):
        value = getattr(extra, name)
        if name in declared and value is not None:
            rule = declared[name]
            arguments[rule.helm_name or name] = value
    return Plan(
        evaluation=evaluation,
        rundir=rundir,
        model=model,
        judges=tuple(
            _judge_endpoint(evaluation, judge, before, keeps_metadata=keeps_metadata)
            for judge in jury
        ),
        prescribed=_prescribed_judges(evaluation, before, keeps_metadata=keeps_metadata),
        scenario_arguments=arguments,
        identity=identity_of(evaluation, before),
        servers_before=before,
        sends_metadata_as_before=sends_as_before,
    )


def _adapter_of(endpoint: ApiEndpoint, *, with_logprobs: bool) -> Adapter:
    adapter = Adapter(**endpoint.adapter_config.model_dump(exclude={"use_nvcf"}))
    if not with_logprobs:
        return adapter
    return replace(
        adapter,
        params_to_add={**adapter.params_to_add, "logprobs": True if endpoint.type == CHAT else 1},
    )


def jury_of(evaluation: Evaluation) -> list[Judge]:
    """The judges that the configuration names, else the default jury, at the target's URL."""
    extra = evaluation.extra
    defaults = evaluation.framework.judges
    roles = evaluation.task.helm.judges
    if extra.judges and roles:
        return extra.judges
    judges = []
    for role in roles:
        judges.append(
            Judge(
                name=role,
                model_id=defaults[role].model_id,
                api_key=getattr(extra, defaults[role].api_key),
            )
        )
    return judges


def where_keys_go(endpoints: Iterable[EndpointSettings]) -> list[str]:
    """A line for each endpoint: which variable's key is sent to which host."""
    lines = []
    for endpoint in endpoints:
        sent = " or else ".join(endpoint.key_names) or "no key"
        if endpoint.oauth is not None:
            sent = f"OAuth token of {endpoint.oauth.service}"
        hosts = dict.fromkeys("{}://{}".format(*urlsplit(url)[:2]) for url in endpoint.urls)
        for host in hosts:
            lines.append(f"{endpoint.role} at {host}: {sent}")
    return lines


def _shared_settings(
    evaluation: Evaluation,
    role: str,
    endpoint: ApiEndpoint | Judge,
    urls: Sequence[str],
    before: Mapping[str, SameServers],
) -> dict[str, Any]:
    """Return the settings that are the same for the model's endpoint and those of judges."""
    params = evaluation.params
    url, servers = _named(urls, before.get(role))
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
    evaluation: Evaluation, before: Mapping[str, SameServers], *, keeps_metadata: bool
) -> tuple[EndpointPlan, ...]:
    """Return the prescribed judges, at the target's URL with the default judge's key, unless one of
    `extra.judges` has the role's name.
    """
    extra = evaluation.extra
    own_judges = {judge.name: judge for judge in extra.judges or []}
    endpoints = []
    for role, deployment in prescribed_roles(evaluation.task.helm.prescribed_judges).items():
        default = evaluation.framework.judges.get(role)
        model = deployment.partition("/")[2]
        key = {}
        if default is not None:
            key["api_key"] = getattr(extra, default.api_key)
            # one of ours, by HELM's name of it
            if default.model_id.rpartition("/")[2] == model:
                model = default.model_id
        judge = own_judges.get(role) or Judge(name=role, model_id=model, **key)
        endpoints.append(
            replace(
                _judge_endpoint(evaluation, judge, before, keeps_metadata=keeps_metadata),
                helm_name=deployment,
            )
        )
    return tuple(endpoints)


def _merged_headers(headers: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Headers and overrides, which count more; the case of a name says nothing."""
    replaced_names = set(map(str.lower, overrides))
    merged = {}
    for name, value in headers.items():
        if name.lower() not in replaced_names:
            merged[name] = value
    return {**merged, **overrides}


def _judge_endpoint(
    evaluation: Evaluation,
    judge: Judge,
    before: Mapping[str, SameServers],
    *,
    keeps_metadata: bool,
) -> EndpointPlan:
    params = evaluation.params
    target = evaluation.endpoint
    urls = urls_in(judge.url) or target.urls
    shared = _shared_settings(evaluation, judge.name, judge, urls, before)
    # its own variable, then the main key, which is never sent to a host that is not the
    # target's; no key after a null
    keys = [judge.api_key]
    is_at_target = set(map(origin_of, urls)) <= set(map(origin_of, target.urls))
    if is_at_target and not judge.sends_no_key:
        keys.append(target.api_key)
    if is_at_target:  # a gateway wants its headers of judges too
        shared["headers"] = _merged_headers(target.headers, judge.headers)
    has_key = not judge.oauth and shared["url"] not in DEMO_URLS
    # of the user's changes to requests, only the reasoning markers hold for a judge
    adapter = target.adapter_config.model_dump(exclude={"use_nvcf"})
    defaults = evaluation.framework.defaults.target["api_endpoint"]["adapter_config"]
    adapter |= {name: defaults[name] for name in adapter if not name.endswith("_reasoning_token")}
    sees_images = params.extra.judges_see_images
    adapter["params_to_add"] = {}
    for name in ("temperature", "top_p", "max_tokens"):
        value = getattr(judge, name)
        if value is not None:
            adapter["params_to_add"][name] = value
    return EndpointPlan(
        **shared,
        endpoint_type=CHAT,
        key_names=tuple(dict.fromkeys(name for name in keys if name)) if has_key else (),
        parallelism=judge.parallelism or params.parallelism,
        use_nvcf=judge.use_nvcf,
        adapter=Adapter(**adapter),
        max_image_side=params.extra.max_image_side if sees_images else None,
        keeps_metadata=keeps_metadata and sees_images,
        sees_images=sees_images,
        shows_images=sees_images,
        structured=judge.structured,
    )


def oauth_of(evaluation: Evaluation, service: str) -> OAuthSettings:
    """The source of a service's tokens, as far as framework.yml knows it."""
    entry = evaluation.framework.oauth.get(service)
    if entry is None:
        return OAuthSettings(service, None, None)
    return OAuthSettings(service, entry.token_url, entry.scope)


def identity_of(
    evaluation: Evaluation, before: Mapping[str, SameServers] = MappingProxyType({})
) -> str:
    """A versioned hash of all that changes what is asked, and so what may be used again of an
    earlier run.

    What is not set, or not asked for, is not in it: a key that a later version adds changes no
    identity.
    """
    extra = evaluation.extra
    of_no_effect = []
    if evaluation.stop_when is None:
        of_no_effect.append(STOP_WHEN)
    if not extra.allow_abstain:
        of_no_effect.append("config.params.extra.cost_of_wrong")
    asked_otherwise = (getattr(extra, name) for name in (*ASKED_AGAIN_BY, *ASKED_AGAIN_IF))
    if not any(asked_otherwise):
        of_no_effect.append("config.params.extra.chance_questions")
    if extra.answer_style == LETTER:
        of_no_effect.append("config.params.extra.answer_style")
    leaves = {}
    for path, value in leaves_of(evaluation.as_dict()):
        # not `in (None, False)`: a temperature of 0 is equal to False
        is_set = value is not None and value is not False
        changes_nothing = path in RUNTIME_ONLY or path.startswith(tuple(of_no_effect))
        if is_set and not changes_nothing:
            leaves[path] = value
    leaves[URL], _ = _named(evaluation.endpoint.urls, before.get(MODEL_ROLE))
    leaves["config.type"] = evaluation.task.name
    leaves["helm.arguments"] = evaluation.task.helm.arguments  # with paths made absolute
    own_judges = leaves.pop("config.params.extra.judges", None)
    judges: Any
    if own_judges is None:
        judges = {}
        for role in evaluation.task.helm.judges:
            judges[role] = evaluation.framework.judges[role].model_id
    else:
        judges = []
        for own_judge in own_judges:
            judge = dict(own_judge)
            for name in JUDGE_RUNTIME_ONLY:
                judge.pop(name, None)
            if judge["url"] is not None:
                judge["url"], _ = _named(urls_in(judge["url"]), before.get(judge["name"]))
            judges.append(judge)
    parts: dict[str, Any] = {"values": leaves, "judges": judges}
    if evaluation.benchmark is not None:  # it is known by what its files hold, wherever they are
        del leaves["config.params.extra.benchmark"]
        parts["benchmark"] = dict(evaluation.benchmark.sha256)
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return f"v{IDENTITY_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def leaves_of(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every value that is not a section, with its dotted path; a mapping of the user's own keys
    is one value.

    Args:
        tree: `config` and `target`, or a section of them.
        prefix: the dotted path of the section; empty at the top.
    """
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        is_section = isinstance(value, Mapping) and not key.startswith("params_to_")
        leaves.extend(leaves_of(value, path) if is_section else [(path, value)])
    return leaves


def slug_of(model_id: str) -> str:
    """A name that every file system and HELM accept; different model ids never share one.

    Lower case, digits, dots and hyphens; where that lost something, a short hash of the whole id is
    added.
    """
    slug = re.sub(r"[^a-z0-9.]+", "-", model_id.lower()).strip("-.")[:60].rstrip("-.")
    if slug == model_id:
        return slug
    digest = hashlib.sha256(model_id.encode()).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


@dataclass(frozen=True)
class SameServers:
    """The servers of one role that serve the same model."""

    url: str  # the name of the servers together
    servers: tuple[str, ...]  # every server that has been among them


def servers_before(evaluation: Evaluation, rundir: RunDir) -> dict[str, SameServers]:
    """Return the servers of the folder's last run, by role; nothing if neither this run nor that
    one has several.
    """
    endpoint = evaluation.endpoint
    judges = evaluation.extra.judges or []
    several = any(len(urls_in(url)) > 1 for url in (endpoint.url, *(judge.url for judge in judges)))
    try:
        text = rundir.run_config.read_text(encoding="utf-8")
        if not several and f"\n{KEPT_BY}:" not in text:
            return {}
        document = parse_own(text)
        if KEPT_BY in document:
            servers = {}
            for role, entry in document[KEPT_BY].items():
                servers[role] = SameServers(entry["url"], tuple(entry["servers"]))
            return servers
        roles = [MODEL_ROLE, *evaluation.task.helm.judges, *evaluation.task.helm.prescribed_judges]
        urls = urls_in(document["target"]["api_endpoint"]["url"])
        judges_before = document["config"]["params"]["extra"]["judges"] or ()
        urls_of_judges = {judge["name"]: urls_in(judge.get("url")) for judge in judges_before}
        servers = {}
        for role in (*roles, *urls_of_judges):
            urls_of_role = urls_of_judges.get(role) or urls
            servers[role] = SameServers(urls_of_role[0], urls_of_role)
        return servers
    except (OSError, UnicodeDecodeError, YamlError, LookupError, TypeError, AttributeError):
        return {}


_METADATA_KEY = re.compile(r"^ +keep_image_metadata:", re.MULTILINE)


def may_send_files(evaluation: Evaluation) -> bool:
    """Return True if requests may hold pictures or sounds, as far as it is known before HELM says
    so.
    """
    benchmark = evaluation.benchmark
    if benchmark is not None:
        return benchmark.rows_with_pictures > 0
    helm = evaluation.task.helm
    return helm.media is not None or helm.indexed is None


def sends_metadata_as_before(evaluation: Evaluation, rundir: RunDir) -> bool:
    """Return True if the folder was begun by a version that sent files as they were: its answers
    are known by what was sent, so it goes on so.
    """
    if not may_send_files(evaluation):
        return False
    try:
        text = rundir.run_config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return f"\n{SENDS_METADATA}:" in text or _METADATA_KEY.search(text) is None


def _named(urls: Sequence[str], before: SameServers | None) -> tuple[str, tuple[str, ...]]:
    """Return the name of these servers, and the servers; none if they are one with its own name."""
    is_known = before is not None and not set(map(base_of, before.servers)).isdisjoint(
        map(base_of, urls)
    )
    name = before.url if before is not None and is_known else urls[0]
    return name, () if tuple(urls) == (name,) else tuple(urls)


def kept_by(
    endpoints: Iterable[EndpointSettings], before: Mapping[str, SameServers]
) -> dict[str, Any]:
    """The section of run_config.yml; empty if each endpoint is one server, as it always was.

    Args:
        endpoints: of this run.
        before: role -> the servers of earlier runs in the same folder.
    """
    section = {}
    for endpoint in endpoints:
        servers = list(endpoint.urls)
        earlier = before.get(endpoint.role)
        if earlier is not None and earlier.url == endpoint.url:
            servers = [*earlier.servers, *endpoint.urls]
        servers = list(dict.fromkeys(servers))
        if servers != [endpoint.url]:
            section[endpoint.role] = {"url": endpoint.url, "servers": servers}
    return section
