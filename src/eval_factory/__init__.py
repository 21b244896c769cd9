"""Evaluates language models on medical benchmarks with upstream HELM.

Other programs and notebooks import the public functions from here:

    from eval_factory import evaluate, run_suite, compare, load_result, list_tasks

`docs/python.md` describes each function. The module `api.py`, which contains the functions, is
imported when one of its names is first used, so that `import eval_factory` alone is fast.
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
        """Return the object with this name from `api.py`, and import `api.py` if necessary.

        Python calls this function for names that the module does not have yet (PEP 562).

        Raises:
            AttributeError: `__all__` does not list the name.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.api"), name)
        globals()[name] = value  # the next use of the name does not call this function
        return value


def __dir__() -> list[str]:
    """Return the names in this module, and the public names that are not imported yet."""
    return sorted({*globals(), *__all__})
