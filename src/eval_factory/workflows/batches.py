"""Sends the requests of a run in batches, polls the batches, and stores their answers.

helm-run writes its requests to batches.db, the ledger, and ends. This module then sends the
requests, waits for the answers and starts helm-run again. A `BatchLine` of the ledger is one
request.

Before eval-factory sends a batch, it records the batch's intent: a name that it also puts into the
batch's metadata. If a process dies, the same command finds each batch again, either by the ID that
the endpoint gave it or by its intent. If a batch cannot be found with certainty, its requests are
not sent again, because they may already cost money; the user decides what to do.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, TextIO, TypeVar

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.budget import Budget, Price, Spending
from eval_factory.core.errors import (
    ConfigError,
    EndpointUnreachableError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.formats import counted
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.logs import BATCHES_AWAITED
from eval_factory.core.rundir import RunDir
from eval_factory.core.urls import API_PATHS
from eval_factory.endpoint.batch_api import (
    INTENT_METADATA_KEY,
    BatchApi,
    BatchApiError,
    BatchStatus,
    reply_in,
)
from eval_factory.endpoint.batch_ledger import (
    Batch,
    BatchLedger,
    BatchLine,
    BatchState,
    has_open_batches,
    line_of_file,
)
from eval_factory.endpoint.endpoint_settings import BATCH_OR_SINGLE, EndpointSettings
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.batch_endpoints import batch_api_of, batch_refusal
from eval_factory.plan.prices import budget_of, prices_for_helm_run, prices_of
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.context import RunContext, lock_folder
from eval_factory.workflows.helm_run import EndedHelmRun
from eval_factory.workflows.options import BatchChoice

MAX_REQUESTS = 50_000
"""The maximum number of requests in a batch, as OpenAI publishes it."""
MAX_BYTES = 200_000_000
"""The maximum size of a batch's file, in bytes, as OpenAI publishes it."""
# the pauses between two polls, and between two tries of a request to the batch API
FIRST_PAUSE_S = 0.5  # in seconds
MAX_PAUSE_S = 60.0  # in seconds
PAUSE_FACTOR = 1.5  # each pause between polls is this many times as long as the pause before
RETRY_FACTOR = 2.0  # the same for the pauses between tries
REPORT_INTERVAL_S = 600.0  # an unchanged state is shown again after this time, in seconds
SETTLING_S = 5.0
"""The seconds after which the endpoint lists a batch whose creation was not confirmed."""
MAX_SILENCE_S = 6 * 3600.0
"""The seconds for which all polls may fail: a laptop may sleep, or a network may be down."""
TOO_MANY_TOKENS = "token_limit_exceeded"  # the error code of a batch with too many tokens
SAME_COMMAND = "the same command goes on"
"""The end of messages: to resume, the user runs the same command again."""

_T = TypeVar("_T")


class _ShownState(NamedTuple):
    """The state of a batch as it was last shown to the user."""

    state: str
    completed: int  # the number of completed requests
    shown_at: float  # the time, by the monotonic clock


@dataclass
class _BatchedEndpoint:
    """An endpoint whose requests are sent in batches."""

    settings: EndpointSettings
    api: BatchApi
    api_path: str
    """The path of the API for single requests, such as `/v1/chat/completions`. Each line of a
    batch's file names it.
    """
    secret_fields: Mapping[str, object]
    """Fields of every request with values that are sent but not stored."""
    price: Price | None
    sends_singly: bool
    """True if requests that a batch left unanswered are sent one by one."""
    shown_states: dict[str, _ShownState] = field(default_factory=dict)
    """A dict from the intent of each batch to its last shown state."""

    def file_of(self, lines: Sequence[BatchLine]) -> bytes:
        """Return the content of a batch's file with these lines."""
        text = "".join(
            f"{line_of_file(line, self.api_path, self.secret_fields)}\n" for line in lines
        )
        return text.encode("utf-8", "surrogatepass")


