"""The loop with processes of the test's making: which cell is started when, and what its end leads to."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from builders import plan
from eval_factory.config.suite import Cell, Suite
from eval_factory.core.budget import Budget, Spending, SpendingTracker
from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.secrets import Redactor
from eval_factory.executors.runs import Ended, ExecutorRun, RunState, Started, Waiting
from eval_factory.executors.served import ServedModel, ServerFailedError
from eval_factory.workflows.suite import cell_loop
from eval_factory.workflows.suite.cell_loop import (
    CellLoop,
    NextAction,
    Outcome,
    outcome_of,
    read_end_record,
)
from eval_factory.workflows.suite.endpoint_pauses import EndpointPauses, News
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.run_suite import _finish
from eval_factory.workflows.suite.suite_journal import SuiteJournal, SuiteObserver
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions
from facts import says
from stored_suite import cell as stored_cell

End = dict[str, Any]
COMPLETE: End = {"exit_code": 0, "status": "complete"}
PARTIAL: End = {"exit_code": 1, "status": "partial"}


def failure(code: int, kind: str = "X") -> End:
    return {"exit_code": code, "error": {"type": kind, "message": "it failed"}}


NOTHING = "nothing happens"
GONE = failure(3, "EndpointUnreachableError")
REFUSED = failure(3, "EndpointRefusedError")


@dataclass
class Host:
    """Ends each cell as the script says, one after another; a script's end is complete."""

    scripts: dict[str, list[End]]
    begun: list[ExecutorRun] = field(default_factory=list)
    most: int = 0
    running: list[ExecutorRun] = field(default_factory=list)
    interrupts: int = 0
    at_interrupt: Mapping[str, Any] = field(default_factory=lambda: failure(130))
    on_wait: Callable[[], str | None] = lambda: None
    states: dict[str, RunState] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    def begin(self, runs: Sequence[ExecutorRun]) -> None:
        for run in runs:
            self.begun.append(run)
            self.running.append(run)
            self.states[run.name] = Waiting()
        self.most = max(self.most, len(self.running))

    def poll(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        """One ends, or those that are waiting are started."""
        new = [run.name for run in self.running if run.name not in self.started]
        if not seconds or self.on_wait() == NOTHING:
            pass
        elif new:
            self.started.update(new)
            self.states |= {name: Started("here", 1000) for name in new}
        elif self.running:
            self._end(self.running.pop(0))
        return dict(self.states)

    def end(self, _names: Collection[str] | None = None) -> None:
        self.interrupts += 1
        while self.running:
            self._end(self.running.pop(0), self.at_interrupt)

    def clean_up(self) -> None:
        pass

    def _end(self, run: ExecutorRun, record: Mapping[str, Any] | None = None) -> None:
        script = self.scripts.get(run.name, [])
        record = record or (script.pop(0) if script else COMPLETE)
        Path(run.record).write_text(json.dumps(record))
        self.started.discard(run.name)
        self.states[run.name] = Ended(record["exit_code"])

    @property
    def order(self) -> list[str]:
        return [run.name for run in self.begun]


@dataclass
class Pauses:
    """What the test says is new."""

    script: list[News]
    paused_groups: dict[str, str] = field(default_factory=dict)

    def pause(self, planned: PlannedCell, reason: str) -> None:
        self.paused_groups[planned.group] = reason

    def take_news(self) -> list[tuple[str, News, str]]:
        if not self.paused_groups:
            return []
        (group, reason), *_ = self.paused_groups.items()
        new = self.script.pop(0)
        if new is not News.GONE:
            del self.paused_groups[group]
        return [(group, new, reason)]


@dataclass
class Server:
    """Is lost when the test says, and is started again until the test has enough."""

    losses: list[str]
    most: int = 9
    again: list[str] = field(default_factory=list)
    lost_now: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        return f"http://127.0.0.1:{20_000 + len(self.again)}", "http://127.0.0.1:9"

    def why_lost(self) -> str | None:
        return self.lost_now

    def wait_until_ready(self) -> None:
        why = self.lost_now or ""
        self.again.append(why)
        self.lost_now = None
        if len(self.again) > self.most:
            raise ServerFailedError(f"the server {why}\n  its last lines:")


def loop_of(
    folder: Path,
    cells: list[str],
    scripts: dict[str, list[End]] | None = None,
    *,
    news: list[News] | None = None,
    spent: tuple[Budget, Spending] | None = None,
    fresh: bool = False,
    processes: int = 1,
) -> tuple[CellLoop, Host]:
    """Cells by their names, `target/evaluation`; a target's group is its first letter."""
    names = [name.split("/") for name in cells]
    made = [
        Cell(target, evaluation, {}, folder / target / evaluation) for target, evaluation in names
    ]
    groups = {target: target[0] for target, _ in names}
    budget = Budget() if spent is None else spent[0]
    suite = Suite(
        SuiteDir(folder), tuple(made), budget, processes, 3, 60.0, groups, {}, "local", {}
    )
    suite.folder.state.mkdir()
    for cell in made:
        suite.folder.cell_config(cell.target, cell.evaluation).parent.mkdir(
            parents=True, exist_ok=True
        )
    host = Host(scripts or {})
    journal = SuiteJournal(suite.folder, Redactor(), SuiteObserver())
    probed = {0: frozenset({"model", "gpt"})}
    options = SuiteOptions(fresh=fresh)
    pauses = cast(EndpointPauses, Pauses(news or []))
    tracker = None if spent is None else SpendingTracker(*spent)
    plans = [plan({"config.output_dir": str(cell.folder)}) for cell in made]
    planned = tuple(
        PlannedCell(number, cell, plans[number], cell.target[0]) for number, cell in enumerate(made)
    )
    work = cell_loop.Work(suite, options, {}, journal, planned, Redactor())
    loop = CellLoop(work, host, pauses, probed, tracker=tracker)
    loop.add(planned)
    return loop, host


def came_to(loop: CellLoop) -> dict[str, tuple[str, int, int]]:
    return {
        one.name: (one.status, one.exit_code, one.attempts) for one in loop.work.reports.values()
    }


def told(loop: CellLoop, *names: str) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in loop.work.suite.folder.events.read_text().splitlines()]
    return [(line["event"], *(line.get(name) for name in names)) for line in lines]


