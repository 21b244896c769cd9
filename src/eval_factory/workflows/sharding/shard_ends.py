"""What the exit code of a shard's process says, and whether the shard is begun again. Pure."""

from __future__ import annotations

from eval_factory.core.errors import InterruptedRunError

SIGNALLED = 128
"""What a shard's process adds to the signal that ended its helm-run."""
MOST_STARTS = 3
"""Of one shard in one invocation."""


def signal_of(code: int) -> int | None:
    """The signal that ended the process or its helm-run; None where it ended by itself."""
    if code < 0:
        return -code
    return code - SIGNALLED if code > SIGNALLED and code != InterruptedRunError.exit_code else None


def is_begun_again(code: int, starts: int, *, said_why: bool) -> bool:
    """Whether another start may help: it was killed, has not told why it ended, and was not begun too often.

    Args:
        starts: how often it was begun, this one among them.
        said_why: an event of it says why it did not come to its end.
    """
    was_killed = signal_of(code) is not None or code == InterruptedRunError.exit_code
    return was_killed and not said_why and starts < MOST_STARTS


def how_it_ended(code: int, starts: int = 1) -> str:
    """For people."""
    signal = signal_of(code)
    how = f"killed by signal {signal}" if signal is not None else f"exit code {code}"
    return how if starts < 2 else f"begun {starts} times, {how}"
