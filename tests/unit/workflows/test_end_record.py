from __future__ import annotations

import errno

import pytest

from eval_factory.core.errors import EndpointRefusedError, HelmError, InterruptedRunError
from eval_factory.workflows.options import code_of_error, failure_record


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HelmError("x"), 4),
        (EndpointRefusedError("x"), 3),
        (InterruptedRunError("x"), 130),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "full"), 3),
        (OSError(errno.EACCES, "no"), 3),
        (OSError(errno.EPIPE, "gone"), 70),
        (ValueError("x"), 70),
    ],
    ids=["HELM", "endpoint", "stopped", "Ctrl-C", "disk full", "no access", "pipe", "defect"],
)
def test_an_error_has_the_code_that_it_ends_a_program_with(error: BaseException, code: int) -> None:
    assert code_of_error(error) == code


def test_a_failure_says_its_kind_and_message() -> None:
    assert failure_record(EndpointRefusedError("the key\n  next"), 3) == {
        "event": "end", "exit_code": 3, "error": {"type": "EndpointRefusedError", "message": "the key\n  next"}}  # fmt: skip
    assert (
        failure_record(ValueError("text of a prompt"), 70)["error"]["message"]
        == "a defect in eval-factory (ValueError)"
    )
    assert failure_record(KeyboardInterrupt(), 130)["error"]["message"] == "interrupted"
    assert failure_record(InterruptedRunError("kept"), 130)["error"]["message"] == "kept"
    assert failure_record(ValueError("x"), 2, "said otherwise")["error"]["message"] == "said otherwise"


def test_no_key_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a-known-key-value-1")
    record = failure_record(HelmError("no: a-known-key-value-1"), 4)
    assert record["error"]["message"] == "no: [API_KEY_REDACTED]"
