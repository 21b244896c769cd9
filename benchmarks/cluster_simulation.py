"""An evaluation on many nodes, played through: processes that ask, an endpoint that fails, nodes that are lost.

What is played is each request: it takes its share of its process's core, waits for a place, may get a 429 and the pause
that comes with it, may fail and be sent again, and is lost with its node. `benchmarks/cost_model.py` is to say the same
without playing.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import simpy
from cost_model import SERVICES, Measured, Work, cost, processes_for

Steps = Generator[simpy.Event, Any, None]
SPREAD = 0.3
"""Of the logarithm of an answer's latency."""
SMALLER = 100_000
MORE_OFTEN = 5_000
"""Nodes are lost so much more often than the work says, so that some are lost while so few requests are asked."""


@dataclass
class Seen:
    """What happened."""

    answered: int = 0
    sent: int = 0
    failed: int = 0
    refused: int = 0
    """With a 429."""
    lost: int = 0
    """On their way when their node was lost: sent again."""
    nodes_lost: int = 0
    seconds: float = 0.0


@dataclass
class Process:
    """One that takes requests, of cell after cell, until none is left."""

    core: simpy.Resource
    paused_until: float = 0.0
    threads: list[simpy.Process] = field(default_factory=list)


class Play:
    """One evaluation."""

    def __init__(self, work: Work, measured: Measured, seed: int) -> None:
        self.work, self.measured, self.seen = work, measured, Seen()
        self.env, self.rng = simpy.Environment(), random.Random(seed)  # noqa: S311 - no secret
        self.left, self.done = work.requests, self.env.event()
        self.processes = [Process(simpy.Resource(self.env)) for _ in range(work.processes)]
        self.minute, self.used = -1, 0

    def to_the_end(self) -> Seen:
        for process in self.processes:
            self.begin(process, self.measured.start_s + self.measured.task_s)
        if self.work.lost_every_h is not None:
            for node in range(self.work.nodes):
                self.env.process(self.losses(node, self.work.lost_every_h * 3600))
        self.env.run(until=self.done)
        self.seen.seconds = self.env.now
        return self.seen

    def begin(self, process: Process, after_s: float) -> None:
        count = self.work.at_once // self.work.processes
        process.threads = [self.env.process(self.thread(process, after_s)) for _ in range(count)]

    def thread(self, process: Process, begins: float) -> Steps:
        try:
            yield self.env.timeout(begins)
            while self.left:
                self.left -= 1
                yield from self.taken(process)
        except simpy.Interrupt:
            return

    def taken(self, process: Process) -> Steps:
        """One of the requests that are left, to its answer."""
        try:
            while not (yield from self.answered(process)):
                pass
        except simpy.Interrupt:
            self.left += 1
            self.seen.lost += 1
            raise
        self.seen.answered += 1
        if self.seen.answered == self.work.requests:
            self.done.succeed()

    def answered(self, process: Process) -> Generator[simpy.Event, Any, bool]:
        """One try."""
        env, work, seen = self.env, self.work, self.seen
        if process.paused_until > env.now:
            yield env.timeout(process.paused_until - env.now)
        with process.core.request() as turn:
            yield turn
            yield env.timeout(self.measured.request_s)
        seen.sent += 1
        pause = self.refusal_s()
        if pause is not None:
            seen.refused += 1
            process.paused_until = env.now + pause
            return False
        yield env.timeout(work.latency_s * self.rng.lognormvariate(-(SPREAD**2) / 2, SPREAD))
        if self.rng.random() >= work.failure_share:
            return True
        seen.failed += 1
        yield env.timeout(self.rng.expovariate(1 / work.backoff_s))
        return False

    def refusal_s(self) -> float | None:
        """Seconds that the endpoint tells a request to wait, until the next minute; None where it lets it in."""
        if self.work.per_minute is None:
            return None
        minute = int(self.env.now // 60)
        if minute != self.minute:
            self.minute, self.used = minute, 0
        if self.used < self.work.per_minute:
            self.used += 1
            return None
        return float((minute + 1) * 60 - self.env.now)

    def losses(self, node: int, every_s: float) -> Steps:
        while True:
            yield self.env.timeout(self.rng.expovariate(1 / every_s))
            self.seen.nodes_lost += 1
            for process in self.processes[node :: self.work.nodes]:
                for thread in process.threads:
                    if thread.is_alive:
                        thread.interrupt()
                process.core = simpy.Resource(self.env)
                self.begin(process, self.work.restart_s)


def play(work: Work, measured: Measured, seed: int = 1) -> Seen:
    """Until the last answer. Scoring is no part of it."""
    return Play(work, measured, seed).to_the_end()


def compare(measured: Measured) -> str:
    """Markdown: what the formula says of asking, and what was played, at a size that is played in seconds."""
    lines = ["| endpoint | requests | formula | played | 429s | failed | nodes lost | asked twice |", f"|{'---|' * 8}"]
    for service in SERVICES:
        work = replace(service, requests=SMALLER, cells=SMALLER)
        work = replace(work, processes=max(work.nodes, processes_for(work, measured)))
        if work.lost_every_h is not None:
            work = replace(work, lost_every_h=work.lost_every_h / MORE_OFTEN)
        expected = 3600 * cost(work, replace(measured, after_s=0)).hours
        seen = play(work, measured)
        lines.append(
            f"| {work.name} | {work.requests:,} | {expected:.0f} s | {seen.seconds:.0f} s | {seen.refused:,} |"
            f" {seen.failed:,} | {seen.nodes_lost} | {seen.lost} |"
        )
    return "\n".join(lines)
