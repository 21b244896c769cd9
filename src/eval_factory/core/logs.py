"""The program's own log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eval_factory.core.foreign_text import own_lines
from eval_factory.core.redaction import Redactor
from eval_factory.core.rundir import PRIVATE, RunDir


@contextmanager
def open_log(
    rundir: RunDir, redactor: Redactor, *, debug: bool, beginning: Iterable[str] = ()
) -> Iterator[logging.Logger]:
    """logs/eval-factory.log: every line redacted, only the owner may read it.

    The logger is of this run alone, not one of a name that all share: runs of several threads each write into their own
    folder.
    """
    logger = logging.Logger("eval_factory.run", logging.DEBUG if debug else logging.INFO)
    rundir.program_log.touch(mode=PRIVATE)
    file = logging.FileHandler(rundir.program_log, encoding="utf-8")
    handlers: list[logging.Handler] = [file, *([logging.StreamHandler()] if debug else [])]
    for handler in handlers:
        handler.setFormatter(_RedactingFormatter(redactor))
        logger.addHandler(handler)
    try:
        for line in beginning:
            logger.info(line)
        yield logger
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._redactor = redactor

    """With lines after the first indented: none can be taken for one of its own."""

    def format(self, record: logging.LogRecord) -> str:
        first, *others = own_lines(self._redactor.text(super().format(record))).split("\n")
        return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in others)])
