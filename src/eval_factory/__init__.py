"""eval-factory measures how good language models are at medical work. It runs upstream HELM.

For other programs and notebooks:

    from eval_factory import evaluate, run_suite, compare, load_result, list_tasks

`docs/python.md` shows an example of each function. A name is imported when it is first used, so
that `import eval_factory` alone is fast.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
"""The same as `typing.TYPE_CHECKING`: type checkers recognise the name. Importing `typing` itself
would be slow.
"""

if TYPE_CHECKING:
    from eval_factory.api import (
        BusyError,
        Compared,
        ConfigError,
        DryRun,
        EvalFactoryError,
        Evaluated,
        HelmError,
        InterruptedRunError,
        NotReportableError,
        Options,
        PrerequisiteError,
        StoredResult,
        SuiteOptions,
        SuiteReport,
        TaskInfo,
        compare,
        dry_run,
        evaluate,
        gate,
        list_tasks,
        load_result,
        run_suite,
        verify,
    )

__all__ = [
    "BusyError",
    "Compared",
    "ConfigError",
    "DryRun",
    "EvalFactoryError",
    "Evaluated",
    "HelmError",
    "InterruptedRunError",
    "NotReportableError",
    "Options",
    "PrerequisiteError",
    "StoredResult",
    "SuiteOptions",
    "SuiteReport",
    "TaskInfo",
    "__version__",
    "compare",
    "dry_run",
    "evaluate",
    "gate",
    "list_tasks",
    "load_result",
    "run_suite",
    "verify",
]


if not TYPE_CHECKING:  # if a type checker saw __getattr__, it would accept every name

    def __getattr__(name: str) -> object:
        """Return a name of `api.py`, which is imported at the first use (PEP 562).

        Raises:
            AttributeError: `__all__` does not list the name.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.api"), name)
        return value


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
