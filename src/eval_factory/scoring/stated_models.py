"""Which models answered: what was asked for, and what the answers themselves state. Pure functions.

A gateway may answer with another model than was asked for (its fallback, when the first is down or out of budget), and
nothing but the `model` in its responses says so.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, AskedServer
from eval_factory.core.urls import base_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.response_cache import Answer
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.provenance import utc_of

MOST_LISTED = 20
"""Of the models that one endpoint's answers state, and of the ways in which it was asked."""
LONGEST_MODEL = 200
FAR_APART_DAYS = 7
"""Between the first and the last answer, from which on a note says so."""
_NO_SAMPLING = frozenset({"model", "messages", "prompt"})

_PROVIDER = re.compile(r"(?:[a-z]+\.)+(?=[a-z])")
_REVISION = re.compile(r"(.+?)@(.+)", re.DOTALL)
"""Of a repository (`org/model@refs/pr/1`). A name may begin with an @ of its own (`@cf/meta/...`)."""
_DEPLOYED_VERSION = re.compile(r"-v\d+:\d+\Z")
_MONTH, _DAY = "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12]\\d|3[01])"
_RELEASE = re.compile(
    rf"[-@:](?:20\d\d-{_MONTH}-{_DAY}|20\d\d{_MONTH}{_DAY}|{_MONTH}-20\d\d|{_MONTH}{_DAY}|2\d{_MONTH}|00\d|latest)\Z"
)

_WORD_ENDS = r"(?![a-z])"
_FAMILIES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<![a-z])(?:{pattern})", re.IGNORECASE)
    for name, pattern in {
        "gpt": rf"(?<!cerebras-)(?:chat)?gpt(?!4all|-?j{_WORD_ENDS}|-?neo)|(?<!marco-)o[134](?![a-z0-9])|openai",
        "claude": rf"claude{_WORD_ENDS}|anthropic|(?:opus(?!-mt)|sonnet|haiku){_WORD_ENDS}",
        "llama": rf"(?:code|med)?llama{_WORD_ENDS}|nemotron",
        "gemini": rf"(?:gemini|(?:code|med|pali|recurrent|shield|tx)?gemma|palm){_WORD_ENDS}",
        "mistral": rf"(?:(?:bio)?mistral|mixtral|ministral|magistral|codestral|devstral|pixtral){_WORD_ENDS}",
        "qwen": rf"(?:code)?(?:qwen|qwq|qvq){_WORD_ENDS}",
        "deepseek": rf"deepseek{_WORD_ENDS}",
        "phi": r"phi-?\d",
        "command": rf"command(?:-(?:r7b|r|a|light|nightly)(?![a-z0-9])|$)|(?:cohere|c4ai|aya){_WORD_ENDS}",
        "grok": rf"grok{_WORD_ENDS}",
    }.items()
}
_DERIVED: Mapping[str, re.Pattern[str]] = {
    "llama": re.compile(rf"(?<![a-z])(?:alpaca|meditron|vicuna){_WORD_ENDS}", re.IGNORECASE)
}
"""Models that were made of another family's, where their id does not name another one (`meditron3-qwen2.5`)."""


def stated_model(answer: Any) -> str | None:
    """The model that an answer says it is of; None where it does not say."""
    stated = answer.get("model") if isinstance(answer, Mapping) else None
    return stated.strip() or None if isinstance(stated, str) else None


def sampling_of(body: Any) -> dict[str, Any]:
    """What a request's body says beside the model and its question."""
    fields = body.items() if isinstance(body, Mapping) else ()
    return {name: value for name, value in fields if name not in _NO_SAMPLING}


def same_model(asked: str, stated: str) -> bool:
    """Whether an answer is of the model that was asked for, as far as names tell.

    Case does not count, nor what stands before the model's own name (`openai/`, `us.anthropic.`), nor a release or a
    revision at its end where one of the two names none (`-2024-08-06`, `@20250219`, `-0613`, `-002`; `-latest` and
    `@main` name none: they move). Two different releases or revisions are two models.
    """
    if asked == stated:
        return True
    (one, *of_one), (other, *of_other) = _name_release_revision(asked), _name_release_revision(stated)
    return bool(one) and one == other and all(a == b or not a or not b for a, b in zip(of_one, of_other, strict=True))


