"""Reports the requested models, and the models that the answers state.

A gateway may fall back to another model than requested, for example if the requested model is down
or over its budget. Only the field `model` of the responses shows such a fallback.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, AskedServer
from eval_factory.core.urls import base_of
from eval_factory.data.pins import notes_on_revisions
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import RESPONSE_FORMAT
from eval_factory.endpoint.response_cache import Answer
from eval_factory.helm import output
from eval_factory.helm.criteria import ANNOTATION
from eval_factory.helm.verdict_schemas import prompts_key
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.model_names import noun_for_role, same_model, sentence_on_stated_models
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.provenance import utc_of
from eval_factory.tasks.asking_forms import MIN_ANSWER_TOKENS, follows_an_answer

MAX_LISTED = 20
"""The number of stated models, and of sampling settings, that a result lists per endpoint."""
MAX_MODEL = 200
"""The length of a model's name in a result, in characters."""
# the fields of a request that limit the tokens of the answer
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
FAR_APART_DAYS = 7
"""A note warns if the first and the last answer are at least this number of days apart."""


def stated_model(answer: Any) -> str | None:
    """Return the model that the body of a response states; None if it states no model."""
    if not isinstance(answer, Mapping):
        return None
    stated = answer.get("model")
    if not isinstance(stated, str):
        return None
    return stated.strip() or None


def sampling_fields_of(body: Any) -> dict[str, Any]:
    """Return the fields of a request's body, without the model and the question.

    A response format is replaced by its type, because the hash of the prompts covers its schema.
    Return an empty dict if the body is not a mapping.
    """
    fields = body.items() if isinstance(body, Mapping) else ()
    sampling = {
        name: value for name, value in fields if name not in ("model", "messages", "prompt")
    }
    response_format = sampling.get(RESPONSE_FORMAT)
    if isinstance(response_format, Mapping):
        sampling[RESPONSE_FORMAT] = response_format.get("type")
    return sampling


def _settings_of_plain_questions(
    all_settings: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], ...]:
    """Return the settings without those of questions that were asked again in other words.

    The token limit of questions in other words is raised to `MIN_ANSWER_TOKENS`; their other
    settings are those of the plain questions.
    """
    settings_of_plain = []
    for settings in all_settings:
        has_higher_limit = any(settings.get(name) == MIN_ANSWER_TOKENS for name in TOKEN_LIMITS)
        is_asked_again = has_higher_limit and _differs_in_limits_alone(settings, all_settings)
        if not is_asked_again:
            settings_of_plain.append(dict(settings))
    return tuple(settings_of_plain)


def _differs_in_limits_alone(
    settings: Mapping[str, Any], all_settings: Sequence[Mapping[str, Any]]
) -> bool:
    """Return True if other settings are equal to these settings, except for the token limits."""
    other_settings = [second for second in all_settings if second is not settings]
    return _without_limits(settings) in map(_without_limits, other_settings)


def _without_limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the token limits."""
    return {name: value for name, value in settings.items() if name not in TOKEN_LIMITS}


@dataclass
class _Counts:
    """The counts of the answers of one role's endpoint, and their first and last time."""

    other_model: int = 0  # the number of answers that state another model than requested
    answers_at: Counter[str] = field(default_factory=Counter)
    """URL of a server -> the number of its answers."""
    stated_at: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """URL of a server -> the models that its answers state, with their counts."""
    sampling: Counter[str] = field(default_factory=Counter)
    """Sampling settings as JSON -> the number of requests with these settings."""
    first: float = math.inf  # the time of the first answer, in seconds since the epoch
    last: float = -math.inf  # the time of the last answer


