"""`python -m eval_factory` is the same program as the `eval-factory` script."""

from eval_factory.cli.main import main

if __name__ == "__main__":
    main()