def _name_release_revision(model: str) -> tuple[str, str, str]:
    at = _REVISION.fullmatch(model.strip().casefold())
    if at is None:
        path, revision = model.strip().casefold(), ""
    elif _RELEASE.fullmatch(f"@{at[2]}"):
        path, revision = f"{at[1]}-{at[2]}", ""
    else:
        path, revision = at[1], at[2]
    name = path.rpartition("/")[2]
    provider = _PROVIDER.match(name)
    name = _DEPLOYED_VERSION.sub("", name[provider.end() :] if provider else name)
    release = _RELEASE.search(name)
    if release is None:
        return name, "", _fixed(revision)
    return name[: release.start()], _fixed(release[0][1:]), _fixed(revision)


def _fixed(release: str) -> str:
    return "" if release in ("latest", "main") else release


def family_of(model_id: str) -> str | None:
    """The family of models that an id names, as far as ids tell; None where they do not.

    The model's own name counts before what stands before it: `openai/` is also how gateways call an API.
    """
    provider, _, name = model_id.rpartition("/")
    for text, families in ((name, _FAMILIES), (name, _DERIVED), (provider, _FAMILIES)):
        for family, pattern in families.items():
            if pattern.search(text):
                return family
    return None


def same_family(one: str, other: str) -> bool | None:
    """None where an id does not tell."""
    families = family_of(one), family_of(other)
    return None if None in families else families[0] == families[1]


@dataclass
class _AtServer:
    """What the answers of one server say."""

    answers: int = 0
    stated: Counter[str] = field(default_factory=Counter)


@dataclass
class _Seen:
    """What the answers in one role say."""

    answers: int = 0
    other: int = 0
    at_servers: dict[str, _AtServer] = field(default_factory=lambda: defaultdict(_AtServer))
    stated: Counter[str] = field(default_factory=Counter)
    sampling: Counter[str] = field(default_factory=Counter)
    """As JSON."""
    first: float = math.inf
    last: float = -math.inf

    def add(self, answer: Answer, asked: str, server: str) -> None:
        self.answers += 1
        self.at_servers[server].answers += 1
        came = answer.created + answer.latency_s
        self.first, self.last = min(self.first, came), max(self.last, came)
        self.sampling[json.dumps(sampling_of(answer.request), sort_keys=True)] += 1
        stated = stated_model(answer.response)
        if stated is not None:
            for counted in (self.stated, self.at_servers[server].stated):
                counted[one_line(stated, LONGEST_MODEL)] += 1
            self.other += not same_model(asked, stated)


class StatedModels:
    """Role by role what was asked for, and what the answers of a result state."""

    def __init__(
        self, endpoints: Iterable[EndpointSettings], used: Collection[str], servers: Mapping[str, str] | None = None
    ) -> None:
        """
        Args:
            used: keys of the answers that the result is made of, of all roles.
            servers: key -> URL of the server that answered, where there were several.
        """
        self._servers = servers or {}
        self._asked = {endpoint.role: endpoint for endpoint in endpoints}
        self._used = used
        self._seen: dict[str, _Seen] = defaultdict(_Seen)

    def add(self, answer: Answer) -> None:
        """One kept answer; others than the used ones do not count."""
        if answer.role in self._asked and answer.key in self._used:
            asked = self._asked[answer.role]
            server = _shown_url(self._servers.get(answer.key, asked.url))
            self._seen[answer.role].add(answer, asked.model_id, server)

    def endpoints(self, judge_prompts: Mapping[str, tuple[str, ...] | None]) -> dict[str, AskedEndpoint]:
        """`judge_prompts`: judge -> SHA-256 of the templates of its prompt."""
        return {
            role: AskedEndpoint(
                model=endpoint.model_id,
                host=host_in(endpoint.url),
                sampling=tuple(json.loads(fields) for fields, _ in self._seen[role].sampling.most_common(MOST_LISTED)),
                answers=self._seen[role].answers,
                stated_models=dict(self._seen[role].stated.most_common(MOST_LISTED)),
                other_model=self._seen[role].other,
                prompt_sha256=judge_prompts.get(role),
                first_answer=utc_of(self._seen[role].first),
                last_answer=utc_of(self._seen[role].last),
                servers=self._servers_of(endpoint),
            )
            for role, endpoint in self._asked.items()
        }

    def _servers_of(self, endpoint: EndpointSettings) -> tuple[AskedServer, ...] | None:
        found = self._seen[endpoint.role].at_servers
        if not endpoint.servers and found.keys() <= {_shown_url(endpoint.url)}:
            return None
        seen = sorted(found.items())
        return tuple(AskedServer(url, one.answers, dict(one.stated.most_common(MOST_LISTED))) for url, one in seen)


