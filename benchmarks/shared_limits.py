#!/usr/bin/env python3
"""The cost of letting a request in: by its own process, and by a server that several processes
share.

Nothing is asked between entering and leaving, so a request's own work hides nothing. The two take
turns in the same process; the server is in another one, as in a suite.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.endpoint.endpoint_settings import EndpointLimits
from eval_factory.endpoint.limits import LocalAdmission
from eval_factory.endpoint.shared_limits import LimitServer, SharedLimits

GROUP = "g"
Slot = Callable[[], AbstractContextManager[object]]
Costs = dict[str, tuple[float, float]]
"""The microseconds of wall time, and of this process's CPU time, for a request in each way."""


def cost(slot: Slot, threads: int, requests: int) -> tuple[float, float]:
    """Return the cost of each of so many requests, by so many threads."""
    each = requests // threads

    def enter() -> None:
        for _ in range(each):
            with slot():
                pass

    workers = [threading.Thread(target=enter) for _ in range(threads)]
    wall = time.perf_counter()
    cpu = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    scale = 1e6 / (each * threads)
    return (time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale


def measure(address: str, at_once: int, threads: int, requests: int, repeat: int) -> Costs:
    """Measure the costs in a process of its own: the median of the rounds, in which all ways take
    turns.
    """
    local = LocalAdmission(EndpointLimits(at_once))
    with SharedLimits(SharedLimitsSettings(address, {"model": GROUP})) as limits:
        shared = limits.admission("model")
        assert shared is not None
        ways: dict[str, Slot] = {"local": local.slot, "shared": shared.slot}
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(repeat):
            for name, slot in ways.items():
                rounds[name].append(cost(slot, threads, requests))
    return {
        name: (
            statistics.median(wall for wall, _ in found),
            statistics.median(cpu for _, cpu in found),
        )
        for name, found in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--requests", type=int, default=6400)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--settings", nargs="+", default=["1:1", "1:64", "3:64"], help="processes:threads of each"
    )
    options = parser.parse_args()
    print(
        "| processes | threads of each | way | wall time | CPU of a process | CPU of the server |"
    )
    print("|---|---|---|---|---|---|")
    with LimitServer({GROUP: EndpointLimits(options.at_once)}) as server:
        for setting in options.settings:
            processes, threads = map(int, setting.split(":"))
            arguments = (server.address, options.at_once, threads, options.requests, options.repeat)
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                before = time.process_time()
                found = pool.starmap(measure, [arguments] * processes)
                served = (
                    (time.process_time() - before)
                    * 1e6
                    / (options.requests * options.repeat * processes)
                )
            for way in found[0]:
                wall, cpu = (statistics.mean(costs[way][i] for costs in found) for i in range(2))
                own = f"{served:.0f} µs" if way == "shared" else ""
                print(f"| {processes} | {threads} | {way} | {wall:.1f} µs | {cpu:.1f} µs | {own} |")


if __name__ == "__main__":
    main()
