"""Executes the programs in a model's answers in a sandbox, in place of HELM's own functions.

HELM's checks of programs run in a sandbox without API keys (`core/sandbox.py`,
`sandbox_worker.py`), and so do the programs that these checks start.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eval_factory.core import sandbox
from eval_factory.core.sandbox import TIMED_OUT_EXIT_CODE
from eval_factory.helm_plugin.patches import sandbox_worker
from eval_factory.helm_plugin.session import run_record

_START_LIMIT_S = 60.0  # the time limit for the start of the sandbox, before an answer runs in it
CONFINED_BY = ["bubblewrap", "seccomp", "limits of time, memory and file size"]
"""The means that confine a model's program, as the result's provenance lists them."""
APPS_LIMIT_S = 11.0  # HELM's limit for all tests of one answer of APPS, in seconds
ASSEMBLY_LIMIT_S = 30  # the time limit of the compiler, in seconds
MAX_ASSEMBLY = 64_000_000  # the maximum size of the compiler's output, in bytes


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, and delete the folder at the end with everything that an answer wrote."""
    folder = Path(tempfile.mkdtemp(prefix="eval-factory-")).resolve()
    try:
        yield folder
    finally:
        sandbox.delete_folder(folder)


def check_answer(question: Mapping[str, Any], seconds: float) -> Any:
    """Return the result of HELM's check of an answer.

    Args:
        question: the kind of the check, the answer and the tests, for `sandbox_worker.py`.
        seconds: the time limit of the check.

    Returns:
        The result as JSON, or `TIMED_OUT_EXIT_CODE`. None if the answer ended the process; such
        answers are counted.

    Raises:
        PrerequisiteError: the answer is not the cause: the sandbox no longer works.
    """
    with temporary_folder() as folder:
        ended = _run_in_sandbox(
            folder, seconds=seconds, standard_input=json.dumps(question).encode()
        )
    try:
        return json.loads(ended.output)
    except (ValueError, RecursionError):  # The program ended without HELM's result.
        if ended.returncode == TIMED_OUT_EXIT_CODE:
            return TIMED_OUT_EXIT_CODE
    # Count the answer only if the sandbox still works, because otherwise it is not the cause.
    sandbox.require_working("what the model answered cannot be executed any more", _allowed())
    run_record.count_ended()
    return None


def _run_in_sandbox(
    folder: Path,
    argv: Sequence[str] = (),
    *,
    seconds: float,
    standard_input: bytes = b"",
    processes: bool = False,
) -> sandbox.EndedProgram:
    """Run a program in the sandbox to its end.

    Args:
        folder: the working directory, and the only folder to which the program can write.
        argv: the program with its arguments; empty to run HELM's check of an answer.
        seconds: the time limit.
        standard_input: the text that the program reads.
        processes: True if the program may start other programs.

    Raises:
        PrerequisiteError: this machine has no sandbox.
    """
    # Pass on the limit of digits in integers: a scenario of HELM raises the limit for its data.
    digits = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    settings = {
        "path": _import_path(),
        "int_digits": digits,
        "argv": list(argv),
        "seconds": seconds,
    }
    worker = [
        os.path.realpath(sys.executable),
        "-I",  # isolated: without PYTHON* variables and the user's packages
        "-S",  # without the module `site`: `settings["path"]` is the import path
        sandbox_worker.__file__,
        json.dumps(settings),
    ]
    # HELM's check of an answer first imports HELM. The worker measures the answer's own time.
    if not argv:
        seconds += _START_LIMIT_S
    allowed = _allowed(processes=processes)
    return sandbox.run(
        worker,
        folder,
        allowed,
        env=sandbox.environment_without_secrets(folder),
        seconds=seconds,
        standard_input=standard_input,
    )


def _allowed(*, processes: bool = False) -> sandbox.Allowed:
    """Return the permissions of a sandbox, which may read the interpreter and all packages."""
    # The prefix "/" is left out, because it would make all files readable.
    prefixes = {os.path.realpath(sys.base_prefix), sys.base_prefix, sys.prefix} - {"/"}
    libraries = [
        folder
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if folder.startswith("/")
    ]
    return sandbox.Allowed([*sorted(prefixes), *_import_path(), *libraries], processes=processes)


def _import_path() -> list[str]:
    """Return the folders of Python's import path, without the user's home and the folders above.

    The paths are absolute, because the worker has another working directory.
    """
    home = Path.home()
    folders = []
    for entry in sys.path:
        path = Path(entry).absolute()
        is_existing = bool(entry) and path.exists()  # "" is the current folder
        is_home_or_above = path in (home, *home.parents)
        if is_existing and not is_home_or_above:
            folders.append(str(path))
    return folders


def confine_python() -> None:
    """Make HELM check the programs of HumanEval and APPS in the sandbox."""
    from helm.benchmark.metrics import code_metrics, code_metrics_helper

    run_record.note(executed_by=CONFINED_BY)
    code_metrics_helper.check_correctness = check_correctness
    # HELM's metric for APPS starts a process, and shares a list of results with it, which it makes
    # by `multiprocessing.Manager().list()`. In place of the module `multiprocessing`, the metric
    # gets an object with `AppsProcess` and plain lists.
    manager = SimpleNamespace(list=list)
    code_metrics.multiprocessing = SimpleNamespace(Manager=lambda: manager, Process=AppsProcess)


