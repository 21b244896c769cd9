"""Sends batches of requests, and finds a sent batch again whose ID did not arrive.

Before eval-factory sends a batch, it records the batch's intent: a name that it also puts into the
batch's metadata. If a process dies, the same command finds each batch again, either by the ID that
the endpoint gave it or by its intent. If a batch cannot be found with certainty, its requests are
not sent again, because they may already cost money; the user decides what to do. The ledger is
batches.db, and a `BatchLine` of the ledger is one request.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeVar

from eval_factory.core.budget import Price
from eval_factory.core.errors import ConfigError, EndpointUnreachableError, PrerequisiteError
from eval_factory.core.urls import API_PATHS
from eval_factory.endpoint.batch_api import (
    INTENT_METADATA_KEY,
    BatchApi,
    BatchApiError,
    BatchStatus,
)
from eval_factory.endpoint.batch_ledger import Batch, BatchLedger, BatchLine, line_of_file
from eval_factory.endpoint.endpoint_settings import BATCH_OR_SINGLE, EndpointSettings
from eval_factory.plan.batch_endpoints import batch_api_of, batch_refusal
from eval_factory.plan.prices import prices_of
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.options import BatchChoice

MAX_REQUESTS = 50_000
"""The maximum number of requests in a batch, as OpenAI publishes it."""
MAX_BYTES = 200_000_000
"""The maximum size of a batch's file, in bytes, as OpenAI publishes it."""
# the pauses between two polls, and between two tries of a request to the batch API
FIRST_PAUSE_S = 0.5  # in seconds
MAX_PAUSE_S = 60.0  # in seconds
RETRY_FACTOR = 2.0  # each pause between tries is this many times as long as the pause before
REPORT_INTERVAL_S = 600.0  # an unchanged state is shown again after this time, in seconds
SETTLING_S = 5.0
"""The seconds after which the endpoint lists a batch whose creation was not confirmed."""
SAME_COMMAND = "the same command goes on"
"""The end of messages: to resume, the user runs the same command again."""

_T = TypeVar("_T")


class _ShownState(NamedTuple):
    """The state of a batch as it was last shown to the user."""

    state: str
    completed: int  # the number of completed requests
    shown_at: float  # the time, by the monotonic clock


@dataclass
class BatchedEndpoint:
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

    def split_for_files(self, lines: Sequence[BatchLine]) -> Iterator[list[BatchLine]]:
        """Yield the lines in parts, each small enough for the file of one batch.

        Raises:
            PrerequisiteError: A single request is too large for a file.
        """
        part: list[BatchLine] = []
        size = 0
        for line in lines:
            bytes_of_line = len(self.file_of([line]))
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

    def with_retries(self, ask: Callable[[], _T]) -> _T:
        """Return the result of `ask`, which is called again if an error may be temporary.

        Raises:
            EndpointUnreachableError: All tries failed.
            EndpointRefusedError: The endpoint refused the request.
        """
        pause = FIRST_PAUSE_S
        retries = self.settings.max_retries
        while True:
            try:
                return ask()
            except BatchApiError as error:
                if not error.is_temporary:
                    raise batch_refusal(self.settings.role, error) from None
                if retries == 0:
                    raise EndpointUnreachableError(f"{error}\n  {SAME_COMMAND}") from None
            retries -= 1
            time.sleep(pause)
            pause = min(MAX_PAUSE_S, pause * RETRY_FACTOR)


