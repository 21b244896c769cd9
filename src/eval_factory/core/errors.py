"""One exception class per exit code. Whoever raises one of these has a message for the user, not a traceback."""

from __future__ import annotations


class EvalFactoryError(Exception):
    """A failure that eval-factory expects and can explain."""

    exit_code = 70


class NotReportableError(EvalFactoryError):
    """The evaluation ran, but some score cannot be stood behind."""

    exit_code = 1


class ConfigError(EvalFactoryError):
    """The command line or the configuration is wrong; nothing was started."""

    exit_code = 2

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class PrerequisiteError(EvalFactoryError):
    """Something outside is missing: a key, the endpoint, a data set, a package, disk space."""

    exit_code = 3


class EndpointUnreachableError(PrerequisiteError):
    """Nobody answers at an endpoint, or not any more: the same run may go on once it is back."""


class EndpointRefusedError(PrerequisiteError):
    """An endpoint is there and takes no request: the key, the model or the address is wrong."""


class HelmError(EvalFactoryError):
    """helm-run failed."""

    exit_code = 4


class BusyError(EvalFactoryError):
    """Another run holds the output folder."""

    exit_code = 5


class InterruptedRunError(EvalFactoryError):
    """The user stopped the run; what was answered is kept."""

    exit_code = 130


DEFECT_EXIT_CODE = 70
