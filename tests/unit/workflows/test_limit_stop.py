"""A run that came to its own limit: what is said of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.budget import Budget, Spending
from eval_factory.core.errors import NotReportableError
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.workflows.helm_run import missing, raise_if_limit_reached, stopped_by
from unit.builders import plan

ASKING = {"event": "phase", "phase": "asking the model", "total": 12}
JUDGING = {"event": "phase", "phase": "judging", "total": 12}
LOADING = {"event": "phase", "phase": "loading data"}
LOG = logging.getLogger("test")


def reached(limit: str, *, countable: bool = True, **answered: int) -> dict[str, Any]:
    return {"event": "limit_reached", "limit": limit, "countable": countable, "answered": answered}


def test_it_ends_with_what_was_used_what_is_missing_and_how_it_goes_on(tmp_path: Path) -> None:
    here = plan(
        {
            "config.output_dir": str(tmp_path), "config.params.extra.max_cost": 0.5, "target.api_endpoint.model_id": "m",
            "config.params.extra.prices": [{"model_id": "m", "input_per_million": 100_000, "output_per_million": 0}],
        }
    )  # fmt: skip
    cache = ResponseCache(here.rundir.cache_db, "run")
    cache.save(
        Answer("k", "model", "m", {}, {}, 1.0, 0.1), Attempt("k", "model", 1, "answered", 200, None, 1.0, 0.1, 6, 1)
    )
    cache.close()
    with pytest.raises(NotReportableError) as stopped:
        raise_if_limit_reached(here, [LOADING, ASKING, reached("max_cost", model=1)], LOG)
    assert str(stopped.value) == (
        "stopped: max_cost (0.5) is reached; sent so far: 1 requests, 7 tokens, 0.6000 USD\n"
        "  1 of 12 instances are answered; no score is written, every answer is kept\n"
        "  raise max_cost and run the same command again: only the rest is asked"
    )
    assert stopped.value.exit_code == 1


@pytest.mark.parametrize(
    ("own", "first", "raised"),
    [
        (2, "max_requests of the suite is reached; sent so far by this cell: 1 requests, 0 tokens", "suite.max_requests"),
        (None, "max_requests of the suite is reached; sent so far by this cell: 1 requests, 0 tokens", "suite.max_requests"),
        (1, "max_requests (1) is reached; sent so far: 1 requests, 0 tokens", "max_requests"),
    ],
)  # fmt: skip
def test_whose_limit_it_was(own: int | None, first: str, raised: str, tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path), "config.params.extra.max_requests": own})
    cache = ResponseCache(here.rundir.cache_db, "run")
    answered = Attempt("k", "model", 1, "answered", 200, None, 1.0, 0.1, 0, 0)
    cache.save(Answer("k", "model", "m", {}, {}, 1.0, 0.1), answered)
    cache.close()
    with pytest.raises(NotReportableError) as stopped:
        raise_if_limit_reached(here, [LOADING, ASKING, reached("max_requests", model=1)], LOG, shared=True)
    lines = str(stopped.value).split("\n")
    assert lines[0] == f"stopped: {first}"
    assert lines[2] == f"  raise {raised} and run the same command again: only the rest is asked"


def test_a_limit_that_cannot_be_held_is_each_runs_own(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path), "config.params.extra.max_tokens_total": 9})
    events: list[dict[str, Any]] = [LOADING, ASKING, reached("max_tokens_total", countable=False)]
    with pytest.raises(NotReportableError, match=r"max_tokens_total \(9\) cannot be held"):
        raise_if_limit_reached(here, events, LOG, shared=True)


def test_a_run_that_reached_no_limit_goes_on(tmp_path: Path) -> None:
    raise_if_limit_reached(plan({"config.output_dir": str(tmp_path)}), [LOADING, ASKING], LOG)


SENT = "sent so far: 5 requests, 9 tokens"
AGAIN = "run the same command again: only the rest is asked"
OVER = "run the same command again, or raise max_wall_s where it is too short to begin: only the rest is asked"


@pytest.mark.parametrize(
    ("limit", "budget", "countable", "shared", "cost", "used_up", "next_step"),
    [
        ("max_requests", Budget(max_requests=5), True, False, 0, f"max_requests (5) is reached; {SENT}", f"raise max_requests and {AGAIN}"),
        ("max_requests", Budget(max_requests=5), True, False, 0.25, f"max_requests (5) is reached; {SENT}, 0.2500 USD", f"raise max_requests and {AGAIN}"),
        ("max_requests", Budget(), True, False, 0, f"max_requests is reached; {SENT}", f"raise max_requests and {AGAIN}"),
        ("max_cost", Budget(max_cost=1.5), True, False, 0, f"max_cost (1.5) is reached; {SENT}, 0.0000 USD", f"raise max_cost and {AGAIN}"),
        ("max_cost", Budget(max_cost=1.5), False, False, 0, f"max_cost (1.5) cannot be held, for an answer came whose cost nobody knows; {SENT}",
         f"leave out max_cost, or count by max_requests, and {AGAIN}"),
        ("max_tokens_total", Budget(max_tokens_total=8), False, True, 0,
         f"max_tokens_total (8) cannot be held, for an answer came whose tokens nobody knows; {SENT}",
         f"leave out max_tokens_total, or count by max_requests, and {AGAIN}"),
        ("max_wall_s", Budget(max_wall_s=5), True, True, 0, f"max_wall_s (5) is reached; {SENT}", OVER),
        ("max_wall_s", Budget(), True, True, 0, "max_wall_s of the suite is reached; sent so far by this cell: 5 requests, 9 tokens", OVER),
    ],
)  # fmt: skip
def test_what_was_used_and_what_to_do(
    limit: str, budget: Budget, countable: bool, shared: bool, cost: float, used_up: str, next_step: str
) -> None:
    assert stopped_by(limit, budget, Spending(5, 9, cost), countable=countable, shared=shared) == (used_up, next_step)


def test_how_far_the_judges_came() -> None:
    assert missing([LOADING], {}) == ["0 of 0 instances are answered"]
    assert missing([ASKING, JUDGING], {"model": 12}) == [
        "12 of 12 instances are answered", "of 12 requests to judges are answered: none",
    ]  # fmt: skip
    assert (
        missing([ASKING, JUDGING], {"odd": 2, "model": 12, "gpt": 3})[1]
        == "of 12 requests to judges are answered: gpt 3, odd 2"
    )
