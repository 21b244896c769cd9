"""The program: the `eval-factory` script, and `python -m eval_factory`."""

from __future__ import annotations

from eval_factory.core.this_process import collect_rarely


def main() -> None:
    """Entry point. What is imported from here on stays: looking for garbage in it finds none."""
    collect_rarely()
    from eval_factory.cli.main import (
        main as command_line,
    )  # here, as two dozen looks at what it imports take 5 ms

    command_line()


if __name__ == "__main__":
    main()