class BatchSender:
    """Sends the batches of one run."""

    def __init__(
        self, context: RunContext, plan: Plan, choice: BatchChoice, ledger: BatchLedger
    ) -> None:
        """
        Args:
            context: The context of the run.
            plan: The plan, which names the endpoints.
            choice: The user's decision about batches of unknown state.
            ledger: The ledger of batches.
        """
        self._context = context
        self._plan = plan
        self._choice = choice
        self._ledger = ledger
        prices = prices_of(plan).known
        self.endpoint_of_role: dict[str, BatchedEndpoint] = {}
        for settings in plan.endpoints:
            if settings.batch:
                price = prices.get(settings.role)
                self.endpoint_of_role[settings.role] = _batched_endpoint(settings, context, price)

    def record_intent(self, role: str, lines: Sequence[BatchLine]) -> Batch:
        """Record the intent to send these lines as one batch, and return the batch."""
        data = self.endpoint_of_role[role].file_of(lines)
        digest = hashlib.sha256(data).hexdigest()
        return self._ledger.intend(role, lines, digest, run_identity=self._plan.identity)

    def send(self, batch: Batch) -> None:
        """Upload the file of a batch whose intent is recorded, and create the batch."""
        endpoint = self.endpoint_of(batch)
        data = endpoint.file_of(self._ledger.lines_of(batch.intent))
        name = f"{batch.intent}.jsonl"
        file_id = endpoint.with_retries(lambda: endpoint.api.upload(name, data))
        status = endpoint.with_retries(lambda: self._create(batch, endpoint, file_id))
        self._ledger.sent(batch.intent, status.id)
        self.show_state(batch, status)

    def _create(self, batch: Batch, endpoint: BatchedEndpoint, file_id: str) -> BatchStatus:
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
                    f"{label_of(batch)}: it is unknown whether the endpoint created it: "
                    f"{error}\n  {SAME_COMMAND}, and first looks for this batch"
                ) from None
            self._ledger.uploaded(batch.intent, file_id)  # back to the state before `creating`
            raise

    def resolve_unknown(self, batch: Batch) -> None:
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
        endpoint = self.endpoint_of(batch)
        id_of_user = self._choice.batch_id
        if id_of_user is not None:
            named = endpoint.with_retries(lambda: endpoint.api.status(id_of_user))
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
            for status in endpoint.with_retries(lambda: list(endpoint.api.listed())):
                if status.has_metadata:
                    has_metadata = True
                if status.intent == batch.intent:
                    return status
        if has_metadata:
            return None
        raise PrerequisiteError(
            f"{label_of(batch)}: it is unknown whether the endpoint has it, because the "
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
                f"--batch_id: {named.id} is another batch than {label_of(batch)}: it has "
                f"{named.total} requests in place of {batch.requests}, or another name in its "
                "metadata\n  nothing was sent; look for the id at the provider again"
            )

    def endpoint_of(self, batch: Batch) -> BatchedEndpoint:
        """Return the endpoint of the batch.

        Raises:
            ConfigError: In the current configuration, this endpoint does not use batches.
        """
        endpoint = self.endpoint_of_role.get(batch.role)
        if endpoint is None:
            raise ConfigError(
                f"{label_of(batch)} is open, and {batch.role} is no longer asked by batch\n"
                "  set batch: true again, or give --cancel_batches with batch: true first"
            )
        return endpoint

    def show_state(self, batch: Batch, status: BatchStatus) -> None:
        """Show the batch's state if it has changed.

        A changed number of completed requests is shown at most every `MAX_PAUSE_S`, and an
        unchanged state every `REPORT_INTERVAL_S`.
        """
        shown_states = self.endpoint_of(batch).shown_states
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


def label_of(batch: Batch) -> str:
    """Return a short text that names the batch in messages."""
    batch_id = ""
    if batch.batch_id:
        batch_id = f", {batch.batch_id}"
    return f"batch {batch.number} ({batch.role}{batch_id})"


def _metadata_of(batch: Batch) -> dict[str, str]:
    """Return the metadata by which the user, or a later command, finds a batch at the provider."""
    return {
        INTENT_METADATA_KEY: batch.intent,
        "eval_factory_run": batch.run_identity,
        "eval_factory_batch": str(batch.number),
    }


def _batched_endpoint(
    settings: EndpointSettings, context: RunContext, price: Price | None
) -> BatchedEndpoint:
    """Return the endpoint with the client of its batch API."""
    return BatchedEndpoint(
        settings=settings,
        api=batch_api_of(settings, context.env, context.redactor, context.log.info),
        api_path="/v1" + API_PATHS[settings.endpoint_type],
        secret_fields=settings.secret_fields(context.env),
        price=price,
        sends_singly=settings.batch == BATCH_OR_SINGLE,
    )


def _local_time(seconds: float) -> str:
    """Return the local date and time that is `seconds` after the epoch, as text."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M %Z}"
