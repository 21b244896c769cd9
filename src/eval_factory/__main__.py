"""The program: the `eval-factory` script, and `python -m eval_factory`."""

from __future__ import annotations

from eval_factory.cli.main import main

if __name__ == "__main__":
    main()
