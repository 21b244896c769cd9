"""What helm-run says at its end is told from what others make it say."""

from __future__ import annotations

import pytest

from eval_factory.core.helm_run_settings import RUN_ID
from eval_factory.core.logs import last_message, last_message_in

RUN = "3c0ffee0"
MESSAGE = 'cannot reach http://llm.example: no "connection"\n  check the URL\n  eval-factory stops: é'
LINE = last_message(MESSAGE, {RUN_ID: RUN})


def test_a_message_of_several_lines_comes_through_among_others() -> None:
    assert "\n" not in LINE
    assert last_message_in(1, ["model: HTTP 429", LINE, "model: more"], RUN) == MESSAGE
    assert last_message_in(-9, [LINE], RUN) == MESSAGE


def test_by_hand_it_is_to_be_read() -> None:
    assert last_message(MESSAGE, {}) == f"eval-factory stops: {MESSAGE}"


@pytest.mark.parametrize(
    ("returncode", "tail"),
    [
        (0, [LINE]),
        (1, []),
        (1, [last_message(MESSAGE, {RUN_ID: "another"})]),
        (1, [last_message(MESSAGE, {})]),
        (1, [f"model: {LINE}"]),
        (1, [LINE[:-3]]),
    ],
    ids=["it did not fail", "nothing was said", "another run's", "no run's", "inside a line", "cut"],
)
def test_what_is_not_its_own_is_not_believed(returncode: int, tail: list[str]) -> None:
    assert last_message_in(returncode, tail, RUN) is None
