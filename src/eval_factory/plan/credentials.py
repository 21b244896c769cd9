"""Finds the API key of each endpoint, and writes the log lines about the keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.config.merge import Source
from eval_factory.config.model import Extra
from eval_factory.config.resolved import OAUTH_SECRETS, OAUTH_SETTINGS
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.safe_files import read_text
from eval_factory.core.secrets import (
    checked_secret,
    is_placeholder,
    last_characters_of,
    secret_in,
    variable_of,
)
from eval_factory.core.urls import origin_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.registrable_domain import fallback_service
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.oauth_services import oauth_services_in

MAX_CREDENTIALS_SIZE = 1 << 20  # in bytes
CREDENTIALS_FILES = ("credentials.conf", "prod_env/credentials.conf")
"""HELM's own files of credentials, relative to the current folder.

They are read only if no environment variable has the key of an endpoint.
"""
CREDENTIALS_VARIABLE = "HELM_CREDENTIALS"  # has the text of such a file, and replaces the files


@dataclass
class CredentialsReport:
    """The log lines about the keys, and the keys that helm-run gets in addition to the environment.

    The log lines contain no key.
    """

    lines: list[str] = field(default_factory=list)
    # keys by the name of their variable: keys from credentials.conf, and values from the
    # environment from which white space was removed
    added_keys: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # lines that are also shown on the screen


def credentials_report(plan: Plan, env: Mapping[str, str]) -> CredentialsReport:
    """Find the key of every endpoint of a plan.

    The key comes from the endpoint's own variable, else from the variable of the main key, else
    from credentials.conf, which has keys for single model ids and for organizations. A judge on a
    host that is no host of the model may only get the key for its own model id.

    Raises:
        PrerequisiteError: a key that the configuration names was not found, or a key contains
            characters that cannot be sent.
        ConfigError: credentials.conf cannot be read.
    """
    framework = plan.evaluation.framework
    sources = plan.evaluation.sources
    extra = plan.evaluation.extra
    endpoint = plan.evaluation.endpoint
    variable_at_path = {"target.api_endpoint.api_key": endpoint.api_key}
    for default in framework.judges.values():
        # `default.api_key` is the name of a setting, whose value is the name of the variable.
        variable_at_path[f"config.params.extra.{default.api_key}"] = getattr(extra, default.api_key)
    # A variable that the user's configuration names has to be set.
    required = {judge.api_key for judge in extra.judges or []}
    for path, variable in variable_at_path.items():
        if sources.get(path) is not Source.FRAMEWORK:
            required.add(variable)
    # A setting without a variable is None: its endpoint gets no key.
    required_variables = {variable for variable in required if variable}
    report = credentials_of(plan.endpoints, env, required=required_variables)
    report.warnings += _unused_services(plan, env)
    report.lines += report.warnings
    return report


def _unused_services(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each OAuth service that has a client id in the environment but no use."""
    used = set(plan.evaluation.oauth_services())
    services = oauth_services_in(env)
    for endpoint in plan.endpoints:
        # The service with the same owner as the endpoint signs in without a key, or if the endpoint
        # refuses the key.
        fallback = fallback_service(endpoint, services)
        if fallback is not None:
            used.add(fallback.service)
    oauth_paths = ["target.api_endpoint.oauth"]
    oauth_paths += [f"oauth in the entry {judge.role} of extra.judges" for judge in plan.judges]
    for service in plan.evaluation.framework.oauth:
        name = variable_of(service, "CLIENT_ID")
        if service not in used and env.get(name):
            yield (
                f"{name} is set, but eval-factory uses keys and no OAuth token: no endpoint is "
                "at the token URL's host or domain, and the configuration does not say `oauth: "
                f"{service}`; to sign in with tokens, set {' or '.join(oauth_paths)} to {service}"
            )


