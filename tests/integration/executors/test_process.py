from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import MAX_LOG_LINE
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.executors.process import ProcessSpec, git_hash, run_logged
from program_runs import is_running, wait_until

KEY = "a-known-key-value-1"


def run(code: str, log: Path, on_tick: object = None) -> tuple[int, tuple[str, ...]]:
    tick = on_tick if callable(on_tick) else lambda: None
    with RunDir(log.parent).locked() as lock:
        argv = [sys.executable, "-c", code]
        spec = ProcessSpec(
            argv, {"K": KEY, "PATH": ""}, RunDir(log.parent), lock, "run", Redactor([KEY])
        )
        finished = run_logged(spec, log=log, on_tick=tick)
    return finished.returncode, finished.tail


def test_output_is_redacted_and_private(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    code = "import os, sys; print(os.environ['K']); print('err', file=sys.stderr); sys.exit(7)"
    returncode, tail = run(code, log)
    assert returncode == 7
    assert KEY not in log.read_text()
    assert REDACTED in log.read_text()
    assert sorted(tail) == sorted([REDACTED, "err"])
    assert log.stat().st_mode & 0o777 == 0o600


def test_there_is_no_standard_input(tmp_path: Path) -> None:
    assert run("import sys; sys.exit(len(sys.stdin.read()))", tmp_path / "log")[0] == 0


def test_an_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    """Also a grandchild, and one that ignores SIGTERM."""
    pids = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(60)\n"
    )

    def interrupt_when_started() -> None:
        if pids.exists() and pids.read_text().endswith(" "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(code, tmp_path / "log", interrupt_when_started)
    wait_until(lambda: not any(map(is_running, map(int, pids.read_text().split()))), 5)


def test_a_missing_program(tmp_path: Path) -> None:
    with RunDir(tmp_path).locked() as lock:
        spec = ProcessSpec(["/no/such/program"], {}, RunDir(tmp_path), lock, "run", Redactor())
        with pytest.raises(PrerequisiteError, match="is missing"):
            run_logged(spec, log=tmp_path / "log", on_tick=lambda: None)


def test_the_folder_is_held_for_the_program_and_free_after_it(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    held: list[object] = []

    def look() -> None:
        held.append(json.loads(folder.lock_holder.read_text()).get("program"))

    code = (
        "import os, time\n"
        f"place = os.stat({str(folder.lock_file)!r})\n"
        "time.sleep(0.5)\n"
        "numbers = [number for number in map(int, os.listdir('/dev/fd')) if os.path.exists(f'/dev/fd/{number}')]\n"
        "opened = [os.fstat(number) for number in numbers]\n"
        "print(os.getpid(), any(os.path.samestat(one, place) for one in opened))\n"
    )
    _, tail = run(code, tmp_path / "log", look)
    assert tail == (f"{held[0]} True",)
    assert not folder.lock_holder.exists()
    with folder.locked():
        assert json.loads(folder.lock_holder.read_text())["program"] is None


def test_output_is_printable_and_its_lines_have_an_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = r"import sys; sys.stdout.buffer.write(b'  a\x1b[2J\xc2\x9b\xe2\x80\xae\xe2\x80\xa8b\xff\n' + b'x' * 20_000 + b'\n')"
    _, tail = run(code, log)
    expected = ("  a\\x1b[2J\\x9b\\u202e\\u2028b\N{REPLACEMENT CHARACTER}", "x" * MAX_LOG_LINE)
    assert tail == expected
    assert log.read_text("utf-8") == "\n".join(expected) + "\n"


def test_git_gets_no_key_and_no_other_repository(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text(
        f"#!{sys.executable}\nimport os; print(sorted(set(os.environ) - {{'LC_CTYPE'}}))\n"
    )
    git.chmod(0o755)
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "GIT_DIR"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TMPDIR", "XDG_CONFIG_HOME", "SYSTEMROOT"):
        monkeypatch.delenv(name, raising=False)
    assert git_hash(root) == "['HOME', 'PATH']"


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: a checkout of somebody else's is made by chown"
)
def test_a_checkout_of_somebody_else_has_its_commit(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    mine = git_hash(tmp_path)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 65534, 65534)
    assert mine == git_hash(tmp_path)
    assert len(mine or "") == 40
