"""Sheets of a finished folder, and the ratings that come back."""

from __future__ import annotations

import json
import math
import stat
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from builders import context, evaluation
from eval_factory.core import formats
from eval_factory.core.annotations import read_annotations
from eval_factory.core.errors import ConfigError, HelmError
from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import make_plan
from eval_factory.report.checksums import digests_of, read_checksums, write_checksums
from eval_factory.report.reader import load_result
from eval_factory.scoring.intervals import design_effect
from eval_factory.scoring.prediction_powered import (
    ExpectedFigures,
    half_width_of,
    ratings_needed_for,
)
from eval_factory.workflows import annotate
from eval_factory.workflows.annotate import (
    PlanBasis,
    import_sheets,
    plan_basis,
    plan_lines,
    rating_plan_lines,
    system_prompts,
)
from eval_factory.workflows.evaluate import (
    collect_and_report,
    earlier_finished_run,
    unchanged_evaluation,
)
from eval_factory.workflows.recollect import require_last_run_state
from eval_factory.workflows.resume import DataRead
from eval_factory.workflows.verify import verify
from facts import naming, says
from finished_folder import finished_folder
from rated_folder import ANSWERS, exported, filled_in, folder_to_rate, is_right, people_say


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    return folder_to_rate(tmp_path / "out")


def contents(folder: RunDir) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.root.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_a_sample_is_exported_rated_and_imported(folder: RunDir, tmp_path: Path) -> None:
    before = contents(folder)
    made = exported(folder, tmp_path / "sheet")
    assert sorted(one.name for one in made.files) == [
        "rater_1.csv",
        "rater_1.html",
        "rater_2.csv",
        "rater_2.html",
    ]
    assert {stat.S_IMODE(one.stat().st_mode) for one in (*made.files, made.sample_file)} == {0o600}
    assert made.sample_file == folder.root / "annotations" / f"sample-{made.sample.id}.json"
    assert (len(made.sample.answers), len(made.sample.stratum_of)) == (40, ANSWERS)
    assert verify(folder.root).notes == ()
    assert f"annotations/{made.sample_file.name}" in read_checksums(folder.checksums)

    files = [filled_in(made, rater, people_say) for rater in "12"]
    found = import_sheets(folder.root, files)
    assert (found.ratings, found.empty, found.notes) == (80, 0, ())
    assert (found.clinicians.rated, found.clinicians.raters) == (40, 2)
    corrected = found.clinicians.corrected
    assert corrected is not None
    # what these people say of all answers
    assert corrected.ci_low < 36 / 60 < corrected.ci_high < 0.75 + 0.06
    assert (verify(folder.root).findings, verify(folder.root).notes) == ((), ())
    listed = {line.partition("  ")[2] for line in before["SHA256SUMS"].decode().splitlines()}
    assert {
        name for name in read_checksums(folder.checksums) if "annotations/" not in name
    } == listed
    after = contents(folder)
    assert {name for name in before if before[name] != after[name]} == {
        "evaluation_config.yaml",
        "report.html",
        "report.md",
        "SHA256SUMS",
        "attestation.intoto.json",
        ".run_state.json",
    }
    block = yaml.safe_load(folder.evaluation_config.read_text("utf-8"))["clinicians"]
    assert (block["rated"], block["answers"], block["corrected"]["judge_value"]) == (
        40,
        ANSWERS,
        0.75,
    )
    assert "corrected by clinicians = " in folder.report_md.read_text("utf-8")
    assert 'id="clinicians"' in folder.report_html.read_text("utf-8")
    assert (
        stat.S_IMODE(folder.ratings.stat().st_mode)
        == stat.S_IMODE(folder.report_html.stat().st_mode)
        == 0o600
    )
    assert [path.name for path in folder.annotations.iterdir() if path.is_dir()] == []


