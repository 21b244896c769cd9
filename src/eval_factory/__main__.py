"""The entry point of the script `eval-factory` and of `python -m eval_factory`."""

from __future__ import annotations

from eval_factory.core.this_process import collect_garbage_rarely


def main() -> None:
    """Run the command line.

    Before the command line is imported, garbage collection is made rare: imported modules stay in
    memory until the end, so a collection during the imports would find nothing and cost 5 ms.
    """
    collect_garbage_rarely()
    from eval_factory.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