def _shown_url(url: str) -> str:
    return urlunsplit(urlsplit(base_of(url))._replace(query="", fragment=""))


def host_in(url: str) -> str:
    """Host and port as the URL names them, without whom it signs in as."""
    return urlsplit(url).netloc.rpartition("@")[2]


def endpoints_of_other_models(endpoints: Mapping[str, AskedEndpoint], most: float) -> tuple[str, ...]:
    """The endpoints that answered with another model too often, each with what to do.

    Args:
        most: the greatest share of an endpoint's answers, from 0 to 1, that may state another model than was asked for
            (`extra.max_model_mismatch`).
    """
    return tuple(
        f"{_what_was_stated(role, endpoint)}, and max_model_mismatch is {most:g}: turn the gateway's fallback off and"
        " run again with --fresh (answers are kept), or, where this is only another name of the same model, set"
        " extra.max_model_mismatch to 1"
        for role, endpoint in endpoints.items()
        if endpoint.answers and endpoint.other_model / endpoint.answers > most
    )


def notes_on_models(endpoints: Mapping[str, AskedEndpoint], judges: Collection[str]) -> Iterator[Note]:
    """Answers of another model than was asked for; judges that are one model, or the evaluated one.

    Args:
        judges: the roles of the jury.
    """
    for role, endpoint in endpoints.items():
        if endpoint.other_model:
            yield Note(Importance.DOUBTFUL, _what_was_stated(role, endpoint))
        if endpoint.days >= FAR_APART_DAYS:
            asked = f"asked over {endpoint.days} days ({endpoint.first_answer} to {endpoint.last_answer})"
            yield Note(Importance.DOUBTFUL, f"{_who(role)} was {asked}: another one may have been served meanwhile")
    groups: list[list[str]] = []
    for judge in (role for role in endpoints if role in judges):
        model = endpoints[judge].main_model
        group = next((one for one in groups if same_model(endpoints[one[0]].main_model, model)), None)
        if group is None:
            groups.append([judge])
        else:
            group.append(judge)
        evaluated = endpoints.get(MODEL_ROLE)
        if evaluated is not None and same_model(evaluated.main_model, model):
            yield Note(Importance.DOUBTFUL, f"judge {judge} is the evaluated model itself, {model}")
    for group in groups:
        if len(group) > 1:
            which = f"judges {', '.join(group[:-1])} and {group[-1]} are one model, {endpoints[group[0]].main_model}"
            yield Note(Importance.DOUBTFUL, f"{which}: their agreement says nothing")


def _who(role: str) -> str:
    return "the model" if role == MODEL_ROLE else f"judge {role}"


def _what_was_stated(role: str, endpoint: AskedEndpoint) -> str:
    others = [
        f"{stated} ({count})"
        for stated, count in endpoint.stated_models.items()
        if not same_model(endpoint.model, stated)
    ]
    return (
        f"{_who(role)}: {endpoint.other_model} of {endpoint.answers} answers state another model than {endpoint.model},"
        f" which was asked for: {', '.join(others)}"
    )
