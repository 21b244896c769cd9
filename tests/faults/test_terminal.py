"""The terminal goes away while a run goes on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from eval_factory.core.rundir import RunDir
from faults.test_kills import INSTANCES, Endpoint, check_that_nothing_is_left
from program_runs import program_environment
from programs import run_eval

TIMEOUT_S = 240


def started(
    folder: Path, url: str, terminal: int, before: Any = None, **env: str
) -> subprocess.Popen[bytes]:
    argv = run_eval(folder, url, "--api_key_name", "TEST_MODEL_KEY")
    environment = program_environment(
        TEST_MODEL_KEY="sk-attempt-0001-0123456789abcdef", TERM="xterm", **env
    )
    return subprocess.Popen(
        argv, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=before
    )


def read(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            shown.append(os.read(terminal, 4096))
        except OSError:
            return


def test_a_run_told_to_stay_writes_its_report_though_nobody_looks(tmp_path: Path) -> None:
    """`nohup`, or a job that the shell has let go."""
    outer, inner = pty.openpty()
    with Endpoint() as endpoint:
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
        with started(tmp_path / "out", endpoint.url, inner, ignore) as process:
            os.close(inner)
            while len(endpoint.arrivals) < INSTANCES // 4:
                assert process.poll() is None
                time.sleep(0.01)
            os.close(outer)  # writing gives EIO from now on
            process.send_signal(signal.SIGHUP)
            assert process.wait(TIMEOUT_S) == 0
    for file in RunDir(tmp_path / "out").result_files:
        assert file.is_file(), file
    assert len(endpoint.arrivals) == INSTANCES
    check_that_nothing_is_left(RunDir(tmp_path / "out"))


def test_a_run_whose_terminal_goes_is_interrupted_and_keeps_its_answers(tmp_path: Path) -> None:
    with Endpoint() as endpoint:
        outer, inner = pty.openpty()
        with started(tmp_path / "out", endpoint.url, inner) as process:
            os.close(inner)
            while len(endpoint.arrivals) < INSTANCES // 4:
                assert process.poll() is None
                time.sleep(0.01)
            os.close(outer)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGHUP)  # the shell's, after the kernel's
            assert process.wait(TIMEOUT_S) == 130
        check_that_nothing_is_left(RunDir(tmp_path / "out"))
        asked = len(endpoint.arrivals)
        assert asked < INSTANCES
        outer, inner = pty.openpty()
        shown: list[bytes] = []
        threading.Thread(target=read, args=(outer, shown), daemon=True).start()
        with started(tmp_path / "out", endpoint.url, inner) as process:
            os.close(inner)
            assert process.wait(TIMEOUT_S) == 0
        assert len(endpoint.arrivals) <= INSTANCES + 4
    text = (tmp_path / "out" / "logs" / "eval-factory.log").read_text()
    assert "interrupted" in text
    assert b"exact_match" in b"".join(shown)


LATE = """
import importlib.util, os, signal

if importlib.util.find_spec("eval_factory"):
    from eval_factory.report import write

    whole = write.write_reports

    def hung_up(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGHUP)
        return whole(*arguments, **settings)

    write.write_reports = hung_up
"""


def test_a_report_that_is_begun_is_written(tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(LATE)
    outer, inner = pty.openpty()
    with Endpoint() as endpoint:
        shown: list[bytes] = []
        threading.Thread(target=read, args=(outer, shown), daemon=True).start()
        with started(
            tmp_path / "out", endpoint.url, inner, PYTHONPATH=str(tmp_path / "late")
        ) as process:
            os.close(inner)
            assert process.wait(TIMEOUT_S) == 0, b"".join(shown)
    assert (tmp_path / "out" / "evaluation_config.yaml").is_file()
