"""A suite on endpoints of this test: what fails stops nobody else, and what disturbs it changes no number."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.suite import Suite, build_suite
from eval_factory.core.errors import ConfigError, InterruptedRunError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.runs import RUN_JSON, ExecutorRun
from eval_factory.workflows.suite.local_suite import CELL_PROCESS
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions, SuiteReport
from facts import naming, says
from fault_endpoint import FOR_EVER, Fault, FaultEndpoint
from program_runs import (
    TIMEOUT_S,
    is_running,
    program_environment,
    varied_answer,
    wait_until,
)

INSTANCES = 20
ENV = program_environment(OPENAI_API_KEY="sk-canary-5f3a9c1e7b2d4860aa")
DRIVER = """
import os, sys
from pathlib import Path
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.this_process import interrupt_on_signals
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions
interrupt_on_signals()
try:
    suite = build_suite(Path(sys.argv[1]), env=os.environ)
    sys.exit(run_suite(suite, SuiteOptions(), env=os.environ, screen=SuiteObserver()).exit_code)
except EvalFactoryError as error:
    sys.exit(error.exit_code)
"""


@dataclass(frozen=True)
class Endpoints:
    """One that answers, and one that refuses the key."""

    good: FaultEndpoint
    refusing: FaultEndpoint

    def suite_file(self, folder: Path) -> Path:
        urls = {"refused": self.refusing.url, "good": self.good.url}
        same = {"model_id": "m", "type": "chat"}
        targets = [
            {"name": name, "api_endpoint": {"url": url, **same}} for name, url in urls.items()
        ]
        suite = {
            "output_dir": str(folder / "out"),
            "evaluations": ["sample_medical_qa"],
            "targets": targets,
            "params": {"limit_samples": INSTANCES},
        }
        file = folder / "suite.yml"
        file.write_text(yaml.safe_dump({"suite": suite}))
        return file


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    with FaultEndpoint([], "") as good, FaultEndpoint([Fault(401, FOR_EVER)], "") as refusing:
        good.good = varied_answer
        good.delay_s = 0.1
        refusing.faulty_probe = True
        yield Endpoints(good, refusing)


def events_of(folder: SuiteDir) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.events.read_text("utf-8").splitlines()]


def told(folder: SuiteDir, *kinds: str) -> list[tuple[Any, ...]]:
    """Of each such event what it is about."""
    fields = ("event", "target", "group", "attempt", "exit_code", "status", "collected")
    return [
        tuple(event[name] for name in fields if name in event)
        for event in events_of(folder)
        if event["event"] in kinds
    ]


@dataclass(frozen=True)
class Undisturbed:
    suite: Suite
    report: SuiteReport
    again: SuiteReport
    asked: int


@pytest.fixture(scope="module")
def undisturbed(endpoints: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    suite = build_suite(endpoints.suite_file(tmp_path_factory.mktemp("undisturbed")), env=ENV)
    report = run_suite(suite, SuiteOptions(), env=ENV, screen=SuiteObserver())
    asked = sum(endpoints.good.seen.values())
    endpoints.good.seen.clear()
    again = run_suite(suite, SuiteOptions(), env=ENV, screen=SuiteObserver())
    assert not endpoints.good.seen, "what is finished is asked again"
    return Undisturbed(suite, report, again, asked)


def test_a_cell_that_fails_stops_nobody_else(undisturbed: Undisturbed) -> None:
    report = undisturbed.report
    assert (report.exit_code, report.status) == (3, "partial")
    found = {cell.name: (cell.status, cell.exit_code, cell.attempts) for cell in report.cells}
    assert found == {
        "refused/sample_medical_qa": ("failed", 3, 0),
        "good/sample_medical_qa": ("complete", 0, 1),
    }
    assert undisturbed.asked == INSTANCES
    assert "Authentication error" in str(report.cells[0].reason)
    says(report.summary, "2 cells", "1 complete", "1 failed")
    says(report.summary, "same command continues")
    table = yaml.safe_load(report.folder.results_yaml.read_text("utf-8"))
    statuses = {cell["target"]: cell["status"] for cell in table["cells"]}
    assert statuses == {"good": "complete", "refused": "failed"}


def test_a_suite_that_cannot_be_begun_leaves_nothing(endpoints: Endpoints, tmp_path: Path) -> None:
    file = endpoints.suite_file(tmp_path)
    suite = build_suite(file, overrides=("suite.evaluations=[ehrshot]",), env=ENV)
    with pytest.raises(ConfigError, match="data_path: is missing"):
        run_suite(suite, SuiteOptions(), env=ENV, screen=SuiteObserver())
    suite = build_suite(file, env=ENV)
    with pytest.raises(ConfigError, match="there is no folder"):
        run_suite(
            suite, SuiteOptions(reuse=(tmp_path / "absent",)), env=ENV, screen=SuiteObserver()
        )
    assert not suite.folder.root.exists()


@pytest.mark.parametrize("missing", ["log", "record"])
def test_what_a_cell_cannot_record_is_a_defect_and_shows_no_key(
    missing: str, tmp_path: Path
) -> None:
    """Python's own exit code of it, 1, is that of a limit of cost, and nobody would try the cell again."""
    files: Any = {"log": str(tmp_path / "log"), "record": str(tmp_path / "record")}
    (tmp_path / "file").touch()
    files[missing] = str(tmp_path / "file" / ENV["OPENAI_API_KEY"])
    said = RUN_JSON.dump_json(ExecutorRun("a/b", str(tmp_path / "none.yml"), **files)) + b"\n"
    argv = [*CELL_PROCESS, str(os.getpid())]
    done = subprocess.run(
        argv, input=said, env=ENV, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 70
    shown = done.stderr.decode() + "".join(file.read_text() for file in tmp_path.glob("log"))
    assert "Traceback" in shown
    assert ENV["OPENAI_API_KEY"] not in shown


def test_the_same_command_only_collects_what_is_finished(undisturbed: Undisturbed) -> None:
    good = next(cell for cell in undisturbed.again.cells if cell.target == "good")
    assert (good.status, good.collected, good.attempts) == ("complete", True, 0)
    assert "(1 finished before)" in undisturbed.again.summary
    first = [("suite_started",), ("suite_ended", 3, "partial")]
    second = ("cell_ended", "good", 0, 0, "complete", True)
    events = told(undisturbed.suite.folder, "suite_started", "suite_ended")
    assert events == [*first, *first]
    assert second in told(undisturbed.suite.folder, "cell_ended")
    (identity,) = {
        event["identity"]
        for event in events_of(undisturbed.suite.folder)
        if event.get("target") == "good" and event["event"] == "cell_ended"
    }
    result = yaml.safe_load((good.folder / "evaluation_config.yaml").read_text("utf-8"))
    assert identity == result["provenance"]["run_identity"]
    assert len({event["invocation"] for event in events_of(undisturbed.suite.folder)}) == 2


def test_another_suite_takes_over_what_is_finished_elsewhere(
    undisturbed: Undisturbed, endpoints: Endpoints, tmp_path: Path
) -> None:
    endpoints.good.seen.clear()
    suite = build_suite(endpoints.suite_file(tmp_path), env=ENV)
    options = SuiteOptions(reuse=(undisturbed.suite.folder.root,))
    report = run_suite(suite, options, env=ENV, screen=SuiteObserver())
    good = next(cell for cell in report.cells if cell.target == "good")
    source = undisturbed.suite.folder.cell_folder("good", "sample_medical_qa")
    assert (good.status, good.collected, good.reused_from) == ("complete", True, source)
    assert not endpoints.good.seen
    (event,) = (one for one in events_of(suite.folder) if one.get("reused_from"))
    assert event["reused_from"] == str(source)
    assert (good.folder / "SHA256SUMS").read_bytes() == (source / "SHA256SUMS").read_bytes()


class Impatient(SuiteObserver):
    """Presses Ctrl-C where an endpoint has to be waited for."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "endpoint_paused":
            raise KeyboardInterrupt


def table_of(folder: SuiteDir) -> str:
    """Without where it is."""
    return folder.results_csv.read_text("utf-8").replace(str(folder.root), "")


@contextlib.contextmanager
def driven(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(file)], env=ENV)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_killed_and_without_its_endpoint_for_a_while(
    undisturbed: Undisturbed, endpoints: Endpoints, tmp_path: Path
) -> None:
    """SIGKILL while a cell asks; the same command while nobody listens, until somebody does: the table is the same."""
    good = endpoints.good
    good.seen.clear()
    file = endpoints.suite_file(tmp_path)
    folder = SuiteDir(tmp_path / "out")
    with driven(file) as process:
        wait_until(lambda: sum(good.seen.values()) >= INSTANCES // 2, TIMEOUT_S)
        process.kill()
    cells = [event["pid"] for event in events_of(folder) if event["event"] == "cell_started"]
    wait_until(lambda: not any(is_running(pid) for pid in cells), 30)
    asked_before = sum(good.seen.values())
    assert INSTANCES // 2 <= asked_before < INSTANCES
    good.dead = True
    good.__exit__()
    with pytest.raises(InterruptedRunError, match=naming("interrupted", "same command continues")):
        run_suite(build_suite(file, env=ENV), SuiteOptions(), env=ENV, screen=Impatient())
    assert told(folder, "suite_ended") == [("suite_ended", 130, "partial")]
    statuses = {
        cell["target"]: cell["status"]
        for cell in yaml.safe_load(folder.results_yaml.read_text())["cells"]
    }
    assert statuses == {"good": "missing", "refused": "failed"}
    before = len(events_of(folder))
    with driven(file) as process:
        wait_until(
            lambda: any(
                event["event"] == "endpoint_paused" for event in events_of(folder)[before:]
            ),
            TIMEOUT_S,
        )
        good.come_back()
        assert process.wait(TIMEOUT_S) == 3
    waited = [
        event["event"]
        for event in events_of(folder)[before:]
        if event["event"].startswith("endpoint")
    ]
    assert waited == ["endpoint_paused", "endpoint_back"]
    in_flight = 4
    assert len(good.seen) == INSTANCES
    assert sum(good.seen.values()) - INSTANCES <= in_flight, "what was answered is asked again"
    assert table_of(folder) == table_of(undisturbed.suite.folder)
