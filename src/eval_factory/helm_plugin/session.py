"""Defines the state that all parts of one helm-run share.

- `Session` has the response cache, the events, the counters and the clients.
- `RunSpending` has the limits on cost, tokens and time.
- `run_record` is the record of the run.
- `judging` and `verdict_by` set the question and the schema for which judges are being asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.core.budget import (
    MAX_COST,
    MAX_WALL,
    SpendingLimit,
    SpendingTracker,
    SpendingTrackers,
)
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.logs import LIMIT_REACHED, EventWriter
from eval_factory.core.rundir import RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.batch_ledger import BatchLedger
from eval_factory.endpoint.limits import prompt_size_in_bytes
from eval_factory.endpoint.openai_answers import Completion
from eval_factory.endpoint.paid_answers import (
    cost_for_limit,
    spent_so_far,
    tokens_for_limit,
    write_prices,
)
from eval_factory.endpoint.response_cache import ResponseCache
from eval_factory.endpoint.retrying_client import DOUBT_REASON
from eval_factory.endpoint.shared_limits import SharedLimits
from eval_factory.helm.judge_output import has_answers_in, jury_form_in
from eval_factory.helm.verdict_schemas import Schema
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JuryForm

if TYPE_CHECKING:
    from helm.benchmark.adaptation.request_state import RequestState
    from helm.common.media_object import MediaObject

STARTED = time.monotonic() - time.process_time()
"""The monotonic time in seconds at which helm-run started. The time is an estimate: it subtracts
the CPU time so far from the current time, because until now a single thread has been busy.
"""


def tracker_of(settings: HelmRunSettings, cache_db: Path) -> SpendingTracker | None:
    """Return the tracker of this run's own limits; None if the run has no limit."""
    if not settings.budget:
        return None
    return SpendingTracker(settings.budget, spent_so_far(cache_db, settings.prices), began=STARTED)


class RunSpending:
    """The spending of a run, as seen by the clients of all endpoints.

    A client calls `begin` before each request, and `count_answer` for each answer. The tracker
    counts requests, tokens and cost, and knows the limits. Without a tracker, the run has no limit.
    Threads may share an object of this class.
    """

    def __init__(
        self, settings: HelmRunSettings, cache_db: Path, run_id: str, tracker: SpendingLimit | None
    ) -> None:
        self._budget = settings.budget
        self._prices = settings.prices
        self._tracker = tracker
        # False if a limit on the cost is set, and the cost of an answer is unknown
        self.is_countable = True
        write_prices(cache_db, run_id, settings.prices)

    def begin(self) -> str | None:
        """Count a new request; return the name of the limit that forbids to send it, else None."""
        if not self.is_countable:  # The cost so far is unknown, and may have reached the limit.
            return MAX_COST
        return None if self._tracker is None else self._tracker.begin()

    def spend(self, *, tokens: int, cost: float) -> None:
        """Add tokens and a cost in US dollars to the spending."""
        if self._tracker is not None:
            self._tracker.spend(tokens=tokens, cost=cost)

    def count_answer(self, role: str, body: Mapping[str, Any], completion: Completion) -> None:
        """Add the tokens and the cost of the answer to a request body.

        With a limit on the cost, an answer of unknown cost ends the run's requests, because further
        requests could exceed the limit.
        """
        if self._tracker is None:
            return
        sizes_in_bytes = (prompt_size_in_bytes(body), completion.size)
        tokens = tokens_for_limit(completion.tokens, sizes_in_bytes)
        cost = cost_for_limit(completion.body.get("usage"), tokens, self._prices.get(role))
        if cost is None:  # The cost of this answer is unknown.
            has_cost_limit = self._budget.max_cost is not None
            self.is_countable = not has_cost_limit
            cost = 0.0
        self.spend(tokens=sum(tokens), cost=cost)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the run's time limit; None if the time has no limit."""
        return None if self._tracker is None else self._tracker.seconds_left

    def watch(self, stop: Callable[[str], None]) -> None:
        """Call `stop` with the limit's name when the run's time is over.

        A timer is needed, because a thread that waits for the end of a pause does not check the
        time.
        """
        seconds = self.seconds_left
        if seconds is not None:
            timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop, (MAX_WALL,))
            timer.daemon = True
            timer.start()


_Tokens = tuple[int | None, int | None]  # the tokens of prompt and answer; None if not known


@dataclass
class Counters:
    """The counts of one role's requests and tokens."""

    total: int = 0  # the number of expected requests; 0 if the number is not known
    done: int = 0  # the number of requests that have ended, including cached and failed requests
    cached: int = 0  # the number of requests whose answer was cached
    failed: int = 0  # the number of requests that failed for good
    prompt_tokens: int = 0
    completion_tokens: int = 0


class BatchesAwaited(Exception):
    """An error that ends this helm-run, because requests wait for the answers of a batch.

    The run can be continued when the answers of the batch have arrived.
    """