def credentials_of(
    endpoints: Iterable[EndpointSettings], env: Mapping[str, str], *, required: Collection[str]
) -> CredentialsReport:
    """Find the key of each of these endpoints, as `credentials_report` does.

    Args:
        endpoints: the endpoints.
        env: the environment variables.
        required: names of variables. An endpoint with one of these variables must have a key.

    Raises:
        PrerequisiteError: a required key was not found, or a key contains characters that cannot
            be sent.
        ConfigError: credentials.conf cannot be read.
    """
    endpoints = list(endpoints)
    services = oauth_services_in(env)
    oauth_variables, values = _read_variables(endpoints, env)
    report = CredentialsReport(added_keys=_stripped_values(values, env))
    model_origins = _model_origins(endpoints)
    without_key: list[EndpointSettings] = []  # endpoints without a required key
    helm_credentials: _HelmCredentials | None = None  # read only if it is needed
    for endpoint in endpoints:
        if not endpoint.key_names:
            if endpoint.oauth is not None:
                report.lines.append(
                    f"Using {endpoint.oauth.service} OAuth token for {endpoint.role}"
                )
            continue
        own_variable = endpoint.key_names[0]
        variable_with_key = next((name for name in endpoint.key_names if values[name]), None)
        if variable_with_key is not None:
            key = values[variable_with_key] or ""  # `or` is for mypy: the value is not None here
            report.lines += _lines_about_key(endpoint, variable_with_key, key)
            continue
        if helm_credentials is None:
            helm_credentials = _read_helm_credentials(env)
        source = helm_credentials.source
        stored_key = _key_in(helm_credentials.keys, endpoint, model_origins)
        helm_key = checked_secret(stored_key or "", source)
        if helm_key is not None:
            report.added_keys[own_variable] = helm_key
            report.lines.append(f"{own_variable} is not set, setting to the key of {source}")
            report.lines.append(_usage_line(source, endpoint.role, helm_key))
        elif (fallback := fallback_service(endpoint, services)) is not None:
            tokens = f"{fallback.service} OAuth tokens"
            report.lines.append(f"{own_variable} is not set: {tokens} sign in {endpoint.role}")
        elif set(required) & set(endpoint.key_names):
            without_key.append(endpoint)
        else:
            report.lines.append(
                f"{own_variable} is not set: asking {', '.join(endpoint.urls)} without a key"
            )
    report.lines += _placeholder_lines({**values, **report.added_keys}, oauth_variables)
    if without_key:
        raise PrerequisiteError("\n".join(dict.fromkeys(map(_what_to_set, without_key))))
    return report


def _stripped_values(values: Mapping[str, str | None], env: Mapping[str, str]) -> dict[str, str]:
    """Return the values from which white space was removed, by the name of their variable."""
    stripped = {}
    for variable, value in values.items():
        if variable in env and env[variable] != value:
            stripped[variable] = value or ""  # None: the variable is empty or has only white space
    return stripped


def _model_origins(endpoints: Iterable[EndpointSettings]) -> set[object]:
    """Return the origins (scheme, host and port) of the model's URLs."""
    urls = (endpoint.urls for endpoint in endpoints if endpoint.role == MODEL_ROLE)
    return set(map(origin_of, chain.from_iterable(urls)))


def _placeholder_lines(
    values: Mapping[str, str | None], oauth_variables: Collection[str]
) -> Iterator[str]:
    """Yield a line for each variable whose value looks like a placeholder and is not redacted.

    `oauth_variables`: the names of the OAuth variables, which are left out.
    """
    for variable, value in values.items():
        if value and is_placeholder(value) and variable not in oauth_variables:
            yield (
                f"{variable} holds a placeholder, or a key too short or too plain to be "
                "distinguished from words: it is not redacted"
            )


def _read_variables(
    endpoints: Iterable[EndpointSettings], env: Mapping[str, str]
) -> tuple[set[str], dict[str, str | None]]:
    """Return the names of the OAuth variables, and a dict from the name of a variable to its value.

    The dict has the OAuth variables and the variables of keys and secrets. The value is None if the
    variable is not set or empty.
    """
    oauth_variables = set()
    other_variables: set[str] = set()
    for endpoint in endpoints:
        other_variables.update(endpoint.key_names, endpoint.secret_variables)
        if endpoint.oauth is not None:
            for name in (*OAUTH_SECRETS, *OAUTH_SETTINGS):
                oauth_variables.add(variable_of(endpoint.oauth.service, name))
    names = sorted(oauth_variables | other_variables)
    return oauth_variables, {name: secret_in(env, name) for name in names}


