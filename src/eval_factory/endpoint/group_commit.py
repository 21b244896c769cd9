"""Many threads write to one SQLite file: whoever commits takes along all that is waiting."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from eval_factory.endpoint import bridge

Statement = tuple[str, tuple[Any, ...]]
"""SQL, and what its placeholders stand for."""


@dataclass
class _Job:
    statements: Sequence[Statement]
    written: bool = False
    error: Exception | None = None


class GroupCommit:
    """Writes over one connection; safe among threads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting: deque[_Job] = deque()
        self._writing = threading.Lock()

    def commit(self, statements: Sequence[Statement]) -> None:
        """Returns when they are committed, together with others'.

        Those whose statements are written meanwhile are woken one after the other: woken together they would all wait
        for their turn to run.

        Raises:
            Exception: what SQLite says of these statements, where they cannot be written.
        """
        job = _Job(statements)
        self._waiting.append(job)
        bridge.give_way()
        with self._writing:
            if not job.written and job.error is None:
                self._write_all_that_waits()
        if job.error is not None:
            raise job.error
        if not job.written:
            raise sqlite3.OperationalError("whoever was to write it was interrupted")

    def close(self) -> None:
        with self._writing:
            self._connection.close()

    def _write_all_that_waits(self) -> None:
        """In one transaction; where that fails, each job in its own, so that one costs no other its answer."""
        jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._write(jobs)
        except Exception as together:
            for job in jobs:
                job.error = together if _is_locked(together) else self._write_alone(job)

    def _write_alone(self, job: _Job) -> Exception | None:
        """Why it could not be written."""
        try:
            self._write([job])
        except Exception as error:
            return error
        return None

    def _write(self, jobs: list[_Job]) -> None:
        try:
            with self._connection:
                for statement, values in chain.from_iterable(job.statements for job in jobs):
                    self._connection.execute(statement, values)
        except BaseException:
            self._connection.rollback()  # where the commit failed, Python 3.10 leaves the transaction open
            raise
        for job in jobs:
            job.written = True


def _is_locked(error: Exception) -> bool:
    """Whether another program holds the file: each try waits for long."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
