"""A result -> the files of an output folder."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.core.results import Comparability, Deviation, FailureCause, Floor, SpentByRole, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.report.write import _response_line, html, write_reports
from unit.builders import plan
from unit.report.test_screen import causes, changed, spent, with_corrected
from unit.scoring.test_collect import FOUR, result_of, state

KEY = "a-known-key-value-1"


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    return result_of(tmp_path, states=[state(i, "<b>yes</b>") for i in range(4)], values={"exact_match": FOUR})


def test_html_escapes_and_loads_nothing(result: TaskResult) -> None:
    page = html(result, "helm-run <x>")
    assert "<x>" not in page
    assert "&lt;x&gt;" in page
    assert "exact_match" in page
    assert "http" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        (Comparability(True), "The settings are those of\nthe leaderboard."),
        (Comparability(None, "no <such> result"), "<p>no &lt;such&gt; result.</p>"),
        (
            Comparability(False, None, (Deviation("top_p", 1.0, 0.5, "odd <effect>"),), ("a remark",)),
            '<td>top_p</td><td>1.0</td><td>0.5</td><td class="wide">odd &lt;effect&gt;</td>',
        ),
    ],
)
def test_the_page_says_whether_the_settings_are_the_leaderboards(
    stamp: Comparability, told: str, result: TaskResult
) -> None:
    page = html(replace(result, comparability=stamp), "c")
    assert told in page
    assert ("<li>a remark</li>" in page) is bool(stamp.remarks)
    assert ("These settings are not the leaderboard's" in page) is bool(stamp.deviations)
    assert "leaderboard" not in html(replace(result, comparability=None), "c")


def test_the_page_holds_all_of_it_printable(result: TaskResult) -> None:
    failures = (*causes(*range(9, 2, -1)), FailureCause("gpt", 1, "odd \x1b[2J\u202e<b>", "try max_length"))
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    page = html(
        replace(
            changed(result, failures=failures, notes=tuple(f"number {n}" for n in range(8)), splits={"test": 4, "valid": 2}),
            usage=Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0), reportable=False,
        ),
        "helm-run \x9b\u2028",
    )  # fmt: skip
    assert all(f"cause {count}" in page for count in range(3, 10))
    assert all(f"<li>number {number}</li>" in page for number in range(8))
    assert "odd \\x1b[2J\\u202e&lt;b&gt;" in page
    assert "judge gpt" in page
    assert "try max_length" in page
    assert "Instances by split: test 4, valid 2." in page
    assert "helm-run \\x9b\\u2028" in page
    assert "all runs, gpt" in page
    assert "Not reportable" in page
    assert page.replace("\n", "").isprintable()


def row(response: str) -> dict[str, Any]:
    return {"key": "k", "model_id": "m", "created": 1.0, "latency_s": 2.0, "request": "{}", "response": response}


def test_a_response_is_written_with_any_content() -> None:
    redactor = Redactor(["a-known-key-value-1"])
    line = json.loads(_response_line(row('{"a": [Infinity, NaN, 1], "b": "a-known-key-value-1\\u2028"}'), redactor))
    assert line["response"] == {"a": [None, None, 1], "b": f"{REDACTED}\u2028"}
    deep = "[" * 100_000 + "]" * 100_000
    assert json.loads(_response_line(row(deep), redactor))["response"] == deep
    assert json.loads(_response_line(row(f'{{"a": {"9" * 5000}}}'), redactor))["key"] == "k"


@pytest.fixture
def written(result: TaskResult, tmp_path: Path) -> RunDir:
    """All reports of a result, with a key in the configuration, the command, prompts, answers and responses."""
    records = [replace(record, completion=f"yes {KEY}", prompt=f"what {KEY}?") for record in result.instances]
    config = plan().evaluation.as_dict()
    config["config"]["params"]["extra"]["subject"] = KEY
    rundir = RunDir(tmp_path / "written")
    rundir.create()
    write_reports(
        replace(result, instances=records), rundir, config=config,
        command=f"helm-run {KEY}", redactor=Redactor([KEY]),
        responses={"model": [row(f'{{"a": "{KEY}"}}')], "gpt": [row("1"), row("2")], "none": []}, given=config,
    )  # fmt: skip
    return rundir


def test_every_file_is_written_and_holds_no_key(written: RunDir) -> None:
    files = {path.relative_to(written.root).as_posix() for path in written.root.rglob("*") if path.is_file()}
    results = {file for file in written.results if file != written.eval_factory_metrics}  # which holds numbers alone
    assert files >= {file.name for file in results} | {f"responses/{n}.jsonl" for n in ("model", "gpt", "none")}
    for path in written.root.rglob("*"):
        assert not path.is_file() or KEY not in path.read_text("utf-8"), path
    for path in (*(results - {written.report_md}), written.responses_of("model")):  # report.md has none of these values
        assert REDACTED in path.read_text("utf-8"), path


def test_a_note_is_redacted_in_every_report(result: TaskResult, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path / "noted")
    rundir.create()
    redactor = Redactor([KEY])
    write_reports(
        changed(result, notes=(f"it says {KEY}",)), rundir, config=plan().evaluation.as_dict(),
        command="c", redactor=redactor, responses={},
    )  # fmt: skip
    assert f"it says {REDACTED}" in rundir.report_html.read_text("utf-8")
    assert KEY not in rundir.report_md.read_text("utf-8")
    assert "API_KEY_REDACTED" in rundir.report_md.read_text("utf-8")


def test_files_with_prompts_and_answers_are_for_the_user_alone(written: RunDir) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    for path in (written.instances, written.results_jsonl, written.responses_of("gpt")):
        assert mode(path) == 0o600, path
    assert mode(written.evaluation_config) == mode(written.report_html) == 0o644


def test_both_files_of_lines_have_a_line_for_each_instance_in_order(written: RunDir) -> None:
    lines = {
        path: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (written.instances, written.results_jsonl)
    }
    for found in lines.values():
        assert [line["id"] for line in found] == ["id0", "id1", "id2", "id3"]
    assert lines[written.instances][0]["prompt"] == f"what {REDACTED}?"
    assert lines[written.results_jsonl][0]["completion"] == f"yes {REDACTED}"


def test_responses_are_a_file_for_each_role(written: RunDir) -> None:
    (model,) = written.responses_of("model").read_text("utf-8").splitlines()
    assert json.loads(model) == {
        "key": "k", "model_id": "m", "created": 1.0, "latency_s": 2.0, "request": {}, "response": {"a": REDACTED},
    }  # fmt: skip
    assert len(written.responses_of("gpt").read_text("utf-8").splitlines()) == 2
    assert written.responses_of("none").read_text("utf-8") == ""


def test_the_result_is_the_same_in_both_shapes(written: RunDir) -> None:
    ours, others = (
        yaml.safe_load(path.read_text("utf-8")) for path in (written.evaluation_config, written.results_yml)
    )
    assert ours["command"] == others["command"] == f"helm-run {REDACTED}"
    assert ours["config"]["params"]["extra"]["subject"] == others["config"]["params"]["extra"]["subject"] == REDACTED
    value = ours["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"]["value"]
    assert value == others["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"]["value"] == 0.5


def test_a_result_that_is_not_of_the_schema_leaves_no_evaluation_config(result: TaskResult, tmp_path: Path) -> None:
    """It is written last, after everything was checked: where it is there, the rest is."""
    rundir = RunDir(tmp_path / "broken")
    rundir.create()
    with pytest.raises(jsonschema.ValidationError):
        write_reports(
            replace(result, status="surprise"), rundir, config=plan().evaluation.as_dict(), command="helm-run",
            redactor=Redactor(), responses={},
        )  # fmt: skip
    assert rundir.results_yml.is_file()
    assert not rundir.evaluation_config.exists()


def test_roles_are_rows_of_the_page_where_there_is_more_than_one(result: TaskResult) -> None:
    one = SpentByRole(spent(7, 40), {"model": spent(7, 40)})
    page = html(replace(result, usage=Usage(one, one, 1, 1.0)), "helm-run")
    assert "all runs" in page
    assert "this run, model" not in page
    two = SpentByRole(spent(7, 40), {"model": spent(7, 40), "gpt": spent(1, 1)})
    page = html(replace(result, usage=Usage(two, one, 1, 1.0)), "helm-run")
    assert "this run, model" in page
    assert "all runs, model" not in page


def test_the_page_shows_the_corrected_value_beside_helms_for_each_group_too(result: TaskResult) -> None:
    page = html(with_corrected(result, 7), "helm-run")
    headline = (
        "<p>exact_match: <b>0.5000</b>;\ncorrected: <b>0.7500</b> (HELM's value has a known defect: see the notes)</p>"
    )
    assert headline in page
    low, high = (result.scores["exact_match"].stats.ci_low, result.scores["exact_match"].stats.ci_high)
    cells = '<td class="n">{:.4f}</td><td class="n">{}</td><td class="n">{:.4f} .. {:.4f}</td><td class="n">{}</td>'
    helms, corrected = cells.format(0.5, 4, low, high, ""), cells.format(0.75, 7, 0.125, 0.875, "")
    assert f"<tr><td>odd</td>{helms}{corrected}</tr>" in page
    assert f"<tr><td>even</td>{helms}</tr>" in page
    assert page.count("<th>instances</th><th>95 % interval</th><th>p, against the rest (Holm)</th>") == 2
    assert "<th>HELM's value</th>" in page
    plain = html(result, "helm-run")
    assert "<p>exact_match: <b>0.5000</b></p>" in plain
    assert "corrected" not in plain
    without = html(replace(result, scores={}), "helm-run")
    assert "<p>exact_match" not in without


def test_the_page_shows_how_intervals_are_made_and_what_sources_do_to_them(result: TaskResult) -> None:
    plain = result.scores["exact_match"]
    page = html(result, "helm-run")
    assert "<td>wilson</td>" in page
    assert "design effect" not in page
    stats = replace(plain.stats, clusters=3, design_effect=2.345, p_holm=0.01234)
    shared = {"exact_match": replace(plain, stats=stats)}
    page = html(replace(result, scores=shared, groups={"ward": {"a": shared, "b": result.scores}}), "helm-run")
    assert "<th>sources</th><th>design effect</th>" in page
    assert '<td class="n">3</td><td class="n">2.35</td></tr>' in page
    assert '<td class="n">0.0123</td></tr>' in page
    assert "<tr><th>ward</th><th>value</th>" in page
    with_other = html(replace(result, scores={**shared, "other": replace(plain, value=0.25)}), "helm-run")
    assert '<td class="n"></td><td class="n"></td></tr>' in with_other


def test_the_page_names_the_best_trivial_answer(result: TaskResult) -> None:
    def page(**floors: Floor) -> str:
        named = {name.replace("_corrected", ".corrected"): floor for name, floor in floors.items()}
        return html(replace(result, validity=replace(result.validity, floors=named)), "x")

    floor = Floor("always <A>", 0.55, 4, {"always <A>": 0.55})
    assert "<p>Best trivial answer: always &lt;A&gt; <b>0.5500</b></p>" in page(exact_match=floor)
    both = page(exact_match=floor, exact_match_corrected=Floor("empty", 0.2, 4, {"empty": 0.2}))
    assert "<b>0.5500</b>; corrected:\nempty <b>0.2000</b></p>" in both
    assert "trivial answer" not in page(other=floor)


def test_the_page_says_why_a_score_is_not_reportable(result: TaskResult) -> None:
    assert "Not reportable" not in html(result, "x")
    validity = replace(result.validity, not_reportable=("judge <b> failed",))
    page = html(replace(result, validity=validity, reportable=False), "x")
    assert "Not reportable: judge &lt;b&gt; failed." in page
    assert page.count("Not reportable") == 1
    instances = replace(result.validity.instances, scored=3)
    gaps = replace(result, validity=replace(validity, instances=instances), reportable=False)
    assert html(gaps, "x").count("Not reportable") == 2
    assert "Not reportable: 4 of" in html(replace(result, reportable=False), "x")