@dataclass
class Session:
    """The shared state of one helm-run. A process has one session for each output folder."""

    cache: ResponseCache
    events: EventWriter
    redactor: Redactor  # knows the API keys of all clients
    spending: RunSpending  # shared by all clients
    counters: dict[str, Counters] = field(default_factory=lambda: defaultdict(Counters))
    clients: dict[str, Any] = field(default_factory=dict)  # role -> its client
    lock: threading.Lock = field(default_factory=threading.Lock)
    # the limits that this run shares with other runs; None: all limits are the run's own
    limits: SharedLimits | None = None
    jury_form: JuryForm = HELMS_JURY_FORM  # the form of the answers of this run's judges
    has_answers: bool = False  # True if the benchmark's data hold the answers
    asks_model: bool = True  # False: the run scores only answers of the response cache
    # In this class, the key of a request or of an answer is its key in the response cache.
    not_stored: set[str] = field(default_factory=set)
    """The keys of requests without a stored answer, in a run that does not ask the model."""
    doubted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """A role -> the keys of stored answers that may belong to another question."""
    waiting: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The key of a request that waits for a batch -> the request's line for the batch ledger: its
    `key`, its `role`, and the fields that `BatchedRole` passes to `wait`.
    """
    limit_reached: str | None = None  # the name of the last limit that forbade a request

    def expect(self, role: str, count: int) -> None:
        """Add `count` to the number of requests that are expected in a role."""
        with self.lock:
            self.counters[role].total += count

    def count(
        self,
        role: str,
        *,
        cached: bool = False,
        failed: bool = False,
        tokens: _Tokens = (None, None),
    ) -> None:
        """Count a request that is done.

        Args:
            role: the role of the request's endpoint.
            cached: True if the answer was cached.
            failed: True if the request failed for good.
            tokens: the tokens of prompt and answer.
        """
        with self.lock:
            counters = self.counters[role]
            counters.done += 1
            if cached:
                counters.cached += 1
            if failed:
                counters.failed += 1
            if tokens[0] is not None:
                counters.prompt_tokens += tokens[0]
            if tokens[1] is not None:
                counters.completion_tokens += tokens[1]
        self.report(role)

    def doubt(self, role: str, key: str) -> None:
        """Note that the answer stored under the key may belong to another question."""
        with self.lock:
            self.doubted[role].add(key)

    def archive_doubted(self, *, of_model: bool) -> int:
        """Archive the answers that may belong to another question, so that they are asked again.

        Args:
            of_model: True to archive answers of the model, False to archive answers of the judges.

        Returns:
            The number of archived answers.
        """
        to_archive: list[tuple[str, str]] = []  # (role, key)
        with self.lock:
            for role in list(self.doubted):
                is_model = role == MODEL_ROLE
                if is_model == of_model:
                    to_archive += [(role, key) for key in sorted(self.doubted.pop(role))]
        for role, key in to_archive:
            self.clients[role].archive(key, DOUBT_REASON)
        return len(to_archive)

    @cached_property
    def batches(self) -> BatchLedger:
        """The batch ledger of the output folder. The ledger is opened at first use."""
        return BatchLedger(RunDir(self.cache.path.parent).batches)

    def wait_for_batch(self, line: dict[str, Any]) -> None:
        """Note a request that waits for a batch."""
        with self.lock:
            self.waiting[line["key"]] = line

    def stop_for_batches(self) -> None:
        """Write the waiting requests into the ledger.

        Raises:
            BatchesAwaited: at least one request waits for a batch.
        """
        with self.lock:
            lines = list(self.waiting.values())
        if lines:
            self.batches.add_waiting(lines)
            raise BatchesAwaited(f"{len(lines)} requests wait for a batch")

    def stop_at_limit(self, limit: str) -> None:
        """Note that this limit forbade a request, and stop all further requests."""
        with self.lock:
            is_first = self.limit_reached is None
            self.limit_reached = limit
        if is_first:  # Later refusals find that the clients have already stopped.
            self.ask_no_more(limit)

    def ask_no_more(self, limit: str) -> None:
        """Refuse all requests that are not sent yet; answers to sent requests are awaited."""
        for client in list(self.clients.values()):
            client.ask_no_more(limit)

    def report_limit(self) -> None:
        """Emit an event if a limit stopped requests, with the number of answers of each role."""
        if self.limit_reached is not None:
            answered = {}
            for role, counters in self.counters.items():
                answered[role] = counters.done - counters.failed
            countable = self.spending.is_countable
            self.events.emit(
                LIMIT_REACHED, limit=self.limit_reached, countable=countable, answered=answered
            )

    def report(self, role: str, *, final: bool = False) -> None:
        """Emit the progress of a role; `final` marks the last report of the run."""
        counters = self.counters.get(role)
        if counters is not None:
            self.events.progress(final=final, role=role, **vars(counters))


_sessions: dict[Path, Session] = {}
_sessions_lock = threading.Lock()


def session_for(root: Path) -> Session:
    """Return the session of the output folder `root`, which is opened at first use."""
    with _sessions_lock:
        session = _sessions.get(root)
        if session is None:
            session = _open_session(RunDir(root))
            session.spending.watch(session.ask_no_more)
            _sessions[root] = session
        return session


def _open_session(rundir: RunDir) -> Session:
    settings = HelmRunSettings.from_environment(os.environ)
    # A helm-run that a user starts by hand has no run id.
    run_id = settings.run_id or f"pid{os.getpid()}-{time.time_ns()}"
    # The clients add their API keys to the redactor later.
    redactor = Redactor.from_environment(os.environ, ["HF_TOKEN"])
    events = EventWriter(rundir.events, run_id, redactor)
    # The cache creates the database in which `RunSpending` stores the prices.
    cache = ResponseCache(rundir.cache_db, run_id)
    limits = None
    suite_tracker = None
    if settings.limits is not None:
        limits = SharedLimits(settings.limits)
        suite_tracker = limits.budget
    run_tracker = tracker_of(settings, rundir.cache_db)
    trackers = [tracker for tracker in (run_tracker, suite_tracker) if tracker is not None]
    tracker = SpendingTrackers(trackers) if trackers else None
    return Session(
        cache,
        events,
        redactor,
        spending=RunSpending(settings, rundir.cache_db, run_id, tracker),
        limits=limits,
        jury_form=jury_form_in(rundir.model_configs),
        has_answers=has_answers_in(rundir.model_configs),
        asks_model=settings.asks_model,
    )


def current_session() -> Session:
    """Return the session that was opened last: a helm-run has a single output folder.

    A session must have been opened by `session_for`.
    """
    with _sessions_lock:
        return list(_sessions.values())[-1]


# the question that is being judged in the current thread or greenlet, if any
_judged: ContextVar[RequestState | None] = ContextVar("judged", default=None)


@contextmanager
def judging(state: RequestState) -> Iterator[None]:
    """Let the judges' clients see which question is judged within this context.

    HELM's annotators pass only a text to the clients. With the question, the clients can also show
    its pictures (`extra.judges_see_images`). Each thread and each greenlet has its own question;
    `bridge.map_at_once` passes the question on to the greenlets that it starts.
    """
    token = _judged.set(state)
    try:
        yield
    finally:
        _judged.reset(token)


_verdict_schema: ContextVar[Schema | None] = ContextVar("verdict_schema", default=None)


@contextmanager
def verdict_by(schema: Schema) -> Iterator[None]:
    """Let the clients of `structured` judges send this schema within this context.

    A context is needed, because HELM's requests have no field for a schema.
    """
    token = _verdict_schema.set(schema)
    try:
        yield
    finally:
        _verdict_schema.reset(token)


def verdict_schema() -> Schema | None:
    """Return the schema of the verdict that is being asked for; None if there is no schema."""
    return _verdict_schema.get()


def judged_pictures() -> list[MediaObject]:
    """Return the pictures of the question that is being judged, in the question's order.

    The list holds the question's own pictures, even if the model was shown replacements
    (`extra.blind_control`). The list is empty if no question is being judged.
    """
    state = _judged.get()
    content = None if state is None else state.instance.input.multimedia_content
    if not content:
        return []
    return [medium for medium in content.media_objects if medium.is_type("image")]


class RunRecord:
    """The record that helm-run writes about itself, for the result's provenance.

    After `write_to`, the record is a JSON file, which is rewritten whenever an entry changes.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}  # name of an entry -> value
        self._file: Path | None = None  # None until `write_to` is called
        self._lock = threading.Lock()

    def write_to(self, file: Path) -> None:
        """Write the record into the file now, and again whenever an entry changes.

        The first write replaces the record of an earlier run.
        """
        with self._lock:
            self._file = file
            self._write()

    def note(self, **entries: Any) -> None:
        """Add entries to the record.

        The names are fields of the class `RunRecord` in `eval_factory.helm.output`.
        """
        with self._lock:
            self.entries |= entries
            self._write()

    def note_prompt(self, annotator: str, template: str) -> None:
        """Note the hash of the prompt with which an annotator asks its judges.

        HELM's annotations have no field for the prompt.

        Args:
            annotator: the name of the annotator.
            template: the prompt without any question or answer.
        """
        sha256 = hashlib.sha256(template.encode()).hexdigest()
        with self._lock:
            hashes_by_annotator = self.entries.setdefault("judge_prompts", {})
            hashes = hashes_by_annotator.setdefault(annotator, [])
            if sha256 not in hashes:
                hashes.append(sha256)
                hashes.sort()
                self._write()

    def count_ended(self) -> None:
        """Count an answer whose code ended the process that executed the code."""
        with self._lock:
            self.entries["ended"] = self.entries.get("ended", 0) + 1
            self._write()

    def _write(self) -> None:
        if self._file is not None:
            write_atomic(self._file, json.dumps(self.entries, indent=2) + "\n")


run_record = RunRecord()