def test_every_cell_is_begun_once_and_endpoints_take_turns(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1", "a/2", "b/1"], processes=2)
    loop.run()
    assert host.order == ["a/1", "b/1", "a/2"]
    assert host.most == 2
    assert came_to(loop) == dict.fromkeys(("a/1", "a/2", "b/1"), ("complete", 0, 1))
    assert told(loop, "target", "attempt", "pid", "status", "collected")[:3] == [
        ("cell_started", "a", 1, 1000, None, None),
        ("cell_started", "b", 1, 1000, None, None),
        ("cell_ended", "a", 1, None, "complete", False),
    ]
    made_of = plan({"config.output_dir": str(tmp_path / "a" / "1")}).identity
    assert ("cell_ended", made_of) in told(loop, "identity")
    first = host.begun[0]
    assert (first.probed, host.begun[1].probed, first.fresh) == (("gpt", "model"), None, False)
    assert (first.name, Path(first.log).name, Path(first.record).name) == (
        "a/1",
        "1.log",
        "1.end.json",
    )


def test_gaps_are_asked_for_again_where_the_endpoint_answers(tmp_path: Path) -> None:
    loop, host = loop_of(
        tmp_path, ["a/1"], {"a/1": [PARTIAL, PARTIAL]}, news=[News.NEVER_GONE] * 2, fresh=True
    )
    loop.run()
    assert came_to(loop) == {"a/1": ("complete", 0, 3)}
    assert [run.fresh for run in host.begun] == [True, False, False], (
        "what the first attempt paid for is kept"
    )


def test_a_crash_is_tried_again_and_others_go_on(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1", "a/2"], {"a/1": [failure(4)] * 3})
    loop.run()
    assert came_to(loop) == {"a/1": ("failed", 4, 3), "a/2": ("complete", 0, 1)}
    assert host.order == ["a/1", "a/1", "a/1", "a/2"]
    ends = [one for one in told(loop, "target", "status", "again") if one[0] == "cell_ended"]
    assert [one[2:] for one in ends] == [
        ("failed", True),
        ("failed", True),
        ("failed", None),
        ("complete", None),
    ]


def test_an_endpoint_that_is_gone_pauses_its_cells_alone(tmp_path: Path) -> None:
    loop, host = loop_of(
        tmp_path, ["a/1", "a/2", "b/1"], {"a/1": [GONE]}, news=[News.GONE, News.GONE, News.BACK]
    )
    loop.run()
    assert host.order == ["a/1", "b/1", "a/1", "a/2"]
    assert came_to(loop) == {
        "a/1": ("complete", 0, 2),
        "a/2": ("complete", 0, 1),
        "b/1": ("complete", 0, 1),
    }
    events = told(loop, "group", "cells")
    assert ("endpoint_paused", "a", ["a/2", "a/1"]) in events
    assert ("endpoint_back", "a", None) in events


def test_an_endpoint_that_stays_away_fails_its_cells(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1", "a/2"], {"a/1": [GONE]}, news=[News.GIVEN_UP])
    loop.run()
    assert came_to(loop) == {"a/1": ("failed", 3, 1), "a/2": ("failed", 3, 0)}
    says(str(loop.work.reports[1].reason), "its endpoint", "60 s", "it failed")
    assert host.order == ["a/1"]


def test_one_that_answers_the_probe_and_nothing_else_is_not_tried_for_ever(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1"], {"a/1": [GONE] * 9}, news=[News.NEVER_GONE] * 9)
    loop.run()
    assert came_to(loop) == {"a/1": ("failed", 3, 3)}
    assert len(host.begun) == 3


def test_a_refused_key_stops_its_target_and_no_other(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1", "a/2", "ab/1"], {"a/1": [REFUSED]})
    loop.run()
    assert came_to(loop) == {
        "a/1": ("failed", 3, 1),
        "a/2": ("failed", 3, 0),
        "ab/1": ("complete", 0, 1),
    }
    assert loop.work.reports[1].reason == "not started: it failed"
    assert host.order == ["a/1", "ab/1"]


def test_a_folder_in_use_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    loop, host = loop_of(tmp_path, ["a/1"], {"a/1": [failure(5)]})
    rundir = loop._waiting[0].planned.plan.rundir
    rundir.root.mkdir(parents=True)
    looks: list[bool] = []
    holding = rundir.locked()
    holding.__enter__()

    def later() -> None:
        now[0] += 1.5
        looks.append(len(host.begun) == 1)
        if now[0] == 9.0:
            holding.__exit__(None, None, None)

    host.on_wait = later
    loop.run()
    assert came_to(loop) == {"a/1": ("complete", 0, 2)}
    assert len(looks) > 6
    assert loop.work.suite.folder.log.read_text().count("a/1: waiting: it failed") == 1


@pytest.mark.parametrize(
    ("spent", "reason"),
    [(5, "not started: max_requests (5) of the suite is reached"), (4, None)],
    ids=["used up", "left"],
)
def test_nothing_is_begun_where_nothing_may_be_asked(
    spent: int, reason: str | None, tmp_path: Path
) -> None:
    """The first cell is started before anybody looks, and ends by itself."""
    loop, host = loop_of(
        tmp_path, ["a/1", "a/2"], spent=(Budget(max_requests=5), Spending(requests=spent))
    )
    loop.run()
    assert loop.work.stopped == reason
    assert host.order == (["a/1"] if reason else ["a/1", "a/2"])
    assert came_to(loop)["a/2"] == (("missing", 1, 0) if reason else ("complete", 0, 1))


@pytest.mark.parametrize("fresh", [False, True])
def test_what_is_only_to_be_collected_is_begun(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a budget that is used up, and of a key that is refused."""
    monkeypatch.setattr(cell_loop, "is_complete_run", lambda plan: plan.rundir.root.name == "3")
    spent = (Budget(max_requests=5), Spending(requests=5))
    for number, (given, scripts) in enumerate([(spent, {}), (None, {"a/1": [REFUSED]})]):
        folder = tmp_path / str(number)
        folder.mkdir()
        loop, host = loop_of(folder, ["a/1", "a/2", "a/3"], scripts, spent=given, fresh=fresh)
        loop.run()
        assert host.order == (["a/1"] if fresh else ["a/1", "a/3"])


def test_an_interrupt_ends_what_runs_and_names_the_rest(tmp_path: Path) -> None:
    loop, host = loop_of(tmp_path, ["a/1", "a/2", "b/1"], processes=2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    host.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert host.interrupts == 1
    assert [end[:2] for end in came_to(loop).values()] == [("missing", 130)] * 3
    assert not loop._running


def test_an_interrupt_while_a_cell_is_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor does not know it yet."""
    loop, host = loop_of(tmp_path, ["a/1", "a/2"])

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "begin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert [end[:2] for end in came_to(loop).values()] == [("missing", 130)] * 2


@pytest.mark.parametrize(
    ("code", "interrupted", "expected"),
    [(0, False, 3), (4, False, 4), (70, False, 70), (4, True, 130)],
)
def test_a_suite_whose_table_cannot_be_written_has_its_report(
    code: int, interrupted: bool, expected: int, tmp_path: Path
) -> None:
    (tmp_path / "suite_results.yaml").mkdir()
    loop, _ = loop_of(tmp_path, ["a/medec"])
    folder = stored_cell(tmp_path, "a", "medec", "1110").folder
    status = RunStatus.FAILED if code else RunStatus.COMPLETE
    loop.work.reports[0] = CellReport("a", "medec", status, folder, exit_code=code)
    report = _finish(loop.work, interrupted=interrupted)
    assert (report.exit_code, report.status, report.cells) == (
        expected,
        "partial",
        (loop.work.reports[0],),
    )
    says(report.summary.splitlines()[-1], "table cannot be written")
    says(loop.work.suite.folder.log.read_text(), "table cannot be written")
    assert told(loop, "exit_code", "status")[-1] == ("suite_ended", expected, "partial")


@pytest.mark.parametrize(
    ("before", "end", "status"),
    [
        ([], failure(4), ("missing", 130)),
        ([PARTIAL], failure(3, "EndpointRefusedError"), ("partial", 130)),
        ([], COMPLETE, ("complete", 0)),
    ],
    ids=["crashed", "refused, with a result", "was done"],
)
def test_whatever_a_cell_died_of_it_was_interrupted(
    before: list[End], end: End, status: Any, tmp_path: Path
) -> None:
    loop, host = loop_of(tmp_path, ["a/1"], {"a/1": list(before)}, news=[News.NEVER_GONE])
    host.at_interrupt = end

    def interrupt() -> None:
        if len(host.begun) > len(before):
            raise KeyboardInterrupt

    host.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert came_to(loop)["a/1"][:2] == status


def with_server(
    folder: Path, scripts: dict[str, list[End]], losses: list[str], most: int = 9
) -> Any:
    """Two cells at once; while the test has losses, the server is lost before any of them ends."""
    loop, host = loop_of(folder, ["a/1", "a/2", "a/3"], scripts, processes=2)
    server = Server(losses, most)
    loop.server = cast(ServedModel, server)

    def lose() -> str | None:
        if not server.losses:
            return None
        server.lost_now = server.losses.pop(0)
        return NOTHING

    host.on_wait = lose
    return loop, host, server


def test_cells_whose_server_is_lost_wait_for_it_and_it_costs_them_no_attempt(
    tmp_path: Path,
) -> None:
    loop, host, server = with_server(tmp_path, {}, ["ended with exit code 7"] * 4)
    loop.run()
    assert len(server.again) == 4
    says(server.again[0], "exit code 7")
    assert len(set(server.again)) == 1
    assert host.interrupts == 4
    assert [one[:2] for one in came_to(loop).values()] == [("complete", 0)] * 3
    served_at = [f"http://127.0.0.1:{port} http://127.0.0.1:9" for port in (20000, 20001)]
    assert [run.served_at for run in host.begun[:3:2]] == served_at
    waits = [one for one in told(loop, "status", "reason", "again") if one[3]]
    ((kind, status, reason, waits_alone),) = set(waits)
    assert (kind, status, waits_alone) == ("cell_ended", "missing", True)
    says(str(reason), "server", "lost")


def test_what_had_ended_when_the_server_was_lost_has_ended(tmp_path: Path) -> None:
    loop, host, _ = with_server(tmp_path, {}, ["hangs"])
    host.at_interrupt = COMPLETE
    loop.run()
    assert host.order == ["a/1", "a/2", "a/3"]
    assert set(came_to(loop).values()) == {("complete", 0, 1)}


def test_a_server_that_is_not_started_again_leaves_its_cells_missing(tmp_path: Path) -> None:
    loop, host, _ = with_server(tmp_path, {}, ["hangs", "hangs"], most=1)
    loop.run()
    assert {(one[0], one[1]) for one in came_to(loop).values()} == {("missing", 3)}
    assert {one.reason for one in loop.work.reports.values()} == {"the server hangs"}
    assert "its last lines" in loop.work.suite.folder.log.read_text()
    assert len(host.begun) == 4


CHANCE = "NOT REPORTABLE: no better than chance\n  what to do"


CodeAndRecord = tuple[int, dict[str, Any]]


def after(end: CodeAndRecord, *, may_try_again: bool = True, has_result: bool = False) -> Outcome:
    code, record = end
    return outcome_of(code, record, may_try_again=may_try_again, has_result=has_result)


def failed(code: int, error_type: str = "X", error: str = "it failed\n  more") -> CodeAndRecord:
    return code, {"error": {"type": error_type, "message": error}}


def test_a_complete_result_is_the_end_whether_it_is_reportable_or_not() -> None:
    fine = after((0, {"status": "complete", "exit_code": 0}))
    assert fine == Outcome(NextAction.NOTHING, RunStatus.COMPLETE)
    chance = after((1, {"status": "complete", "exit_code": 1, "not_reportable": CHANCE}))
    assert chance == Outcome(NextAction.NOTHING, RunStatus.COMPLETE, chance.reason, 1)
    says(str(chance.reason), "NOT REPORTABLE: ", "better than chance")


@pytest.mark.parametrize(("code", "why"), [(1, CHANCE), (0, None)])
def test_a_result_with_gaps_is_asked_for_again_as_often_as_is_allowed(
    code: int, why: str | None
) -> None:
    """Also one that may be reported all the same, with fewer instances than there are."""
    end = code, {"status": "partial", "not_reportable": why}
    gaps = "some requests failed; the same command sends these requests again"
    reason = "NOT REPORTABLE: no better than chance" if why else gaps
    again = Outcome(NextAction.RESTART_AFTER_PROBE, RunStatus.PARTIAL, reason, 1)
    assert after(end) == again
    assert after(end, may_try_again=False) == replace(again, next_action=NextAction.NOTHING)


@pytest.mark.parametrize(
    ("end", "then", "status", "counts"),
    [
        (failed(2), NextAction.NOTHING, RunStatus.FAILED, True),
        (failed(130), NextAction.NOTHING, RunStatus.MISSING, True),
        (failed(1, "NotReportableError"), NextAction.NOTHING, RunStatus.MISSING, True),
        (failed(3, "PrerequisiteError"), NextAction.NOTHING, RunStatus.FAILED, True),
        (failed(3, "EndpointRefusedError"), NextAction.STOP_TARGET, RunStatus.FAILED, True),
        (failed(3, "EndpointUnreachableError"), NextAction.PAUSE_ENDPOINT, RunStatus.FAILED, False),
        (failed(5, "BusyError"), NextAction.WAIT_FOR_FOLDER, RunStatus.FAILED, False),
    ],
    ids=["wrong", "interrupted", "a limit", "missing outside", "refused", "unreachable", "in use"],
)
def test_what_comes_of_a_failure(
    end: CodeAndRecord, then: NextAction, status: RunStatus, counts: bool
) -> None:
    """Who is waited for costs no attempt."""
    assert after(end) == Outcome(then, status, "it failed", end[0], counts_as_attempt=counts)
    assert after(end, has_result=True).status == "partial", "a result with gaps stays"


def test_a_reason_is_one_line_that_says_something() -> None:
    several = after(failed(2, error="all failed:\n  2 x HTTP 400\n  check"))
    says(str(several.reason), "all failed", "2 x HTTP 400")
    assert after(failed(2, error="all failed:")).reason == "all failed:"


@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [
        (failed(4), "it failed", 4),
        (failed(70), "it failed", 70),
        ((-9, {}), "its process was killed by signal 9", 4),
        ((42, {}), "its process ended with exit code 42", 4),
    ],
    ids=["HELM", "defect", "killed", "unknown"],
)
def test_bad_luck_is_forgiven(end: CodeAndRecord, reason: str, code: int) -> None:
    once = after(end)
    assert once == Outcome(NextAction.RESTART, RunStatus.FAILED, reason, code)
    assert after(end, may_try_again=False) == replace(once, next_action=NextAction.NOTHING)
    assert after(end, has_result=True).status == "partial"


def test_who_was_killed_or_could_not_be_imported_left_no_record(tmp_path: Path) -> None:
    record = tmp_path / "end.json"
    record.write_text('{"status": "partial"}')
    assert read_end_record(record) == {"status": "partial"}
    record.write_text('{"stat')  # who was killed says nothing
    assert read_end_record(record) == read_end_record(tmp_path / "none.json") == {}
    assert after((1, {})).exit_code == 70, "Python could not import it"
