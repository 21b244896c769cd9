"""Asks for many large answers at once, in a process of its own: run by test_wire.py.

python tests/support/large_answers.py loop|thread URL

Prints the most memory that it ever had, before and after, in MiB, and what came of the questions.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from eval_factory.endpoint.replies import RequestFailed
from wire_endpoint import Asker

AT_ONCE = 12


def most_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


class Asking(Asker):
    granted: Mapping[str, int] = {}

    def ask(self, number: int) -> str:
        try:
            return super().ask(number)
        except RequestFailed as failed:
            return str(failed)


def main(way: str, url: str) -> None:
    asker = Asking(url, AT_ONCE, max_retries=0, request_timeout=120.0)
    before = most_memory()
    came = asker.ask_all(list(range(1, AT_ONCE + 1)), way)
    print(
        json.dumps(
            {"before": before, "after": most_memory(), "came": Counter(came), "then": asker.ask(0)}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