class Batches:
    """The batches of one run: sends, polls, stores and cancels them."""

    def __init__(
        self, context: RunContext, plan: Plan, choice: BatchChoice, *, deadline: float | None = None
    ) -> None:
        """
        Args:
            context: The context of the run.
            plan: The plan, which names the endpoints.
            choice: The user's decision about batches of unknown state.
            deadline: The time, by the monotonic clock, at which max_wall_s is over; or None.
        """
        self._context = context
        self._plan = plan
        self._choice = choice
        self._deadline = deadline
        self._ledger = BatchLedger(context.rundir.batches)
        prices = prices_of(plan).known
        self._endpoint_of_role = {}
        for settings in plan.endpoints:
            if settings.batch:
                price = prices.get(settings.role)
                self._endpoint_of_role[settings.role] = _batched_endpoint(settings, context, price)

    def close(self) -> None:
        """Close the ledger of batches."""
        self._ledger.close()

    def begin(self) -> None:
        """Resume the open batches of an earlier command, and wait until they have ended."""
        self._ledger.begin_invocation()
        for batch in self._ledger.open_batches():
            if batch.state is BatchState.CREATING:  # the endpoint may or may not have the batch
                self._resolve_unknown(batch)
            elif batch.state is not BatchState.SENT:
                # The batch does not exist at the endpoint yet, so its requests need a new batch.
                self._ledger.to_be_sent_again(batch.intent)
        self._wait()
        self._ledger.forget_waiting()  # helm-run writes the requests again that are still needed

    def run_helm(
        self, run: Callable[[HelmRunSettings], EndedHelmRun], settings: HelmRunSettings
    ) -> EndedHelmRun:
        """Run helm-run again and again until no requests wait for a batch.

        Args:
            run: A function that runs helm-run once, to its end.
            settings: The settings of the first helm-run.

        Returns:
            The last helm-run, with the total wall time.
        """
        started = time.monotonic()
        while True:
            ended = run(settings)
            if not any(event["event"] == BATCHES_AWAITED for event in ended.events):
                return replace(ended, wall_s=time.monotonic() - started)
            sends_singly = self._has_single_requests()
            if sends_singly:
                self._ledger.forget_waiting()  # the next helm-run makes these requests again
            else:
                self.send_and_wait()
            # Single requests have another price than batches, and the price is stored per run ID.
            # So each helm-run with single requests has a run ID of its own; None makes a new one.
            needs_new_run_id = sends_singly or settings.sends_singly
            settings = replace(
                settings,
                run_id=None if needs_new_run_id else ended.run_id,
                prices=prices_for_helm_run(self._plan, by_batch=not sends_singly),
                sends_singly=sends_singly,
            )

    def _has_single_requests(self) -> bool:
        """Return True if a batch left requests unanswered that may now be sent one by one."""
        for line in self._ledger.waiting():
            # A waiting request that has replies was in a batch, and no batch gave a usable answer.
            was_in_batch = bool(self._ledger.replies(line.key))
            if was_in_batch and self._endpoint_of_role[line.role].sends_singly:
                return True
        return False

    def send_and_wait(self) -> None:
        """Send the waiting requests that the limits allow, and wait until their batches have ended.

        Raises:
            NotReportableError: The limits do not allow a single request.
            PrerequisiteError: The endpoint refuses a batch.
            InterruptedRunError: The user pressed Ctrl-C; the batches continue at the endpoint.
        """
        for role, lines in _by_role(self._affordable(self._ledger.waiting())).items():
            for part in self._split_for_files(self._endpoint_of_role[role], lines):
                batch = self._record_intent(role, part)
                self._send(batch)
        self._wait()
        # The next helm-run takes the stored answers, and writes the other requests again.
        self._ledger.forget_waiting()

    def cancel(self) -> list[str]:
        """Cancel all open batches. Returns a line for each batch."""
        return [self._cancel_batch(batch) for batch in self._ledger.open_batches()]

    def _cancel_batch(self, batch: Batch) -> str:
        """Cancel one batch, and return a line that says what the endpoint answered."""
        if batch.state is BatchState.CREATING:
            self._resolve_unknown(batch)
            batch = self._ledger.batch(batch.intent)  # with the ID, if the endpoint has the batch
        if batch.batch_id is None:
            self._ledger.to_be_sent_again(batch.intent)
            return f"{self._label(batch)}: was never sent, so there is nothing to cancel"
        try:
            status = self._endpoint_of(batch).api.cancel(batch.batch_id)
        except BatchApiError as error:
            return f"{self._label(batch)}: {error}"
        return f"{self._label(batch)}: {status.status}"

    def _affordable(self, lines: Sequence[BatchLine]) -> list[BatchLine]:
        """Return the first requests whose maximum use does not exceed the run's limits.

        Raises:
            NotReportableError: Not even the first request fits.
        """
        budget = budget_of(self._plan)
        spent = spent_so_far(self._plan.rundir.cache_db, prices_of(self._plan).known)
        chosen = []
        for line in lines:
            spent = _with_line(spent, line, self._endpoint_of_role[line.role].price)
            if exceeded(budget, spent) is not None:
                break
            chosen.append(line)
        if lines and not chosen:
            limit = exceeded(budget, spent)  # `spent` contains the first request
            raise NotReportableError(
                f"stopped: {len(lines)} requests wait for a batch, and the first would exceed "
                f"{limit}: the most that a request may use is reserved before it is sent\n"
                f"  no score is written, every answer is stored; raise {limit}: {SAME_COMMAND}"
            )
        return chosen

    def _split_for_files(
        self, endpoint: _BatchedEndpoint, lines: Sequence[BatchLine]
    ) -> Iterator[list[BatchLine]]:
        """Yield the lines in parts, each small enough for the file of one batch.

        Raises:
            PrerequisiteError: A single request is too large for a file.
        """
        part: list[BatchLine] = []
        size = 0
        for line in lines:
            bytes_of_line = len(endpoint.file_of([line]))
            if bytes_of_line > MAX_BYTES:
                raise PrerequisiteError(
                    f"a request of {bytes_of_line} bytes is larger than a batch's file may be "
                    f"({MAX_BYTES}): make the pictures smaller (extra.max_image_side), or set "
                    "batch: false"
                )
            is_full = len(part) >= MAX_REQUESTS or size + bytes_of_line > MAX_BYTES
            if part and is_full:
                yield part
                part = []
                size = 0
            part.append(line)
            size += bytes_of_line
        if part:
            yield part

    def _record_intent(self, role: str, lines: Sequence[BatchLine]) -> Batch:
        """Record the intent to send these lines as one batch, and return the batch."""
        data = self._endpoint_of_role[role].file_of(lines)
        digest = hashlib.sha256(data).hexdigest()
        return self._ledger.intend(role, lines, digest, run_identity=self._plan.identity)

    def _send(self, batch: Batch) -> None:
        """Upload the file of a batch whose intent is recorded, and create the batch."""
        endpoint = self._endpoint_of(batch)
        data = endpoint.file_of(self._ledger.lines_of(batch.intent))
        name = f"{batch.intent}.jsonl"
        file_id = self._with_retries(endpoint, lambda: endpoint.api.upload(name, data))
        status = self._with_retries(endpoint, lambda: self._create(batch, endpoint, file_id))
        self._ledger.sent(batch.intent, status.id)
        self._say(batch, status)

    def _create(self, batch: Batch, endpoint: _BatchedEndpoint, file_id: str) -> BatchStatus:
        """Create a batch from its uploaded file, and return its status.

        Raises:
            BatchApiError: The endpoint refused the batch, so the batch does not exist.
            EndpointUnreachableError: It is unknown whether the endpoint created the batch.
        """
        self._ledger.uploaded(batch.intent, file_id)
        self._ledger.creating(batch.intent)
        try:
            return endpoint.api.create(file_id, endpoint.api_path, _metadata_of(batch))
        except BatchApiError as error:
            if error.status is None or error.status >= 500:
                raise EndpointUnreachableError(
                    f"{self._label(batch)}: it is unknown whether the endpoint created it: "
                    f"{error}\n  {SAME_COMMAND}, and first looks for this batch"
                ) from None
            self._ledger.uploaded(batch.intent, file_id)  # back to the state before `creating`
            raise

    def _resolve_unknown(self, batch: Batch) -> None:
        """Find out whether the endpoint created a batch, and record the answer in the ledger.

        The command that sent the batch ended before it received the batch's ID.
        """
        status = self._find_batch(batch)
        if status is None:
            self._ledger.to_be_sent_again(batch.intent)
        else:
            self._ledger.sent(batch.intent, status.id)

    def _find_batch(self, batch: Batch) -> BatchStatus | None:
        """Return the status of a batch whose ID did not arrive; None if it was not created.

        Raises:
            PrerequisiteError: It cannot be determined whether the batch exists.
        """
        endpoint = self._endpoint_of(batch)
        id_of_user = self._choice.batch_id
        if id_of_user is not None:
            named = self._with_retries(endpoint, lambda: endpoint.api.status(id_of_user))
            self._check_named_batch(batch, named)
            return named
        if self._choice.resend:
            return None
        # If the endpoint lists metadata, and no listed batch has this intent, then this batch does
        # not exist.
        has_metadata = False
        # asked twice, because the endpoint may list a new batch late
        for pause in (0.0, SETTLING_S):
            time.sleep(pause)
            for status in self._with_retries(endpoint, lambda: list(endpoint.api.listed())):
                if status.has_metadata:
                    has_metadata = True
                if status.intent == batch.intent:
                    return status
        if has_metadata:
            return None
        raise PrerequisiteError(
            f"{self._label(batch)}: it is unknown whether the endpoint has it, because the "
            "endpoint lists batches without their metadata\n"
            f"  the batch is named {batch.intent}, of the file {batch.file_id}; look for it at the "
            "provider, then give the same command with --batch_id ID, or with --resend if it is "
            "not there"
        )

    def _check_named_batch(self, batch: Batch, named: BatchStatus) -> None:
        """Check that the batch that the user named is the batch whose ID did not arrive.

        Another batch would have answers to other requests.

        Raises:
            PrerequisiteError: The user named another batch.
        """
        # An endpoint that does not state the intent or the size gives None or 0.
        is_other_intent = named.intent not in (None, batch.intent)
        is_other_size = named.total not in (0, batch.requests)
        if is_other_intent or is_other_size:
            raise PrerequisiteError(
                f"--batch_id: {named.id} is another batch than {self._label(batch)}: it has "
                f"{named.total} requests in place of {batch.requests}, or another name in its "
                "metadata\n  nothing was sent; look for the id at the provider again"
            )

    def _wait(self) -> None:
        """Poll all open batches until every batch has ended.

        Raises:
            EndpointUnreachableError: All polls failed for `MAX_SILENCE_S`.
            InterruptedRunError: The user pressed Ctrl-C.
            NotReportableError: max_wall_s is over.
        """
        pause = FIRST_PAUSE_S
        silent_since: float | None = None
        try:
            while batches := self._ledger.open_batches():
                try:
                    for batch in batches:
                        self._advance(batch)
                    silent_since = None
                except BatchApiError as error:
                    if silent_since is None:
                        silent_since = time.monotonic()
                    if time.monotonic() - silent_since > MAX_SILENCE_S:
                        raise EndpointUnreachableError(f"{error}\n  {SAME_COMMAND}") from None
                if self._ledger.open_batches():
                    self._sleep(pause)
                    pause = min(MAX_PAUSE_S, pause * PAUSE_FACTOR)
        except KeyboardInterrupt:
            count = len(self._ledger.open_batches())
            self._context.log.info("interrupted; open batches: %d", count)
            raise InterruptedRunError(
                f"interrupted; the endpoint continues {counted(count, 'batch', 'batches')}, "
                "which will cost money\n"
                f"  {SAME_COMMAND}; to cancel the batches, add --cancel_batches"
            ) from None

    def _advance(self, batch: Batch) -> None:
        """Poll a sent batch. Send an unsent batch if the endpoint has no batch of its role.

        Unsent batches are the parts of a batch that had too many tokens for the endpoint. The parts
        are sent one after another.
        """
        if batch.state is BatchState.SENT:
            self._poll(batch)
            return
        sent_batches = []
        for open_batch in self._ledger.open_batches():
            if open_batch.role == batch.role and open_batch.state is BatchState.SENT:
                sent_batches.append(open_batch)
        if not sent_batches:
            self._send(batch)

    def _sleep(self, seconds: float) -> None:
        """Wait, but not beyond the deadline. Raises NotReportableError if the deadline is over."""
        if self._deadline is None:
            time.sleep(seconds)
            return
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            count = len(self._ledger.open_batches())
            raise NotReportableError(
                "stopped: max_wall_s is over; the endpoint continues "
                f"{counted(count, 'batch', 'batches')}\n"
                f"  no score is written yet; {SAME_COMMAND}"
            )
        time.sleep(min(seconds, remaining_s))

    def _poll(self, batch: Batch) -> None:
        """Poll one batch, and store its answers if it has ended.

        Raises:
            BatchApiError: The poll failed, but a later poll may succeed.
            PrerequisiteError: The endpoint refused the poll, or no longer knows the batch.
        """
        endpoint = self._endpoint_of(batch)
        try:
            status = endpoint.api.status(str(batch.batch_id))  # a sent batch has an ID
            self._say(batch, status)
            if status.is_over:
                self._store(batch, endpoint, status)
        except BatchApiError as error:
            if error.is_temporary:
                raise
            if error.status != 404:
                raise batch_refusal(endpoint.settings.role, error) from None
            # With the status 404, the endpoint does not know the batch.
            if not self._choice.resend:
                raise PrerequisiteError(self._vanished_message(batch)) from None
            self._ledger.to_be_sent_again(batch.intent)

    def _vanished_message(self, batch: Batch) -> str:
        """Return the message for a batch that the endpoint no longer knows."""
        return (
            f"{self._label(batch)}: the endpoint no longer knows the batch, and its cost is "
            "unknown\n"
            "  give the same command with --resend: its requests are sent again, and paid again"
        )

    def _store(self, batch: Batch, endpoint: _BatchedEndpoint, status: BatchStatus) -> None:
        """Store the answers of a batch that has ended.

        Raises:
            PrerequisiteError: The endpoint refused the batch, or completed requests lack answers.
        """
        lines = self._ledger.lines_of(batch.intent)
        if status.status == "failed":
            self._store_refused(batch, status, lines)
            return
        keys = {line.key for line in lines}
        replies: dict[str, tuple[int, str]] = {}  # from the request's key to (HTTP status, body)
        unknown = 0  # lines that belong to no request of the batch
        doubled = 0  # lines that repeat a request
        for file_id in (status.output_file, status.error_file):
            if file_id is None:
                continue
            for document in endpoint.api.lines(file_id):
                reply = reply_in(document)
                if reply is None:  # the line names no request, or has no reply
                    unknown += 1
                    continue
                key, http_status, body = reply
                if key not in keys:
                    unknown += 1
                elif key in replies:
                    doubled += 1
                else:
                    replies[key] = (http_status, body)
        if status.completed > len(replies) and not self._choice.resend:
            raise PrerequisiteError(
                f"{self._label(batch)}: the endpoint completed {status.completed} requests, but "
                f"its files have {len(replies)} answers: the other answers are paid, but missing\n"
                "  the same command looks for these answers again; with --resend the requests are "
                "sent, and paid, again"
            )
        reason_if_unanswered = f"its batch {status.status} before it was answered"
        self._ledger.end(batch.intent, replies, reason_if_unanswered)
        missing = len(keys) - len(replies)
        self._context.say(
            f"{self._label(batch)}: {status.status}, "
            f"{len(replies)} of {len(keys)} requests answered"
        )
        for count, consequence in (
            (missing, "requests are sent again"),
            (unknown, "lines of the answer belong to no request of the batch, and are ignored"),
            (doubled, "lines of the answer repeat a request; the first line counts"),
        ):
            if count:
                self._context.say(f"warning: {self._label(batch)}: {count} {consequence}")

    def _store_refused(self, batch: Batch, status: BatchStatus, lines: Sequence[BatchLine]) -> None:
        """Handle a batch that the endpoint refused, which costs nothing.

        A batch with too many tokens is split into two batches.

        Raises:
            PrerequisiteError: Any other refusal; a new batch would be refused, too.
        """
        reasons = "; ".join(f"{code}: {message}" for code, message in status.errors[:3])
        reasons = self._context.redactor.redact_text(reasons) or "the endpoint states no reason"
        if any(code == TOO_MANY_TOKENS for code, _ in status.errors) and len(lines) > 1:
            self._ledger.to_be_sent_again(batch.intent, BatchState.SPLIT)
            half = len(lines) // 2
            self._record_intent(batch.role, lines[:half])
            self._record_intent(batch.role, lines[half:])
            self._context.say(f"{self._label(batch)}: {reasons}: the batch is sent in two parts")
            return
        self._ledger.to_be_sent_again(batch.intent)
        raise PrerequisiteError(
            f"{self._label(batch)}: the endpoint refuses the batch: {reasons}\n"
            "  nothing was paid; set batch: false, or correct the setting that the endpoint names: "
            f"{SAME_COMMAND}"
        )

    def _with_retries(self, endpoint: _BatchedEndpoint, ask: Callable[[], _T]) -> _T:
        """Return the result of `ask`, which is called again if an error may be temporary.

        Raises:
            EndpointUnreachableError: All tries failed.
            EndpointRefusedError: The endpoint refused the request.
        """
        pause = FIRST_PAUSE_S
        retries = endpoint.settings.max_retries
        while True:
            try:
                return ask()
            except BatchApiError as error:
                if not error.is_temporary:
                    raise batch_refusal(endpoint.settings.role, error) from None
                if retries == 0:
                    raise EndpointUnreachableError(f"{error}\n  {SAME_COMMAND}") from None
            retries -= 1
            time.sleep(pause)
            pause = min(MAX_PAUSE_S, pause * RETRY_FACTOR)

    def _endpoint_of(self, batch: Batch) -> _BatchedEndpoint:
        """Return the endpoint of the batch.

        Raises:
            ConfigError: In the current configuration, this endpoint does not use batches.
        """
        endpoint = self._endpoint_of_role.get(batch.role)
        if endpoint is None:
            raise ConfigError(
                f"{self._label(batch)} is open, and {batch.role} is no longer asked by batch\n"
                "  set batch: true again, or give --cancel_batches with batch: true first"
            )
        return endpoint

    def _label(self, batch: Batch) -> str:
        """Return a short text that names the batch in messages."""
        batch_id = ""
        if batch.batch_id:
            batch_id = f", {batch.batch_id}"
        return f"batch {batch.number} ({batch.role}{batch_id})"

    def _say(self, batch: Batch, status: BatchStatus) -> None:
        """Show the batch's state if it has changed.

        A changed number of completed requests is shown at most every `MAX_PAUSE_S`, and an
        unchanged state every `REPORT_INTERVAL_S`.
        """
        shown_states = self._endpoint_of(batch).shown_states
        now = time.monotonic()
        shown = shown_states.get(batch.intent)
        if shown is not None and shown.state == status.status:
            interval = REPORT_INTERVAL_S
            if shown.completed != status.completed:
                interval = MAX_PAUSE_S
            if now - shown.shown_at <= interval:
                return
        shown_states[batch.intent] = _ShownState(status.status, status.completed, now)
        until = ""
        if status.expires_at is not None and not status.is_over:
            until = f", at the latest until {_local_time(status.expires_at)}"
        self._context.say(
            f"batch {batch.number} ({batch.role}): {status.status}, {status.completed:,} of "
            f"{batch.requests:,}; sent {_local_time(batch.created)}{until}"
        )