def test_a_rerun_keeps_what_people_said(
    folder: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval_factory.workflows.resume.git_hash", lambda _: "abc123")
    made = exported(folder, tmp_path / "sheet")
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    document = folder.evaluation_config.read_bytes()
    plan = make_plan(evaluation({"config.output_dir": str(folder.root)}))
    ran = earlier_finished_run(plan, DataRead())
    assert ran is not None
    ctx = context(plan.rundir)
    assert unchanged_evaluation(ctx, plan, ran) is None  # it is not as the run left it
    again = collect_and_report(ctx, plan, ["helm-run", "--suite", "s"], ran, DataRead())
    assert again.result.clinicians is not None
    assert "corrected by clinicians = " in again.summary
    now, then = (
        yaml.safe_load(one)["clinicians"]
        for one in (folder.evaluation_config.read_bytes(), document)
    )
    assert now == then
    assert verify(folder.root).findings == ()


def test_a_rater_may_return_parts_and_correct_them(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet")
    first = {one.code for one in made.sample.answers[:10]}
    some = filled_in(made, "1", lambda one, _: people_say(one, 1) if one.code in first else "")
    part = import_sheets(folder.root, [some])
    assert (part.ratings, part.empty, part.clinicians.rated) == (10, 30, 10)
    assert part.clinicians.too_few is not None
    assert part.clinicians.too_few.needed == 20
    whole = import_sheets(folder.root, [filled_in(made, "1", lambda _one, _number: "yes")])
    assert whole.clinicians.rated == whole.clinicians.ratings == 40
    assert {one.value for one in read_annotations(folder.ratings).ratings} == {1.0}
    assert verify(folder.root).intact


def test_nothing_is_imported_where_a_row_is_wrong(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet")
    before = contents(folder)
    files = [
        filled_in(made, "1", people_say),
        filled_in(made, "2", lambda _one, _number: "perhaps"),
    ]
    with pytest.raises(ConfigError) as error:
        import_sheets(folder.root, files)
    assert len(error.value.problems) == 41
    says(error.value.problems[0], f"{files[1]}: row 2", "column rating", "'perhaps'", "yes, no")
    says(error.value.problems[-1], "nothing was imported")
    assert contents(folder) == before
    with pytest.raises(ConfigError, match=naming("no row", "rating")):
        import_sheets(folder.root, [filled_in(made, "1", lambda _one, _number: "")])
    assert contents(folder) == before


@pytest.mark.parametrize("rated_before", [False, True])
def test_a_failed_import(
    folder: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rated_before: bool
) -> None:
    made = exported(folder, tmp_path / "sheet")
    if rated_before:
        import_sheets(folder.root, [filled_in(made, "1", people_say)])
    before = contents(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(annotate, "write_checksums", full)
    with pytest.raises(OSError, match="No space left"):
        import_sheets(folder.root, [filled_in(made, "2", people_say)])
    assert contents(folder) == before
    monkeypatch.undo()
    (folder.root / require_last_run_state(folder).runs[0] / "stats.json").unlink()
    with pytest.raises(HelmError):
        import_sheets(folder.root, [filled_in(made, "2", people_say)])
    assert folder.checksums.read_bytes() == before["SHA256SUMS"]


def test_a_second_sample_leaves_out_what_is_rated(folder: RunDir, tmp_path: Path) -> None:
    first = exported(folder, tmp_path / "first", raters=1)
    assert exported(folder, tmp_path / "same", raters=1).sample.id == first.sample.id
    import_sheets(folder.root, [filled_in(first, "1", people_say)])
    second = exported(folder, tmp_path / "second", raters=1)
    assert len(second.sample.answers) == ANSWERS - 40
    assert {one.key for one in second.sample.answers}.isdisjoint(
        one.key for one in first.sample.answers
    )
    both = import_sheets(folder.root, [filled_in(second, "1", people_say)])
    assert both.clinicians.rated == ANSWERS
    corrected = both.clinicians.corrected
    assert corrected is not None
    assert corrected.value == pytest.approx(36 / 60)
    with pytest.raises(ConfigError, match=naming("is rated")):
        exported(folder, tmp_path / "third")


def test_what_raters_must_not_know_is_in_no_file_of_theirs(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet", with_reference=False)
    ids = [one.key.id for one in made.sample.answers]
    hidden = (*ids, "org/model", "exact_match", "pubmed_qa", str(folder.root))
    for file in made.files:
        text = file.read_text("utf-8")
        assert not [secret for secret in hidden if secret in text]
    shown = [json.dumps(f"prompt {one.removeprefix('id')}") for one in ids]
    assert all(one in made.files[1].read_text("utf-8") for one in shown)
    assert set(made.sample.stratum_of) > {one.key.as_text() for one in made.sample.answers}


def test_the_users_system_prompt_is_hidden(tmp_path: Path) -> None:
    flags = {"target.api_endpoint.adapter_config": {"custom_system_prompt": "You are GPT."}}
    told = load_result(finished_folder(tmp_path / "out", flags).root)
    assert system_prompts(told) == {"You are GPT."}
    assert system_prompts(load_result(folder_to_rate(tmp_path / "plain", 4).root)) == frozenset()


def test_what_was_altered_before_is_found_after_sheets_went_out_and_came_back(
    folder: RunDir, tmp_path: Path
) -> None:
    (folder.model_configs / "settings.json").write_text("{ }")
    made = exported(folder, tmp_path / "sheet")
    assert {one.file for one in verify(folder.root).findings} == {"model_configs/settings.json"}
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    assert {one.file for one in verify(folder.root).findings} == {"model_configs/settings.json"}
    folder.checksums.unlink()
    exported(folder, tmp_path / "second")
    assert not folder.checksums.exists(), "an export vouches for no folder that nobody vouched for"


def test_an_altered_sheet_is_found_whoever_makes_the_checksums_again(
    folder: RunDir, tmp_path: Path
) -> None:
    made = exported(folder, tmp_path / "sheet")
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    for file in (made.sample_file, folder.ratings):
        before = file.read_text("utf-8")
        file.write_text(
            before.replace('"rater": "1"', '"rater": "3"', 1)
            if file == folder.ratings
            else before + " "
        )
        runs = [folder.root / name for name in require_last_run_state(folder).runs]
        write_checksums(folder, load_result(folder.root).result, digests_of(folder, runs))
        found = verify(folder.root)
        assert any(
            one.file == f"annotations/{file.name}" and "(files)" in one.message
            for one in found.findings
        ), found
        file.write_text(before, "utf-8")
    folder.ratings.write_text(before.replace('"value": 0.0', '"value": 1.0'), "utf-8")
    altered = {"annotations/ratings.jsonl", "evaluation_config.yaml", "report.html", "report.md"}
    assert {one.file for one in verify(folder.root).findings} == altered


EXPECTED = ExpectedFigures(1000, 3.0, 1.0, (1.0, 5.0))
KNOWN = PlanBasis("jury", EXPECTED, 4.0)


def row_of(correlation: float, *widths: float) -> list[str]:
    needed = [ratings_needed_for(width, EXPECTED, correlation) for width in widths]
    least = formats.significant(half_width_of(1000, EXPECTED, correlation), 3)
    return [*("-" if one is None else str(one) for one in needed), "+/-", least]


def test_a_table_of_correlations() -> None:
    lines = plan_lines(KNOWN, None)
    says(lines[0], "jury: 1000 answers", "mean 3", "standard deviation 1")
    assert lines[2].split()[-8:] == ["+/-", "0.4", "+/-", "0.2", "+/-", "0.12", "all", "rated"]
    assert len({len(line) for line in lines[2:8]}) == 1
    for line, correlation in zip(lines[3:8], (0.0, 0.3, 0.5, 0.7, 0.9), strict=True):
        assert line.split() == [f"{correlation:.2f}", *row_of(correlation, 0.4, 0.2, 0.12)]


def test_a_width_that_is_wanted_and_a_correlation_that_was_measured() -> None:
    lines = plan_lines(replace(KNOWN, correlation=0.6, rated=40), 0.3)
    assert "from 40 rated answers" in lines[0]
    assert lines[6].split() == ["0.60", "(measured)", *row_of(0.6, 0.3)]
    against = plan_lines(replace(KNOWN, correlation=-0.6), 0.3)
    assert [line.split()[:2] for line in against[3:5]] == [
        ["0.00", row_of(0.0, 0.3)[0]],
        ["0.00", "(measured)"],
    ]
    assert {line.split()[1] for line in plan_lines(KNOWN, 0.01)[3:8]} == {"-"}, (
        "no number of ratings reaches it"
    )
    one_source = plan_lines(
        replace(KNOWN, expected=replace(EXPECTED, answers_per_source=1000.0)), 0.3
    )
    assert one_source[3].split() == ["0.00", "-", "-"]


def test_a_folder_before_and_after_ratings(folder: RunDir, tmp_path: Path) -> None:
    values = [is_right(one) for one in range(ANSWERS)]
    expected = ExpectedFigures(
        ANSWERS, statistics.fmean(values), statistics.stdev(values), (0.0, 1.0)
    )
    assert plan_basis(folder.root) == PlanBasis("exact_match", expected, 1.0)
    made = exported(folder, tmp_path / "sheet", raters=1)
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    found = plan_basis(folder.root)
    assert rating_plan_lines(folder.root, 0.2) == plan_lines(found, 0.2)
    people = [float(people_say(one, 1) == "yes") for one in made.sample.answers]
    judged = [is_right(int(one.key.id[2:])) for one in made.sample.answers]
    assert found.rated == 40
    assert found.expected == replace(
        expected, mean=statistics.fmean(people), stddev=statistics.stdev(people)
    )
    assert found.correlation == pytest.approx(statistics.correlation(people, judged))


def test_people_who_say_one_thing_have_no_correlation(tmp_path: Path) -> None:
    folder = folder_to_rate(tmp_path / "out", 20)
    made = exported(folder, tmp_path / "sheet", raters=1)
    few = {one.code for one in made.sample.answers[:9]}
    import_sheets(
        folder.root, [filled_in(made, "1", lambda one, _: "yes" if one.code in few else "")]
    )
    assert (plan_basis(folder.root).rated, plan_basis(folder.root).correlation) == (9, None)
    import_sheets(folder.root, [filled_in(made, "1", lambda _one, _number: "yes")])
    found = plan_basis(folder.root)
    assert (found.rated, found.correlation) == (20, 0.0)
    # the judges': people who agree about twenty answers need not agree about all
    assert found.expected.stddev > 0


def test_what_the_answers_share_and_what_a_rubric_can_take_away(folder: RunDir) -> None:
    stored = load_result(folder.root)
    no_scale = {"exact_match": replace(stored.result.scores["exact_match"], scale=None)}

    def known(**changes: Any) -> PlanBasis:
        records = [replace(one, **changes) for one in stored.result.instances]
        result = replace(stored.result, instances=records, scores=no_scale)
        with patch.object(annotate, "load_result", return_value=replace(stored, result=result)):
            return plan_basis(stored.folder)

    found = known(cluster="one", criteria=({"points": 2.0}, {"points": -1.0}))
    effect = design_effect(
        [is_right(one) for one in range(ANSWERS)], (-0.5, 1.0), ["one"] * ANSWERS
    )
    assert (found.expected.design_effect, found.expected.answers_per_source) == (effect, ANSWERS)
    assert (found.expected.scale, found.span) == ((-0.5, 1.0), 1.0)
    with pytest.raises(ConfigError, match=naming("exact_match", "the same", "no scale")):
        known(metrics={"exact_match": 1.0})
    for width in (0.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match=naming("--half_width", "above 0")):
            rating_plan_lines(folder.root, width)
