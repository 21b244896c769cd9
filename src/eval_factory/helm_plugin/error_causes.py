"""Finds the causes of an error, and the line that raised an error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path


def raised_at(error: BaseException) -> str:
    """Return the file name and the line that raised the error.

    A message about the error should show these instead of the error's text, which may quote a
    prompt or an answer.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def innermost_cause(error: BaseException) -> BaseException:
    """Return the last error in the chain of explicit causes (`raise ... from`)."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def error_and_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error itself, then the errors that caused it, explicitly or implicitly."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def cause_of_kind(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the first error of the class `kind` among an error and its causes; else None."""
    for cause in error_and_causes(error):
        if isinstance(cause, kind):
            return cause
    return None