def exceeded(budget: Budget, spent: Spending) -> str | None:
    """Return the name of a limit that `spent` exceeds; None if it exceeds no limit."""
    used = spent.by_limit(seconds=0.0)  # max_wall_s is enforced by the deadline, not here
    for name, limit in budget.stated_limits.items():
        if used[name] > limit:
            return name
    return None


def batches_of(
    context: RunContext, plan: Plan, choice: BatchChoice, budget: Budget
) -> Batches | None:
    """Return the batches of a run; None if no endpoint uses batches and no batch is open.

    `budget` is the budget of this command; its max_wall_s sets the deadline.
    """
    file = context.rundir.batches
    if not any(endpoint.batch for endpoint in plan.endpoints) and not has_open_batches(file):
        return None
    deadline = None
    if budget.max_wall_s is not None:
        deadline = time.monotonic() + budget.max_wall_s
    return Batches(context, plan, choice, deadline=deadline)


def refuse_to_forget_batches(rundir: RunDir) -> None:
    """Check that no batch is open, because `--fresh` would delete the ledger of the batches.

    Raises:
        ConfigError: A batch is open, and its answers will cost money.
    """
    if has_open_batches(rundir.batches):
        raise ConfigError(
            f"--fresh: batches of {rundir.root} are open, and --fresh would forget them\n"
            "  leave out --fresh to use the batches' answers, or give --cancel_batches first"
        )


