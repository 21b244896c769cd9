"""The settings of one endpoint in one role, as the plan makes them and the client uses them.

HELM's file model_deployments.yaml holds the settings as arguments of the client (`to_args`,
`from_args`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from eval_factory.core.secrets import fill_variables, variables_in
from eval_factory.endpoint import media, openai_api

BATCH_OR_SINGLE = "fallback"
"""A value of `batch`: if a batch ends without an answer to a request, the request is sent alone."""
# Fields that model_deployments.yaml leaves out if they are empty: without them, the file stays as
# earlier versions, which did not have these fields, wrote it.
_OMITTED_IF_EMPTY = (
    "servers",
    "headers",
    "max_image_side",
    "keeps_metadata",
    "sees_images",
    "batch",
    "structured",
)


@dataclass(frozen=True)
class OAuthSettings:
    """The service that issues the endpoint's tokens."""

    service: str
    token_url: str | None  # used if the environment names no other URL
    scope: str | None


@dataclass(frozen=True)
class EndpointLimits:
    """The limits of an endpoint, which hold for all its clients together."""

    parallelism: int  # the maximum number of requests at once
    requests_per_minute: int | None = None  # None: no limit
    tokens_per_minute: int | None = None  # None: no limit


@dataclass(frozen=True)
class EndpointSettings:
    """The settings of an endpoint for one role (the model, or a judge)."""

    _: KW_ONLY
    role: str
    url: str
    """The URL as the user wrote it; the cache's keys contain it.

    `${NAME}` stands for the value of an environment variable; no file may hold this value.
    """
    model_id: str
    endpoint_type: str
    # environment variables to read the API key from; the first that is set counts
    key_names: tuple[str, ...]
    request_timeout: float  # the timeout of one attempt, in seconds
    max_retries: int
    parallelism: int
    top_p: float | None = None
    use_nvcf: bool = False  # True if the URL is that of an NVIDIA Cloud Function
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    # N > 0: the run, or the judge, stops if its first N requests all fail; 0: it does not stop
    stop_after_failures: int = 0
    oauth: OAuthSettings | None = None
    servers: tuple[str, ...] = ()
    """The URLs of the servers, if several servers serve this model; else empty.

    If there are several servers, `url` is only their common name in the cache's keys.
    """
    adapter: openai_api.Adapter
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of every request, as the user wrote them.

    `${NAME}` stands for the value of an environment variable; no file may hold this value.
    """
    # the maximum side of a picture, in pixels; a larger picture is scaled down before it is sent
    max_image_side: int | None = None
    keeps_metadata: bool = False  # True if EXIF, comments and tags of files are sent too
    # True for a judge that sees the pictures of the question whose answer it judges
    sees_images: bool = False
    batch: bool | str = False
    """False, True or `BATCH_OR_SINGLE`: whether requests go by batch.

    With True, a request fails if its batch ends without an answer to it.
    """
    structured: bool = False  # True for a judge whose verdicts have to follow a JSON schema

    @property
    def is_demo(self) -> bool:
        """True if this is the built-in demo endpoint, which is not a model."""
        return self.url.startswith("demo:")

    @property
    def sending_rule(self) -> media.SendingRule:
        """The rule by which pictures and sounds are changed before they are sent."""
        return media.SendingRule(self.max_image_side, self.keeps_metadata)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all servers."""
        return self.servers or (self.url,)

    @property
    def limit(self) -> EndpointLimits:
        """The limits that all clients of the endpoint share."""
        return EndpointLimits(self.parallelism, self.requests_per_minute, self.tokens_per_minute)

    @property
    def secret_variables(self) -> list[str]:
        """The variables whose values are filled in when a request is sent.

        No file may hold these values. The variables may be in URLs, added parameters and headers.
        """
        return variables_in([self.urls, self.adapter.params_to_add, self.headers])

    @property
    def secret_field_names(self) -> list[str]:
        """The fields of each request whose values no file may hold."""
        names: list[str] = []
        for name, value in self.adapter.params_to_add.items():
            if variables_in(value):
                names.append(name)
        return names

    def secret_fields(self, env: Mapping[str, str]) -> dict[str, Any]:
        """Return the secret fields with their values, which are sent but never stored.

        Raises:
            PrerequisiteError: a variable is not set.
        """
        added = self.adapter.params_to_add
        return {name: fill_variables(added[name], env) for name in self.secret_field_names}

    def body_of(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON body for a request, in the form in which it is stored.

        The body holds the names of `secret_variables` instead of their values, and the hash of each
        picture or sound instead of its content.

        Args:
            request: HELM's request. Its `multimodal_prompt`, if present, holds `media_objects`:
                each has a text, or the location of a file.

        Raises:
            UnusableMedium: a picture or sound cannot be sent.
        """
        media_objects = (request.get("multimodal_prompt") or {}).get("media_objects")
        if media_objects:
            turns = request.get("messages") or [
                {"role": "user", "content": request.get("prompt") or ""}
            ]
            messages = media.messages_of(media_objects, self.sending_rule, turns)
            request = {**request, "messages": messages}
        return openai_api.request_body(
            request,
            model_id=self.model_id,
            endpoint_type=self.endpoint_type,
            top_p=self.top_p,
            adapter=self.adapter,
        )

    def key_of(self, body: Mapping[str, Any], random: str | None) -> str:
        """Return the key under which the answer to a body is stored.

        Args:
            body: the body, as `body_of` returns it, without secrets.
            random: distinguishes equal requests that are sent repeatedly on purpose.
        """
        return openai_api.request_key(self.url, body, random)

    def to_args(self) -> dict[str, Any]:
        """Return a dict from the name of each field to its plain value for YAML.

        Some fields are left out if they are empty (`_OMITTED_IF_EMPTY`).
        """
        args = {setting.name: getattr(self, setting.name) for setting in fields(EndpointSettings)}
        args["headers"] = dict(self.headers)
        for name in _OMITTED_IF_EMPTY:
            if not args[name]:
                del args[name]
        plain: dict[str, Any] = {}
        for name, value in args.items():
            if isinstance(value, (OAuthSettings, openai_api.Adapter)):
                plain[name] = dict(vars(value))
            elif isinstance(value, tuple):
                plain[name] = list(value)
            else:
                plain[name] = value
        return plain

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> EndpointSettings:
        """Return the settings from which `to_args` made these arguments.

        Missing fields get their defaults: `to_args` of an earlier version did not write all fields.
        """
        oauth = args.get("oauth")
        typed_fields = {
            "key_names": tuple(args["key_names"]),
            "servers": tuple(args.get("servers", ())),
            "oauth": None if oauth is None else OAuthSettings(**oauth),
            "adapter": openai_api.Adapter(**args["adapter"]),
        }
        return EndpointSettings(**{**args, **typed_fields})


def limit_names(role: str, number_of_servers: int) -> list[str]:
    """Return the names of an endpoint's limits.

    The first name is for all servers together. If there are several servers, a name for each server
    follows, in the order of the servers.
    """
    names = [role]
    if number_of_servers > 1:
        names += [f"{role} at server {number}" for number in range(1, number_of_servers + 1)]
    return names
