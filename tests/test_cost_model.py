"""What a large evaluation takes: the formula says what the simulation plays through."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from cluster_simulation import play
from cost_model import SERVICES, SIZES, Measured, Work, cost, processes_for, row, works

MEASURED = Measured()
ASKING = replace(MEASURED, after_s=0)
HOUR_S = 3600


def asking_s(work: Work, measured: Measured = ASKING) -> float:
    return HOUR_S * cost(work, measured).hours


@pytest.mark.parametrize(
    ("work", "limited_by"),
    [
        (Work("a", 6_000, 0.5, 64), "requests at once"),
        (Work("b", 12_000, 0.5, 64, failure_share=0.1, backoff_s=1.0), "requests at once"),
        (Work("c", 6_000, 0.05, 512), "processor of the processes"),
        (Work("d", 24_000, 0.05, 1_024, processes=4), "processor of the processes"),
        (Work("e", 6_000, 0.5, 256, per_minute=1_500), "requests a minute"),
    ],
    ids=lambda value: value.name if isinstance(value, Work) else None,
)
def test_the_formula_says_what_is_played(work: Work, limited_by: str) -> None:
    assert cost(work, ASKING).limited_by == limited_by
    seen = play(work, MEASURED)
    assert seen.answered == work.requests
    assert seen.sent - seen.failed - seen.refused == work.requests
    expected = asking_s(work)
    if work.per_minute is not None:  # a new minute lets in all that it allows at once
        assert expected - 60 < seen.seconds < expected + 1
        assert seen.refused > 0
    else:
        assert seen.seconds == pytest.approx(expected, rel=0.06)
        assert seen.refused == 0
    assert seen.failed == pytest.approx(work.requests * work.failure_share / (1 - work.failure_share), rel=0.15)


def test_lost_nodes_cost_what_they_had_on_their_way() -> None:
    work = Work("f", 16_000, 1.0, 128, processes=4, nodes=4, lost_every_h=0.04, restart_s=10)
    expected, found = cost(work, ASKING), [play(work, MEASURED, seed) for seed in range(6)]
    assert all(seen.answered == work.requests for seen in found)
    lost = sum(seen.nodes_lost for seen in found)
    assert lost > 6
    assert sum(seen.lost for seen in found) <= lost * work.at_once / work.nodes
    assert expected.asked_twice == pytest.approx(sum(seen.lost for seen in found) / len(found), rel=0.35)
    undisturbed = asking_s(replace(work, lost_every_h=None))
    mean_s = sum(seen.seconds for seen in found) / len(found)
    assert asking_s(work) - undisturbed == pytest.approx(
        mean_s - play(replace(work, lost_every_h=None), MEASURED).seconds, rel=0.5
    )


def test_every_seed_is_another_play() -> None:
    work = SERVICES[0]
    assert play(replace(work, requests=500), MEASURED, 1) == play(replace(work, requests=500), MEASURED, 1)
    assert play(replace(work, requests=500), MEASURED, 1) != play(replace(work, requests=500), MEASURED, 2)


def test_as_few_processes_as_leave_the_endpoint_the_limit() -> None:
    work = Work("g", 1_000, 0.1, 1_000)
    fewest = processes_for(work, MEASURED)
    assert fewest == math.ceil(10_000 * MEASURED.request_s)
    assert cost(replace(work, processes=fewest), MEASURED).limited_by == "requests at once"
    assert cost(replace(work, processes=fewest - 1), MEASURED).limited_by == "processor of the processes"


def test_what_grows_with_what() -> None:
    work = Work("h", 10_000, 0.5, 64, cells=1)
    one, ten = cost(work, MEASURED), cost(replace(work, cells=10, processes=10), MEASURED)
    assert one.memory_mb == MEASURED.base_mb + 10_000 * MEASURED.instance_kb / 1000
    assert ten.memory_mb == MEASURED.base_mb + 1_000 * MEASURED.instance_kb / 1000
    assert one.disk_gb == ten.disk_gb == 10_000 * MEASURED.disk_kb / 1e6
    scoring_s = HOUR_S * (one.hours - ten.hours)
    assert scoring_s == pytest.approx(0.9 * MEASURED.after_s * 10_000)


def test_a_row_for_each_endpoint_and_size() -> None:
    found = [row(work, MEASURED) for work in works(MEASURED)]
    assert len(found) == len(SERVICES) * len(SIZES)
    assert [one[1] for one in found[:3]] == ["100,000", "1,000,000", "10,000,000"]
    assert all(one[3] in ("requests at once", "requests a minute") for one in found)