def check_correctness(
    problem: Mapping[str, Any], completion: str, timeout: float, completion_id: int | None = None
) -> dict[str, Any]:
    """Return HELM's result of HumanEval's tests for one completion.

    The tests run in the sandbox. The parameters are those of HELM's function of this name.
    """
    question = {
        "kind": "humaneval",
        "problem": problem,
        "completion": completion,
        "timeout": timeout,
    }
    # With HELM's check, the worker ends itself after `timeout` + 1 seconds. This limit is later.
    outcome = check_answer(question, seconds=timeout + 2)
    if isinstance(outcome, dict) and outcome.keys() >= {"passed", "result"}:
        passed = bool(outcome["passed"])
        result = str(outcome["result"])
    else:
        passed = False
        result = (
            "timed out" if outcome == TIMED_OUT_EXIT_CODE else "the process that executed it ended"
        )
    return {
        "task_id": problem["task_id"],
        "passed": passed,
        "result": result,
        "completion_id": completion_id,
    }


class AppsProcess:
    """A replacement of multiprocessing's Process in HELM's APPSMetric.

    The replacement runs the tests of one answer in the sandbox.
    """

    exitcode = 0  # HELM only logs it.

    def __init__(self, target: object, args: tuple[str, str, float, list[Any]]) -> None:  # noqa: ARG002
        """Store the arguments of HELM's function `target`, which is not called.

        Args:
            target: HELM's function.
            args: the folder with the tests, the answer's program, the time limit of one test in
                seconds, and the list to which the results are appended.
        """
        self._root, self._completion, self._timeout, self._results = args

    def start(self) -> None:
        """Run the tests in the sandbox, and store their results."""
        tests = (Path(self._root) / "input_output.json").read_text(encoding="utf-8")
        question = {
            "kind": "apps",
            "tests": tests,
            "completion": self._completion,
            "timeout": self._timeout,
            "seconds": APPS_LIMIT_S,
        }
        results = check_answer(question, seconds=APPS_LIMIT_S)
        # The answer's program can write any text in place of results, and HELM's metric must not
        # fail on that text.
        if (
            isinstance(results, list)
            and results
            and all(isinstance(result, bool | int) for result in results)
        ):
            self._results.append(results)

    def join(self, timeout: float | None = None) -> None:
        """Do nothing, because `start` has already waited for the end of the tests."""

    def is_alive(self) -> bool:
        """Return False, because `start` has already waited for the end of the tests."""
        return False


def confine_cpp() -> None:
    """Make HELM run the programs of CodeInsights, and the compiler, in the sandbox."""
    from helm.benchmark.metrics import codeinsights_correct_code_metrics as correct

    run_record.note(executed_by=CONFINED_BY)
    # Replace the modules' names `subprocess` and `shutil` by objects with only the functions that
    # HELM's metrics call.
    correct.subprocess = SimpleNamespace(run=run_program, PIPE=subprocess.PIPE)
    correct.shutil = SimpleNamespace(rmtree=lambda folder: sandbox.delete_folder(Path(folder)))
    # This metric needs packages that are seldom installed. Without them it runs no programs.
    with suppress(ImportError):
        from helm.benchmark.metrics import codeinsights_code_evaluation_metrics as evaluation

        evaluation.subprocess = SimpleNamespace(
            run=run_compiler, CalledProcessError=subprocess.CalledProcessError
        )


def run_program(argv: Sequence[str], *, input: str = "", **_: Any) -> SimpleNamespace:  # noqa: A002
    """Run a command of HELM in the sandbox, in place of `subprocess.run`.

    The command is `timeout SECONDS g++ ... FILE -o PROGRAM` or `timeout SECONDS PROGRAM`. The
    command can only write to the folder of PROGRAM.
    """
    seconds, *program = argv[1:]  # `argv[0]` is `timeout`: the sandbox has its own time limit.
    folder = Path(program[-1]).parent.resolve()  # the last argument is PROGRAM in both forms
    is_compiler = len(program) > 1  # The compiler starts other programs.
    ended = _run_in_sandbox(
        folder,
        program,
        seconds=float(seconds),
        standard_input=input.encode(),
        processes=is_compiler,
    )
    text = ended.output.decode().replace("\r\n", "\n").replace("\r", "\n")
    return SimpleNamespace(returncode=ended.returncode, stdout=text, stderr="")


def run_compiler(argv: Sequence[str], **_: Any) -> None:
    """Run `g++ ... -o ASSEMBLY SOURCE` in the sandbox, in place of `subprocess.run`.

    Both files are in the folder for temporary files.

    Raises:
        CalledProcessError: the compiler failed, because the source is not valid C++.
    """
    assembly = Path(argv[-2])
    source = Path(argv[-1])
    with temporary_folder() as folder:
        shutil.copyfile(source, folder / source.name)
        output = folder / assembly.name
        program = [*argv[:-2], str(output), str(folder / source.name)]
        ended = _run_in_sandbox(folder, program, seconds=ASSEMBLY_LIMIT_S, processes=True)
        if ended.returncode != 0:
            raise subprocess.CalledProcessError(returncode=1, cmd=list(argv), stderr="")
        # A symbolic link in place of the output could name a file outside of the sandbox, so this
        # function opens no link.
        descriptor = os.open(output, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            assembly.write_bytes(file.read(MAX_ASSEMBLY))
