"""Defines the exceptions with a message for the user, and helps to word such messages.

Each class has the exit code with which the command ends. The user sees the message without a
traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class EvalFactoryError(Exception):
    """The base class of all failures that eval-factory expects and can explain."""

    exit_code = 70


class NotReportableError(EvalFactoryError):
    """The evaluation ended, but a score is not reportable."""

    exit_code = 1


class ConfigError(EvalFactoryError):
    """The command line or the configuration is wrong; no run was started."""

    exit_code = 2

    def __init__(self, problems: list[str] | str) -> None:
        """Take one problem or several; the message has one line for each problem."""
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class PrerequisiteError(EvalFactoryError):
    """A prerequisite is missing: a key, the endpoint, a data set, a package, disk space."""

    exit_code = 3


class EndpointUnreachableError(PrerequisiteError):
    """An endpoint does not answer, or has stopped answering; the run can be resumed later."""


class EndpointRefusedError(PrerequisiteError):
    """An endpoint answers but rejects all requests: the key, the model or the URL is wrong."""


class HelmError(EvalFactoryError):
    """helm-run failed."""

    exit_code = 4


class BusyError(EvalFactoryError):
    """Another process has locked the output folder."""

    exit_code = 5


class InterruptedRunError(EvalFactoryError):
    """The user stopped the run; the answers so far are stored."""

    exit_code = 130


DEFECT_EXIT_CODE = 70  # the exit code after an exception that is a defect of eval-factory


def did_you_mean(name: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return `, did you mean 'x'?`, or "" if no known name is similar.

    A name with the same letters in another order is preferred.

    Args:
        name: the name that is not known.
        known: the known names.
        cutoff: the smallest similarity, from 0 to 1 (see `difflib.get_close_matches`).
    """
    import difflib  # only here: most commands do not need it

    known_by_lower_case = {text.lower(): text for text in known}
    similar = difflib.get_close_matches(name.lower(), known_by_lower_case, n=5, cutoff=cutoff)
    if not similar:
        return ""
    letters = sorted(name.lower())
    # The first similar name with the same letters; else the most similar name.
    best = next((text for text in similar if sorted(text) == letters), similar[0])
    return f", did you mean {known_by_lower_case[best]!r}?"


def unmet_expectation(detail: Any) -> str:
    """Return the requirement that a value does not meet, from one of pydantic's error records."""
    kind = detail["type"]
    return {
        "literal_error": f"must be {detail.get('ctx', {}).get('expected')}",
        "model_type": "must be a mapping of keys to values",
        "list_type": "must be a list",
        "string_type": "must be text (put it in quotes)",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "bool_type": "must be true or false",
    }.get(kind) or str(detail["msg"]).replace("Input should be", "must be")
