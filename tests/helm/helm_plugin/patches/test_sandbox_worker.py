"""HELM's checks of what a model wrote, each in a sandbox of its own; what the sandbox keeps shut:
tests/integration/core/test_sandbox.py."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core import sandbox
from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.patches import executed_programs, sandbox_worker
from eval_factory.helm_plugin.patches.executed_programs import (
    _run_in_sandbox,
    check_answer,
    temporary_folder,
)
from facts import naming

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="needs bubblewrap (bwrap)"
)

CHECK = "def check(f):\n    assert f(1, 2) == 3\n"
PROBLEM = {"task_id": "t/0", "prompt": "def add(a, b):\n", "test": CHECK, "entry_point": "add"}


def checked(completion: str) -> Any:
    return check_answer(
        {"kind": "humaneval", "problem": PROBLEM, "completion": completion, "timeout": 1.0}, 3
    )


@pytest.fixture(autouse=True)
def _record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.run_record, "entries", {})


@needs_bubblewrap
@pytest.mark.parametrize(
    ("completion", "result"),
    [
        ("    return a + b", "passed"),
        ("    return a - b", "failed: "),
        ("while True:\n        pass", "timed out"),
        (
            "    raise ValueError('x' * 10_000)",
            "failed: " + "x" * (sandbox_worker.MAX_REASON - len("failed: ")),
        ),
        ("    raise SystemExit", "failed: "),
    ],
)
def test_humaneval(completion: str, result: str) -> None:
    assert checked(completion) == {
        "task_id": "t/0",
        "passed": result == "passed",
        "result": result,
        "completion_id": None,
    }
    assert session.run_record.entries == {}


@needs_bubblewrap
@pytest.mark.parametrize(
    "completion",
    [
        "while True:\n        try:\n            while True:\n                pass\n        except BaseException:\n            pass",
        "import re\n    re.match(r'(a+)+$', 'a' * 60 + 'b')",
    ],
)
def test_what_cannot_be_interrupted_is_ended(completion: str) -> None:
    """By the clock; inside one call of C, by the processor's."""
    found = checked(completion)
    assert found in (sandbox.TIMED_OUT_EXIT_CODE, None) or (found["result"], found["passed"]) == (
        "timed out",
        False,
    )


@needs_bubblewrap
def test_an_answer_that_ends_its_process_is_counted() -> None:
    assert checked("import os\n    os._exit(0)") is None
    assert session.run_record.entries == {"ended": 1}


def test_where_nothing_can_be_executed_any_more_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: sandbox.EndedProgram(1, b""))
    with pytest.raises(PrerequisiteError, match=naming("cannot be executed")):
        check_answer({"kind": "apps"}, 1)
    assert session.run_record.entries == {}


@needs_bubblewrap
def test_limits(tmp_path: Path) -> None:
    """Of memory, of a file's size and of open files; the program is found where the system has it."""

    def found(program: str) -> str:
        argv = [sys.executable, "-c", program]
        return _run_in_sandbox(tmp_path, argv, seconds=20, processes=False).output.decode().strip()

    write = "file = open('x', 'wb')\nfor _ in range({}):\n    file.write(bytes(1_000_000))\nfile.flush()"
    for program, within, beyond in (
        ("held = bytearray({})", 100_000_000, sandbox_worker.MEMORY),
        (write, 10, sandbox_worker.FILE_SIZE // 1_000_000 + 1),
        ("held = [open('/dev/null') for _ in range({})]", 100, sandbox_worker.OPEN_FILES),
    ):
        assert found(program.format(within) + "\nprint('done')") == "done"
        assert found(program.format(beyond) + "\nprint('done')") == ""


@needs_bubblewrap
def test_a_program_its_input_and_its_end(tmp_path: Path) -> None:
    def run(*argv: str, seconds: float = 20.0, given: bytes = b"") -> Any:
        ended = _run_in_sandbox(
            tmp_path, argv, seconds=seconds, standard_input=given, processes=False
        )
        return ended.returncode, ended.output

    assert run("cat", given=b"text") == (0, b"text")
    assert run("sh", "-c", "exit 3") == (3, b"")
    assert run("sleep", "30", seconds=0.5)[0] == sandbox.TIMED_OUT_EXIT_CODE
    assert run("yes")[0] != 0  # what it writes is a file with a limit
    assert b"KEY" not in run("env")[1]
    assert run("no-such-program")[0] == 1


def test_a_program_that_nobody_waits_for_any_more_ends_by_itself() -> None:
    """It uses no time of the processor, so that limit does not reach it."""
    settings = json.dumps({"argv": ["sleep", "60"], "seconds": 0})
    argv = [sys.executable, sandbox_worker.__file__, settings]
    assert subprocess.run(argv, timeout=40, check=False).returncode == -signal.SIGALRM


def test_a_home_is_not_readable_because_it_is_on_the_import_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path.home()), str(Path.home().parent), ""])
    path = executed_programs._import_path()
    assert {str(Path.home()), str(Path.home().parent), "/", ""}.isdisjoint(path)
    assert str(Path(sandbox_worker.__file__).parents[3]) in path


def test_the_folder_is_thrown_away() -> None:
    with temporary_folder() as folder:
        (folder / "file").touch()
    assert not folder.exists()


def test_a_folder_of_folders_is_deleted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with temporary_folder() as folder:
        os.chdir(folder)
        for _ in range(3000):
            Path("d").mkdir()
            os.chdir("d")
        os.chdir(tmp_path)
    assert not folder.exists()
