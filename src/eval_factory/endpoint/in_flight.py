"""Records the requests in flight in a small file next to cache.db.

After a process was killed, the next run reads the file and notes the interrupted requests in the
journal. Each request has a slot of the file from the moment before the request is sent until its
attempt is in the journal. Writing a slot takes one system call, and the slot survives the end of
the process.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.rundir import PRIVATE

SUFFIX = "-sent"  # the file next to cache.db is cache.db-sent
_SLOT_SIZE = 512  # in bytes


@dataclass(frozen=True)
class SentRequest:
    """A request in flight; the fields have the names and meanings of the journal's columns."""

    run_id: str
    key: str
    role: str
    attempt: int
    started: float


class Flight:
    """The slot of a request, which may be sent several times, one after another."""

    def __init__(self, requests: RequestsInFlight, key: str, role: str) -> None:
        self._requests = requests
        self._key = key
        self._role = role
        self._slot: int | None = None

    def sent(self, attempt: int, started: float) -> None:
        """Note that the request is sent now.

        Args:
            attempt: the number of the attempt, from 1.
            started: the time at which the attempt began, in seconds since 1970.
        """
        if self._slot is None:
            self._slot = self._requests.take_slot()
        self._requests.write(self._slot, self._key, self._role, attempt, started)

    def landed(self) -> None:
        """Free the slot, because the attempt is in the journal."""
        if self._slot is not None:
            self._requests.free_slot(self._slot)
            self._slot = None


class RequestsInFlight:
    """The file with this process's requests in flight; thread-safe."""

    def __init__(self, cache_db: Path, run_id: str) -> None:
        """Name the file, which the first request creates."""
        self._path = file_of(cache_db)
        self._run_id = run_id
        self._free = deque[int]()  # the numbers of slots that can be used again
        self._new_slots = itertools.count()  # the numbers of slots that were never used
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def flight(self, key: str, role: str) -> Iterator[Flight]:
        """Yield the flight of a request, and free its slot at the end of the block.

        If an interruption (`BaseException`) ends the block, the slot stays as it is.
        """
        flight = Flight(self, key, role)
        try:
            yield flight
        except Exception:
            flight.landed()
            raise
        flight.landed()

    def take_slot(self) -> int:
        """Return the number of a slot that no request uses."""
        try:
            return self._free.pop()
        except IndexError:
            return next(self._new_slots)

    def free_slot(self, slot: int) -> None:
        """Empty a slot, so that another request can use it."""
        self._put(slot, b"")
        self._free.append(slot)

    def write(self, slot: int, *fields: str | float) -> None:
        """Write a request into a slot; `fields` are the fields of `SentRequest` after `run_id`."""
        self._put(slot, json.dumps([self._run_id, *fields]).encode())

    def _put(self, slot: int, record: bytes) -> None:
        """Write the bytes of a slot as one line, filled up with spaces."""
        if self._descriptor is None:
            # Two threads may both open the file; either descriptor will do.
            with self._lock:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
                self._descriptor = os.open(self._path, flags, PRIVATE)
        # A record that is too long is cut, and `interrupted_requests` leaves it out.
        line = record[: _SLOT_SIZE - 1].ljust(_SLOT_SIZE - 1) + b"\n"
        os.pwrite(self._descriptor, line, slot * _SLOT_SIZE)


def file_of(cache_db: Path) -> Path:
    """Return the file with the requests in flight that belongs to a cache.db."""
    return cache_db.with_name(cache_db.name + SUFFIX)


def interrupted_requests(cache_db: Path) -> list[SentRequest]:
    """Return the requests that an ended process had in flight."""
    try:
        lines = file_of(cache_db).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    interrupted = []
    for line in lines:
        try:
            fields: list[Any] = json.loads(line)
            interrupted.append(SentRequest(*fields))
        except (ValueError, TypeError):  # the slot is free, or was being written
            continue
    return interrupted