class StatedModels(Part):
    """The part of a result that reports the requested and the stated models of each role.

    A role is the evaluated model, or a judge.
    """

    def __init__(
        self,
        endpoints: Iterable[EndpointSettings],
        used: Collection[str],
        servers: Mapping[str, str] | None = None,
    ) -> None:
        """Create the part without any answers; `add` counts an answer.

        Args:
            endpoints: the endpoints of the model and of the judges.
            used: the cache keys of all answers that the result is computed from, of any role.
            servers: a dict from the cache key of an answer to the URL of the server that answered;
                needed only if an endpoint has several servers.
        """
        self._servers = servers or {}
        # The role of an endpoint is `model` or the name of a judge; not that of a chat message.
        self._asked = {endpoint.role: endpoint for endpoint in endpoints}
        self._used = used
        self._counts: dict[str, _Counts] = defaultdict(_Counts)

    def add(self, answer: Answer) -> None:
        """Count a stored answer, if the result is computed from this answer."""
        if answer.role not in self._asked or answer.key not in self._used:
            return
        endpoint = self._asked[answer.role]
        counts = self._counts[answer.role]
        server = _shown_url(self._servers.get(answer.key, endpoint.url))
        counts.answers_at[server] += 1
        arrived = answer.created + answer.latency_s
        counts.first = min(counts.first, arrived)
        counts.last = max(counts.last, arrived)
        # Requests that follow an answer, such as "Are you sure?", do not count: their settings may
        # differ.
        if not follows_an_answer(answer.request):
            counts.sampling[json.dumps(sampling_fields_of(answer.request), sort_keys=True)] += 1
        stated = stated_model(answer.response)
        if stated is not None:
            counts.stated_at[server][one_line(stated, MAX_MODEL)] += 1
            if not same_model(endpoint.model_id, stated):
                counts.other_model += 1

    def report(self, draft: Draft) -> None:
        """Report the requests to each role's endpoint, and the models that answered; add notes."""
        plan = draft.plan
        draft.notes.add(Importance.DOUBTFUL, *notes_on_revisions(plan), *draft.changes)
        # The hashes of judges' prompts are recorded by the name of HELM's annotation. The name is
        # that of a rubric unless there is a jury; it is not used if the run has no judges.
        annotation = ANNOTATION
        if draft.run.jury is not None:
            annotation = draft.run.jury.annotation
        recorded = output.read_run_record(plan.rundir.helm).judge_prompts
        prompts = {}
        for judge in plan.judges:
            prompts[judge.role] = recorded.get(prompts_key(annotation, by_schema=judge.structured))
        draft.asked = self.endpoints(prompts)
        draft.notes.extend(notes_on_models(draft.asked, draft.tally.judges))

    def endpoints(
        self, judge_prompts: Mapping[str, tuple[str, ...] | None]
    ) -> dict[str, AskedEndpoint]:
        """Return a dict from each role to the requests to its endpoint, with the stated models.

        Args:
            judge_prompts: a dict from each judge to the SHA-256 of each template of its prompt;
                None if not recorded.
        """
        by_role = {}
        for role, endpoint in self._asked.items():
            counts = self._counts[role]
            other_servers = counts.answers_at.keys() - {_shown_url(endpoint.url)}
            servers = None  # not listed if the endpoint is the only server
            if endpoint.servers or other_servers:
                servers = tuple(
                    AskedServer(url, count, dict(counts.stated_at[url].most_common(MAX_LISTED)))
                    for url, count in sorted(counts.answers_at.items())
                )
            all_stated = sum(counts.stated_at.values(), Counter())  # the counts of all servers
            by_role[role] = AskedEndpoint(
                model=endpoint.model_id,
                host=host_in(endpoint.url),
                sampling=_settings_of_plain_questions(
                    [json.loads(text) for text, _ in counts.sampling.most_common(MAX_LISTED)]
                ),
                answers=counts.answers_at.total(),
                stated_models=dict(all_stated.most_common(MAX_LISTED)),
                other_model=counts.other_model,
                prompt_sha256=judge_prompts.get(role),
                # Without answers, both times are infinite, and `utc_of` returns None.
                first_answer=utc_of(counts.first),
                last_answer=utc_of(counts.last),
                servers=servers,
            )
        return by_role


def _shown_url(url: str) -> str:
    """Return the base of an API's URL as a result shows it, without query and fragment."""
    parts = urlsplit(base_of(url))
    return urlunsplit(parts._replace(query="", fragment=""))


def host_in(url: str) -> str:
    """Return the host of the URL, with its port if there is one; leave out a user's password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def notes_on_models(
    endpoints: Mapping[str, AskedEndpoint], judges: Collection[str]
) -> Iterator[Note]:
    """Yield notes on the models that answered, and on judges that are not independent.

    Args:
        endpoints: a dict from each role to a record of its requests and of the models that
            answered.
        judges: the roles of the judges.
    """
    for role, endpoint in endpoints.items():
        if endpoint.other_model:
            yield Note(Importance.DOUBTFUL, sentence_on_stated_models(role, endpoint))
        if endpoint.days_of_asking >= FAR_APART_DAYS:
            period = (
                f"asked over {endpoint.days_of_asking} days ({endpoint.first_answer} "
                f"to {endpoint.last_answer})"
            )
            yield Note(
                Importance.DOUBTFUL,
                f"{noun_for_role(role)} was {period}: its server may have changed models meanwhile",
            )
    evaluated = endpoints.get(MODEL_ROLE)
    judges_of_model: dict[str, list[str]] = {}  # model -> the judges that are this model
    for judge, endpoint in endpoints.items():
        if judge not in judges:
            continue
        model = endpoint.main_model
        first_name = _name_in(judges_of_model, model)  # the same model may have several names
        judges_of_model.setdefault(first_name, []).append(judge)
        if evaluated is not None and same_model(evaluated.main_model, model):
            yield Note(Importance.DOUBTFUL, f"judge {judge} is the evaluated model itself, {model}")
    for model, roles in judges_of_model.items():
        if len(roles) > 1:
            same_judges = (
                f"judges {', '.join(roles[:-1])} and {roles[-1]} are the same model, {model}"
            )
            yield Note(Importance.DOUBTFUL, f"{same_judges}: their agreement says nothing")


def _name_in(models: Iterable[str], model: str) -> str:
    """Return the first of `models` that is the same model as `model`; if none is, `model`."""
    for name in models:
        if same_model(name, model):
            return name
    return model
