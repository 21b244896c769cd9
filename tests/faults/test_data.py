"""Commands that write a data bundle, killed: the next command finishes what was started, or nothing of it is there."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from program_runs import program_environment
from programs import EVAL_FACTORY, ran

FILES = 500
TIMEOUT_S = 60


def argv(*arguments: str) -> list[str]:
    return [*EVAL_FACTORY, "data", *arguments]


def folder_to_import(folder: Path, text: str) -> Path:
    """Files of which every one has other content with another text."""
    lines = []
    for number in range(FILES):
        path = folder / "scenarios" / f"s{number % 30}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {number}")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def kill_while_it_commits(
    command: list[str], root: Path, number: signal.Signals, delay_s: float
) -> bool:
    """Send a signal so long after the commit has started. False: the command was done before."""
    begun = root / ".commit"
    with subprocess.Popen(
        command, env=program_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not begun.exists():
            time.sleep(0.0005)
        time.sleep(delay_s)
        if process.poll() is not None:
            return False
        process.send_signal(number)
        process.wait(TIMEOUT_S)
    return process.returncode != 0


@pytest.mark.slow_fault
def test_killed_at_twenty_moments_of_a_commit_a_bundle_is_one_or_the_other(tmp_path: Path) -> None:
    random = Random(20261122)  # noqa: S311
    texts = {name: folder_to_import(tmp_path / name, name) for name in ("old", "new")}
    assert ran(argv("import", str(texts["old"]), "--to", str(tmp_path / "whole"))).returncode == 0
    archive = tmp_path / "old.tar.gz"
    assert ran(argv("pack", str(tmp_path / "whole"), str(archive))).returncode == 0
    kills = 0
    halves = 0
    for turn in range(100):
        root = tmp_path / f"b{turn}"
        kind = ("first import", "over a bundle", "unpack")[turn % 3]
        if kind == "over a bundle":
            shutil.copytree(tmp_path / "whole", root)
        arguments = ["import", str(texts["new"]), "--to", str(root)]
        if kind == "unpack":
            arguments = ["unpack", str(archive), str(root)]
        number = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        if not kill_while_it_commits(argv(*arguments), root, number, random.uniform(0.0, 0.02)):
            continue
        kills += 1
        halves += (root / ".commit" / "manifest.json").exists()
        if turn % 2:
            again = ran(argv(*arguments))
            assert again.returncode == 0 or "already exists" in again.stderr, again.stderr
        verified = ran(argv("verify", str(root)))
        assert verified.returncode == 0, (kind, number, verified.stdout[:500], verified.stderr)
        texts_there = {path.read_text().split()[0] for path in root.rglob("*.txt")}
        assert texts_there == {"old" if kind == "unpack" else "new"}, kind
        assert sum(1 for _ in root.rglob("*.txt")) == FILES
        shutil.rmtree(root)
        if kills == 20:
            break
    assert kills == 20
    assert halves > 0  # some of them in the middle


def test_killed_before_the_commit_nothing_of_it_counts(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given", "new")
    root = tmp_path / "b"
    with subprocess.Popen(
        argv("import", str(given), "--to", str(root)), env=program_environment()
    ) as process:
        while process.poll() is None and not list(root.glob(".staging-*/files/scenarios")):
            time.sleep(0.0005)
        process.kill()
    assert not (root / "manifest.json").exists()
    assert not (root / "scenarios").exists()
    assert ran(argv("import", str(given), "--to", str(root))).returncode == 0
    assert ran(argv("verify", str(root))).returncode == 0
    assert {path.name for path in root.iterdir()} == {"manifest.json", "scenarios", ".lock"}
