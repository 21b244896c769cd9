"""Answers requests that go by batch with the replies that the ledger (batches.db) has.

A request without a reply waits for a batch, and the run stops after the step that made the
request. When a batch has brought replies, helm-run repeats the step. The first attempt at the
request then gets the first stored reply, the second attempt gets the second, and so on. Therefore
retries, refused parameters and unreadable answers are handled as they are without batches.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from eval_factory.core.budget import BYTES_PER_TOKEN
from eval_factory.endpoint import bridge, media
from eval_factory.endpoint.batch_ledger import BatchLedger, StoredReply
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.http_wire import Reply, TransportError
from eval_factory.endpoint.limits import max_answer_tokens, prompt_size_in_bytes

_JSON = {"content-type": "application/json"}


class WaitsForBatch(Exception):
    """No batch has brought a reply to the request yet."""


class BatchedRole:
    """A role (the model, or a judge) whose requests go by batch."""

    def __init__(
        self,
        settings: EndpointSettings,
        ledger: BatchLedger,
        note_waiting: Callable[[str, Mapping[str, Any]], None],
        *,
        sends_singly: bool,
    ) -> None:
        """Make the role.

        Args:
            settings: the settings of the role's endpoint.
            ledger: stores the replies.
            note_waiting: is called for each request that has to wait, with the key and a dict of
                the fields `body`, `prompt_tokens` and `output_tokens` of the request's `BatchLine`.
            sends_singly: whether requests to which a batch brought no usable answer are sent one by
                one, without batches.
        """
        self.settings = settings
        self.ledger = ledger
        self.note_waiting = note_waiting
        self.sends_singly = sends_singly

    def request(self, random: str | None) -> BatchedRequest:
        """Return the batched form of one HELM request.

        `random` distinguishes equal requests that HELM sends repeatedly on purpose.
        """
        return BatchedRequest(self, random)


class BatchedRequest:
    """One HELM request, with the reply to each attempt."""

    def __init__(self, role: BatchedRole, random: str | None) -> None:
        self._role = role
        self._random = random
        self._used_replies: dict[str, int] = defaultdict(int)
        """The number of replies that were used already, by the key of the body.

        The body, and thus its key, changes if the endpoint refuses a parameter.
        """
        self._reply: StoredReply | None = None
        """The reply to the last attempt; None if the ledger had no reply."""

    @property
    def is_replayed(self) -> bool:
        """True if the last reply came from the ledger, so that no pause is needed after it."""
        return self._reply is not None

    @property
    def waited_s(self) -> float | None:
        """The seconds that the batch of the last reply took; None if no batch brought the reply."""
        if self._reply is None:
            return None
        return self._reply.waited_s

    def reply(self, body: Mapping[str, Any]) -> Reply | None:
        """Return the next reply to a body; None if the request has to be sent on its own.

        Raises:
            WaitsForBatch: no batch has brought the next reply yet.
            TransportError: the batch ended without an answer to the request.
        """
        role = self._role
        body_without_secrets = self._without_secrets(body)
        key = role.settings.key_of(body_without_secrets, self._random)
        replies = role.ledger.replies(key)
        used = self._used_replies[key]
        self._reply = None
        if used >= len(replies):
            if replies and role.sends_singly:  # the batches brought no usable answer
                return None
            role.note_waiting(key, self._line(body_without_secrets))
            raise WaitsForBatch
        self._used_replies[key] += 1
        self._reply = replies[used]
        if self._reply.status is None:
            raise TransportError(self._reply.data)
        # An answer may contain lone surrogates, which strict UTF-8 refuses.
        data = self._reply.data.encode("utf-8", "surrogatepass")
        return Reply(self._reply.status, _JSON, data)

    def consume(self) -> bool:
        """Note that the journal now has the last reply.

        Return True if the journal did not have the reply before. A reply that did not come from the
        ledger is always new.
        """
        if self._reply is None:
            return True
        if self._reply.is_consumed:
            return False
        self._role.ledger.consume(self._reply.line_id)
        return True

    def _without_secrets(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body as files store it: with names of secret variables, not their values."""
        settings = self._role.settings
        stored_body = dict(body)
        for name in settings.secret_field_names:
            if name in body:
                stored_body[name] = settings.adapter.params_to_add[name]
        return stored_body

    def _line(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ledger's line for a body: the JSON with its media, and estimates of tokens."""
        sent = body
        if media.has_media(body):
            sent = bridge.run_in_thread(media.with_file_contents, body)
        text_tokens = -(-prompt_size_in_bytes(body) // BYTES_PER_TOKEN)  # rounded up
        return {
            "body": json.dumps(sent),
            "prompt_tokens": text_tokens + media.tokens_in(body),
            "output_tokens": max_answer_tokens(body),
        }
