"""What a user reads when an endpoint cannot be asked: which role, which address, what it says, what to check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core.failure_causes import Causes, line_of
from eval_factory.core.proxies import proxy_variable
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import secret_in
from eval_factory.core.urls import API_PATHS
from eval_factory.endpoint.endpoint_settings import EndpointSettings

SHOWN_CAUSES = 3


@dataclass(frozen=True)
class StopMessages:
    """Of one endpoint in one role."""

    settings: EndpointSettings
    url: str
    """The address that is asked, redacted."""
    key_name: str | None
    """The variable whose key is sent."""

    def refused(self, status: int, said: str) -> str:
        """Of the key (401, 403), or of the address or the model (404)."""
        if status == 404:
            model = repr(self.settings.model_id)
            return self.of_role(
                f"{self.url} answers 404: there is no such address, or no model {model}{_it_says(said)}\n"
                f"  check {self._settings('url', 'model_id')}{self._with_v1()}"
            )
        asked = f"Authentication error detected: {self.url} answers {status}{_it_says(said)}"
        return self.of_role(f"{asked}\n  {self._key_advice()}")

    def refused_probe(self, status: int, said: str) -> str:
        return self.of_role(
            f"{self.url} refuses a first short request: HTTP {status}{_it_says(said)}\n"
            f"  check {self._settings('model_id', 'url', 'api_key')}; --no_preflight starts without asking this"
        )

    def none_answered(self, number: int, errors: Iterable[str]) -> str:
        causes = Causes()
        for error in errors:
            causes.add(self.settings.role, error)
        known = causes.listed()
        rest = sum(cause.count for cause in known[SHOWN_CAUSES:])
        lines = [
            f"the first {number} requests to {self.url} all failed:",
            *map(line_of, known[:SHOWN_CAUSES]),
            *([f"{rest} x something else"] if rest else []),
            f"check {self._settings('url', 'model_id')}, and the server; then run the same command again",
            "to ask on regardless: --overrides config.params.extra.stop_after_failures=0",
        ]
        return self.of_role("\n  ".join(lines))

    def moved(self, status: int) -> str:
        return self.of_role(f"{self.url} answers {status}, it has moved\n  check {self._settings('url')}")

    def proxy_login(self, status: int, url: str) -> str:
        return self.of_role(
            f"the proxy on the way to {self.url} answers {status}: it wants a user name and password\n"
            f"  check the variable {proxy_variable(url)}"
        )

    def unreachable(self, error: str) -> str:
        return self.of_role(f"cannot reach {self.url}: {error}\n  check {self._settings('url')} and the network")

    def outage(self, error: str) -> str:
        answers = "answer" if len(self.settings.urls) > 1 else "answers"
        advice = "what was answered is kept: the same command goes on"
        return self.of_role(f"{self.url} no longer {answers}: {error}\n  {advice}")

    def of_role(self, message: str) -> str:
        return message if self.settings.role == MODEL_ROLE else f"judge {self.settings.role}: {message}"

    def _settings(self, *names: str) -> str:
        """Where the configuration says this."""
        if self.settings.role == MODEL_ROLE:
            return f"target.api_endpoint: {_listed(names)}"
        own = f"the entry {self.settings.role} of config.params.extra.judges"
        return f"{_listed(names)} of this judge ({own}; without one, it is asked at the target's url)"

    def _key_advice(self) -> str:
        if self.settings.oauth is not None:
            return f"check that the client whose {self.settings.oauth.service} OAuth token was sent may use this model"
        if self.key_name is not None:
            sent = f"check the variable {self.key_name}: its key was sent, and has to be allowed to use this model"
        elif self.settings.key_names:
            sent = f"no key was sent: set {' or '.join(self.settings.key_names)}"
        else:
            sent = "no key was sent"
        if self.settings.role == MODEL_ROLE:
            return f"{sent} (target.api_endpoint.api_key names the variable)"
        own, role = next(iter(self.settings.key_names), None), self.settings.role
        set_own = f"set this judge's own, {own}, or " if own not in (None, self.key_name) and self.key_name else ""
        return f"{sent}; {set_own}name a variable as api_key in the entry {role} of config.params.extra.judges"

    def _with_v1(self) -> str:
        """Most servers answer under /v1, and print their address without it."""
        parts = urlsplit(self.url)
        path = parts.path
        for known in API_PATHS.values():
            path = path.removesuffix(known)
        if path.strip("/"):
            return ""
        return f"; most servers answer under /v1: {urlunsplit((parts.scheme, parts.netloc, '/v1', '', ''))}"


def messages_together(messages: Sequence[StopMessages]) -> StopMessages:
    """The messages about all servers of an endpoint."""
    return replace(messages[0], url=_listed([one.url for one in messages]))


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _it_says(said: str) -> str:
    return f"\n  it says: {said}" if said else ""


def messages_of(settings: EndpointSettings, url: str, env: Mapping[str, str]) -> StopMessages:
    """`url`: the address that is asked, redacted."""
    sent = next((name for name in settings.key_names if secret_in(env, name)), None)
    return StopMessages(settings, url, sent)
