"""Requests on their way, of which a process that is killed leaves a note."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from eval_factory.core.enums import AttemptState
from eval_factory.endpoint import in_flight
from eval_factory.endpoint.in_flight import RequestsInFlight, SentRequest, interrupted_requests
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.endpoint.response_cache import Attempt, ResponseCache
from eval_factory.scoring import journal


@pytest.fixture
def cache_db(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


def test_a_request_stands_there_from_its_sending_to_its_journal(cache_db: Path) -> None:
    requests = RequestsInFlight(cache_db, "run")
    with requests.flight("a" * 64, "model") as flight:
        assert interrupted_requests(cache_db) == []
        flight.sent(1, 0.1)
        assert interrupted_requests(cache_db) == [SentRequest("run", "a" * 64, "model", 1, 0.1)]
        flight.landed()
        assert interrupted_requests(cache_db) == []
        flight.sent(2, 0.30000000000000004)
    assert interrupted_requests(cache_db) == []
    assert in_flight.file_of(cache_db).stat().st_mode & 0o777 == 0o600


def test_as_many_slots_as_requests_at_once(cache_db: Path) -> None:
    requests = RequestsInFlight(cache_db, "run")
    for number in range(4):
        with (
            requests.flight("one", "model") as first,
            requests.flight("other", "gpt") as second,
        ):
            first.sent(1, float(number))
            second.sent(1, float(number))
            assert {sent.role for sent in interrupted_requests(cache_db)} == {"model", "gpt"}
    assert len(in_flight.file_of(cache_db).read_bytes().splitlines()) == 2


@pytest.mark.parametrize(("error", "left"), [(KeyboardInterrupt, 1), (ValueError, 0)])
def test_who_is_interrupted_leaves_the_note(
    cache_db: Path, error: type[BaseException], left: int
) -> None:
    def ask() -> None:
        with RequestsInFlight(cache_db, "run").flight("a", "model") as flight:
            flight.sent(1, 0.1)
            raise error

    with pytest.raises(error):
        ask()
    assert len(interrupted_requests(cache_db)) == left


def test_what_was_on_its_way_is_counted_by_whoever_opens_the_file_next(cache_db: Path) -> None:
    with closing(ResponseCache(cache_db, "first")) as cache:
        for number in range(3):
            flight = in_flight.Flight(cache.in_flight, str(number), "model")
            flight.sent(1, float(number))
        # the last one's answer was committed, and then the process was killed
        cache.journal(Attempt("changed", "model", 1, "answered", 200, None, 2.0, 0.5))
    with closing(ResponseCache(cache_db, "second")):
        assert interrupted_requests(cache_db) == []
    attempts = list(journal.read_attempts(cache_db))
    interrupted = [row for row in attempts if row["outcome"] == AttemptState.INTERRUPTED]
    assert [(row["run_id"], row["key"]) for row in interrupted] == [("first", "0"), ("first", "1")]
    assert spent_so_far(cache_db, {}).requests == 3


def test_a_slot_that_was_being_written_is_none(cache_db: Path) -> None:
    in_flight.file_of(cache_db).write_bytes(b'["run", "a"\n' + b" " * 20 + b"\n[1]\n\xff\n")
    assert interrupted_requests(cache_db) == []