def _metadata_of(batch: Batch) -> dict[str, str]:
    """Return the metadata by which the user, or a later command, finds a batch at the provider."""
    return {
        INTENT_METADATA_KEY: batch.intent,
        "eval_factory_run": batch.run_identity,
        "eval_factory_batch": str(batch.number),
    }


def _batched_endpoint(
    settings: EndpointSettings, context: RunContext, price: Price | None
) -> _BatchedEndpoint:
    """Return the endpoint with the client of its batch API."""
    return _BatchedEndpoint(
        settings=settings,
        api=batch_api_of(settings, context.env, context.redactor, context.log.info),
        api_path="/v1" + API_PATHS[settings.endpoint_type],
        secret_fields=settings.secret_fields(context.env),
        price=price,
        sends_singly=settings.batch == BATCH_OR_SINGLE,
    )


def _by_role(lines: Sequence[BatchLine]) -> dict[str, list[BatchLine]]:
    """Return the lines grouped by role."""
    by_role: dict[str, list[BatchLine]] = {}
    for line in lines:
        by_role.setdefault(line.role, []).append(line)
    return by_role


def _with_line(spent: Spending, line: BatchLine, price: Price | None) -> Spending:
    """Return `spent` plus the maximum use of one more request."""
    cost = 0.0 if price is None else price.cost_of(line.prompt_tokens, line.output_tokens)
    tokens = line.prompt_tokens + line.output_tokens
    return Spending(spent.requests + 1, spent.tokens + tokens, spent.cost + cost)


def _local_time(seconds: float) -> str:
    """Return the local date and time that is `seconds` after the epoch, as text."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M %Z}"


def cancel(
    request: RunRequest, choice: BatchChoice, *, env: Mapping[str, str], screen: TextIO
) -> list[str]:
    """Cancel the open batches of a run, and return a line for each batch.

    If no batch is open, the only line says so.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    plan = make_plan(evaluation)
    with lock_folder(plan, env, screen) as context:
        batches = batches_of(context, plan, choice, budget=Budget())  # without a deadline
        lines = batches.cancel() if batches is not None else []
    return lines or [f"{plan.rundir.root}: no batch is open"]
