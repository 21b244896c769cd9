"""The entry point of the script `eval-factory` and of `python -m eval_factory`."""

from __future__ import annotations

from eval_factory.core.this_process import collect_rarely


def main() -> None:
    """Run the command line.

    Imported modules stay in memory until the end, so garbage collection during the imports would
    find nothing and cost 5 ms. It is therefore made rare before the command line is imported.
    """
    collect_rarely()
    from eval_factory.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
