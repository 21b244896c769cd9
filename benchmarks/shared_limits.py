#!/usr/bin/env python3
"""Measures the cost of a slot for a request: from its own process, and from a shared server.

A suite has one server of limits, which several processes share. Nothing is asked between acquiring
and releasing a slot, so the work of a request hides no cost. The two ways take turns in the same
process; the server runs in another process, as in a suite.
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
Slot = Callable[[], AbstractContextManager[object]]  # returns the context that holds a slot
Costs = dict[str, tuple[float, float]]
"""The microseconds of wall time, and of this process's CPU time, for a request in each way."""


def cost(slot: Slot, threads: int, requests: int) -> tuple[float, float]:
    """Return the cost of a request: microseconds of wall time and of CPU time.

    Args:
        slot: returns the context that holds a slot.
        threads: the number of threads that acquire slots.
        requests: the number of requests of all threads together.
    """
    requests_of_thread = requests // threads

    def acquire_slots() -> None:
        for _ in range(requests_of_thread):
            with slot():
                pass

    workers = [threading.Thread(target=acquire_slots) for _ in range(threads)]
    wall = time.perf_counter()
    cpu = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    scale = 1e6 / (requests_of_thread * threads)
    return (time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale


def measure(address: str, at_once: int, threads: int, requests: int, repeat: int) -> Costs:
    """Return the costs of both ways, as medians of several rounds. Runs in a process of its own.

    Args:
        address: the address of the server of limits.
        at_once: the maximum number of requests at the same time.
        threads: the number of threads of this process.
        requests: the number of requests in a round.
        repeat: the number of rounds. In each round, the ways take turns.
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
    costs = {}
    for name, costs_of_rounds in rounds.items():
        wall = statistics.median(wall for wall, _cpu in costs_of_rounds)
        cpu = statistics.median(cpu for _wall, cpu in costs_of_rounds)
        costs[name] = (wall, cpu)
    return costs


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
                costs_of_processes = pool.starmap(measure, [arguments] * processes)
                # The server runs in this process.
                server_s = time.process_time() - before
                all_requests = options.requests * options.repeat * processes
                server_cost = server_s * 1e6 / all_requests
            for way in costs_of_processes[0]:
                wall = statistics.mean(costs[way][0] for costs in costs_of_processes)
                cpu = statistics.mean(costs[way][1] for costs in costs_of_processes)
                of_server = f"{server_cost:.0f} µs" if way == "shared" else ""
                cells = f"{way} | {wall:.1f} µs | {cpu:.1f} µs | {of_server}"
                print(f"| {processes} | {threads} | {cells} |")


if __name__ == "__main__":
    main()