def _what_to_set(endpoint: EndpointSettings) -> str:
    """Return the message that an endpoint has no key, with the variables that the user may set."""
    own_variable, *alternatives = endpoint.key_names
    if endpoint.role == MODEL_ROLE:
        return (
            f"no API key: the environment variable {own_variable} is not set\n"
            f"  set it (export {own_variable}=...) or name another one with --api_key_name"
        )
    path = f"api_key in the entry {endpoint.role} of config.params.extra.judges"
    own_key = f"{endpoint.role}_judge_api_key"
    if own_key in Extra.model_fields:
        path = f"config.params.extra.{own_key}, or as {path}"
    problem = f"{own_variable} is not set"
    if alternatives:
        problem = f"neither {own_variable} nor the main key's {alternatives[0]} is set"
    return (
        f"no API key for judge {endpoint.role}: of its environment variables, {problem}\n"
        f"  set it (export {own_variable}=...), or name another one as {path}"
    )


def _lines_about_key(endpoint: EndpointSettings, name: str, key: str) -> Iterator[str]:
    """Yield the log lines about an endpoint whose key is in the variable `name`."""
    own_variable = endpoint.key_names[0]
    if name != own_variable:
        yield f"{own_variable} is not set, setting to {name}"
    elif endpoint.role != MODEL_ROLE:
        judge = "GPT" if endpoint.role == "gpt" else endpoint.role.capitalize()
        yield (
            f"Using {judge} judge API key from environment variable for model: {endpoint.model_id}"
        )
    yield _usage_line(name, endpoint.role, key)


def _usage_line(name: str, role: str, key: str) -> str:
    """Return the log line about the use of a key; the line shows only the end of the key."""
    return f"Using API key {name} for {role}, ends with {last_characters_of(key)}"


class _HelmCredentials(NamedTuple):
    """HELM's credentials."""

    source: str  # the name of the variable or file; empty if there are no credentials
    keys: Any  # the content as a dict, in HELM's format; empty if there are no credentials


def _read_helm_credentials(env: Mapping[str, str]) -> _HelmCredentials:
    """Return HELM's credentials from the environment variable, else from the first file.

    Raises:
        ConfigError: the credentials cannot be read.
    """
    source = CREDENTIALS_VARIABLE
    text = env.get(CREDENTIALS_VARIABLE)
    if text is None:
        path = next((path for path in map(Path, CREDENTIALS_FILES) if path.is_file()), None)
        if path is None:
            return _HelmCredentials(source="", keys={})
        source = str(path)
        try:
            text = read_text(path, max_size=MAX_CREDENTIALS_SIZE)
        except (OSError, UnicodeDecodeError):
            raise ConfigError([f"{path}: cannot be read"]) from None
    # imported late: the import takes 130 ms and is rarely needed
    from pyhocon import ConfigFactory

    try:
        keys = ConfigFactory.parse_string(text).as_plain_ordered_dict()
    except Exception:  # pyhocon raises many kinds of errors, whose messages quote the file
        raise ConfigError([f"{source}: is not HOCON, the format of HELM's credentials"]) from None
    return _HelmCredentials(source, keys)


def _key_in(
    helm_keys: Any, endpoint: EndpointSettings, model_origins: Collection[object]
) -> str | None:
    """Return the key for an endpoint in HELM's credentials; None if there is no key for it.

    Only endpoints at the `model_origins` get the key that the credentials have for an organization.
    """
    deployments = helm_keys.get("deployments")
    key_by_model = {}
    if isinstance(deployments, Mapping):
        key_by_model = dict(deployments)
    candidates = [key_by_model.get(endpoint.model_id)]
    is_at_model = set(model_origins).issuperset(map(origin_of, endpoint.urls))
    if is_at_model:
        # HELM's key for OpenAI is the last choice, because every endpoint has OpenAI's protocol.
        organization = endpoint.model_id.partition("/")[0]
        candidates += [helm_keys.get(f"{organization}ApiKey"), helm_keys.get("openaiApiKey")]
    return next((key for key in candidates if isinstance(key, str) and key), None)
