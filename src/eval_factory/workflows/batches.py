"""Runs helm-run with batches: polls the batches, and stores or cancels them.

helm-run writes its requests to batches.db, the ledger, and ends. This module then has the requests
sent (`batch_sending.py`), waits for the answers and starts helm-run again. A `BatchLine` of the
ledger is one request. Each batch has an intent: a name that is recorded before the batch is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

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
from eval_factory.endpoint.batch_api import BatchApiError, BatchStatus, reply_in
from eval_factory.endpoint.batch_ledger import (
    Batch,
    BatchLedger,
    BatchLine,
    BatchState,
    has_open_batches,
)
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.plan.batch_endpoints import batch_refusal
from eval_factory.plan.prices import budget_of, prices_for_helm_run, prices_of
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.batch_sending import (
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    SAME_COMMAND,
    BatchedEndpoint,
    BatchSender,
    label_of,
)
from eval_factory.workflows.context import RunContext, lock_folder
from eval_factory.workflows.helm_run import EndedHelmRun
from eval_factory.workflows.options import BatchChoice

PAUSE_FACTOR = 1.5  # each pause between polls is this many times as long as the pause before
MAX_SILENCE_S = 6 * 3600.0
"""The seconds for which all polls may fail: a laptop may sleep, or a network may be down."""
TOO_MANY_TOKENS = "token_limit_exceeded"  # the error code of a batch with too many tokens


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
        self._sender = BatchSender(context, plan, choice, self._ledger)

    def close(self) -> None:
        """Close the ledger of batches."""
        self._ledger.close()

    def begin(self) -> None:
        """Resume the open batches of an earlier command, and wait until they have ended."""
        self._ledger.begin_invocation()
        for batch in self._ledger.open_batches():
            if batch.state is BatchState.CREATING:  # the endpoint may or may not have the batch
                self._sender.resolve_unknown(batch)
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
            if was_in_batch and self._sender.endpoint_of_role[line.role].sends_singly:
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
            for part in self._sender.endpoint_of_role[role].split_for_files(lines):
                batch = self._sender.record_intent(role, part)
                self._sender.send(batch)
        self._wait()
        # The next helm-run takes the stored answers, and writes the other requests again.
        self._ledger.forget_waiting()

    def cancel(self) -> list[str]:
        """Cancel all open batches. Returns a line for each batch."""
        return [self._cancel_batch(batch) for batch in self._ledger.open_batches()]

    def _cancel_batch(self, batch: Batch) -> str:
        """Cancel one batch, and return a line that says what the endpoint answered."""
        if batch.state is BatchState.CREATING:
            self._sender.resolve_unknown(batch)
            batch = self._ledger.batch(batch.intent)  # with the ID, if the endpoint has the batch
        if batch.batch_id is None:
            self._ledger.to_be_sent_again(batch.intent)
            return f"{label_of(batch)}: was never sent, so there is nothing to cancel"
        try:
            status = self._sender.endpoint_of(batch).api.cancel(batch.batch_id)
        except BatchApiError as error:
            return f"{label_of(batch)}: {error}"
        return f"{label_of(batch)}: {status.status}"

    def _affordable(self, lines: Sequence[BatchLine]) -> list[BatchLine]:
        """Return the first requests whose maximum use does not exceed the run's limits.

        Raises:
            NotReportableError: Not even the first request fits.
        """
        budget = budget_of(self._plan)
        spent = spent_so_far(self._plan.rundir.cache_db, prices_of(self._plan).known)
        chosen = []
        for line in lines:
            spent = _with_line(spent, line, self._sender.endpoint_of_role[line.role].price)
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
            self._sender.send(batch)

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
        endpoint = self._sender.endpoint_of(batch)
        try:
            status = endpoint.api.status(str(batch.batch_id))  # a sent batch has an ID
            self._sender.show_state(batch, status)
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
            f"{label_of(batch)}: the endpoint no longer knows the batch, and its cost is "
            "unknown\n"
            "  give the same command with --resend: its requests are sent again, and paid again"
        )

    def _store(self, batch: Batch, endpoint: BatchedEndpoint, status: BatchStatus) -> None:
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
                f"{label_of(batch)}: the endpoint completed {status.completed} requests, but "
                f"its files have {len(replies)} answers: the other answers are paid, but missing\n"
                "  the same command looks for these answers again; with --resend the requests are "
                "sent, and paid, again"
            )
        reason_if_unanswered = f"its batch {status.status} before it was answered"
        self._ledger.end(batch.intent, replies, reason_if_unanswered)
        missing = len(keys) - len(replies)
        self._context.say(
            f"{label_of(batch)}: {status.status}, {len(replies)} of {len(keys)} requests answered"
        )
        for count, consequence in (
            (missing, "requests are sent again"),
            (unknown, "lines of the answer belong to no request of the batch, and are ignored"),
            (doubled, "lines of the answer repeat a request; the first line counts"),
        ):
            if count:
                self._context.say(f"warning: {label_of(batch)}: {count} {consequence}")

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
            self._sender.record_intent(batch.role, lines[:half])
            self._sender.record_intent(batch.role, lines[half:])
            self._context.say(f"{label_of(batch)}: {reasons}: the batch is sent in two parts")
            return
        self._ledger.to_be_sent_again(batch.intent)
        raise PrerequisiteError(
            f"{label_of(batch)}: the endpoint refuses the batch: {reasons}\n"
            "  nothing was paid; set batch: false, or correct the setting that the endpoint names: "
            f"{SAME_COMMAND}"
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
