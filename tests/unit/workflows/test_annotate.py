"""Sheets of a finished folder, and the ratings that come back."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from eval_factory.core.annotations import read_annotations
from eval_factory.core.errors import BusyError, ConfigError, HelmError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import make_plan
from eval_factory.report.checksums import read_checksums, write_checksums
from eval_factory.report.reader import load_result
from eval_factory.workflows import annotate
from eval_factory.workflows.annotate import SheetOptions, export_sheets, import_sheets, system_prompts
from eval_factory.workflows.evaluate import as_it_stands, collect_and_report, finished_before
from eval_factory.workflows.recollect import last_state
from eval_factory.workflows.resume import DataRead, read_state, written_before
from eval_factory.workflows.verify import verify
from finished_folder import finished_folder
from rated_folder import ANSWERS, exported, filled_in, folder_to_rate, people_say
from unit.builders import context, evaluation


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    return folder_to_rate(tmp_path / "out")


def contents(folder: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.root.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_sample_is_exported_rated_and_imported(folder: RunDir, tmp_path: Path) -> None:
    before = contents(folder)
    made = exported(folder, tmp_path / "sheet")
    assert sorted(one.name for one in made.files) == ["rater_1.csv", "rater_1.html", "rater_2.csv", "rater_2.html"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in (*made.files, made.kept)} == {0o600}
    assert made.kept == folder.root / "annotations" / f"sample-{made.sample.id}.json"
    assert (len(made.sample.answers), made.answers) == (40, ANSWERS)
    assert verify(folder.root).notes == ()
    assert f"annotations/{made.kept.name}" in read_checksums(folder.checksums)

    files = [filled_in(made, rater, people_say) for rater in "12"]
    found = import_sheets(folder.root, files)
    assert (found.ratings, found.empty, found.notes) == (80, 0, ())
    assert (found.clinicians.rated, found.clinicians.raters) == (40, 2)
    corrected = found.clinicians.corrected
    assert corrected is not None
    assert corrected.ci_low < 36 / 60 < corrected.ci_high < 0.75 + 0.06  # what these people say of all answers
    assert corrected.judge_value == 0.75
    assert (verify(folder.root).findings, verify(folder.root).notes) == ((), ())
    assert {name for name in read_checksums(folder.checksums) if "annotations/" not in name} == before_names(
        before, folder
    )
    after = contents(folder)
    assert {name for name in before if before[name] != after[name]} == {
        "evaluation_config.yaml", "report.html", "report.md", "SHA256SUMS", "attestation.intoto.json", ".run_state.json",
    }  # fmt: skip
    block = yaml.safe_load(folder.evaluation_config.read_text("utf-8"))["clinicians"]
    assert (block["rated"], block["answers"], block["corrected"]["judge_value"]) == (40, ANSWERS, 0.75)
    assert "corrected by clinicians = " in folder.report_md.read_text("utf-8")
    assert 'id="clinicians"' in folder.report_html.read_text("utf-8")
    assert stat.S_IMODE(folder.ratings.stat().st_mode) == stat.S_IMODE(folder.report_html.stat().st_mode) == 0o600
    assert not (folder.annotations / ".before-import").exists()


def before_names(before: dict[str, bytes], folder: RunDir) -> set[str]:
    listed = before["SHA256SUMS"].decode().splitlines()
    assert folder.ratings.is_file()
    return {line.partition("  ")[2] for line in listed}


def test_a_rerun_keeps_what_people_said(folder: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_factory.workflows.resume.git_hash", lambda _: "abc123")
    made = exported(folder, tmp_path / "sheet")
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    document = folder.evaluation_config.read_bytes()
    plan = make_plan(evaluation({"config.output_dir": str(folder.root)}))
    ran = finished_before(plan, DataRead())
    assert ran is not None
    ctx = context(plan.rundir)
    assert as_it_stands(ctx, plan, ran, written_before(plan.rundir)) is None  # it is not as the run left it
    again = collect_and_report(ctx, plan, ["helm-run", "--suite", "s"], ran, DataRead())
    assert again.result.clinicians is not None
    assert "corrected by clinicians = " in again.summary
    now, then = (yaml.safe_load(one)["clinicians"] for one in (folder.evaluation_config.read_bytes(), document))
    assert now == then
    assert verify(folder.root).findings == ()


def test_an_altered_rating_is_found(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet")
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    text = folder.ratings.read_text("utf-8")
    folder.ratings.write_text(text.replace('"value": 0.0', '"value": 1.0'), "utf-8")
    found = {str(one).partition(":")[0] for one in verify(folder.root).findings}
    assert found == {"annotations/ratings.jsonl", "evaluation_config.yaml", "report.html", "report.md"}


def test_a_rater_may_return_parts_and_correct_them(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet")
    first = {one.code for one in made.sample.answers[:10]}
    part = import_sheets(
        folder.root, [filled_in(made, "1", lambda one, _: people_say(one, 1) if one.code in first else "")]
    )
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
    files = [filled_in(made, "1", people_say), filled_in(made, "2", lambda _one, _number: "perhaps")]
    with pytest.raises(ConfigError) as error:
        import_sheets(folder.root, files)
    assert len(error.value.problems) == 41
    assert error.value.problems[0] == f"{files[1]}: row 2, column rating: 'perhaps' is not on the scale: yes, no"
    assert error.value.problems[-1] == "nothing was imported: correct these rows, and import all files again"
    assert contents(folder) == before
    with pytest.raises(ConfigError, match="no row has a rating, so there is nothing to import"):
        import_sheets(folder.root, [filled_in(made, "1", lambda _one, _number: "")])
    assert contents(folder) == before


@pytest.mark.parametrize("rated_before", [False, True])
def test_an_import_that_cannot_be_finished_changes_nothing(
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
    (folder.root / read_run(folder) / "stats.json").unlink()
    with pytest.raises(HelmError):
        import_sheets(folder.root, [filled_in(made, "2", people_say)])
    assert folder.checksums.read_bytes() == before["SHA256SUMS"]


def read_run(folder: RunDir) -> str:
    state = read_state(folder)
    assert state is not None
    return str(state.runs[0])


def test_a_second_sample_leaves_out_what_is_rated(folder: RunDir, tmp_path: Path) -> None:
    first = exported(folder, tmp_path / "first", raters=1)
    assert exported(folder, tmp_path / "same", raters=1).sample.id == first.sample.id
    import_sheets(folder.root, [filled_in(first, "1", people_say)])
    second = exported(folder, tmp_path / "second", raters=1)
    assert len(second.sample.answers) == ANSWERS - 40
    assert {one.key for one in second.sample.answers}.isdisjoint(one.key for one in first.sample.answers)
    both = import_sheets(folder.root, [filled_in(second, "1", people_say)])
    assert both.clinicians.rated == ANSWERS
    corrected = both.clinicians.corrected
    assert corrected is not None
    assert corrected.value == pytest.approx(36 / 60)
    with pytest.raises(ConfigError, match="every answer of this result is rated"):
        exported(folder, tmp_path / "third")


def test_a_sheet_that_may_be_filled_in_is_not_written_over(folder: RunDir, tmp_path: Path) -> None:
    exported(folder, tmp_path / "sheet", raters=1)
    with pytest.raises(ConfigError, match=r"rater_1.csv, .*rater_1.html: is there already"):
        exported(folder, tmp_path / "sheet")
    for raters in (0, 51):
        with pytest.raises(ConfigError, match="1 to 50 people can rate"):
            exported(folder, tmp_path / "other", raters=raters)


def test_what_raters_must_not_know_is_in_no_file_of_theirs(folder: RunDir, tmp_path: Path) -> None:
    made = exported(folder, tmp_path / "sheet", with_reference=False)
    ids = [one.key.id for one in made.sample.answers]
    for file in made.files:
        text = file.read_text("utf-8")
        assert not [
            secret for secret in (*ids, "org/model", "exact_match", "pubmed_qa", str(folder.root)) if secret in text
        ]
    shown = [json.dumps(f"prompt {one.removeprefix('id')}") for one in ids]
    assert all(one in made.files[1].read_text("utf-8") for one in shown)
    assert set(made.sample.stratum_of) > {one.key.as_text() for one in made.sample.answers}


def test_folders_that_have_nothing_to_import_into(folder: RunDir, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no sheet was exported from this result"):
        import_sheets(folder.root, [tmp_path / "x.csv"])
    with pytest.raises(PrerequisiteError, match="there is no result"):
        export_sheets(tmp_path / "none", SheetOptions(tmp_path / "sheet"))
    with folder.locked(), pytest.raises(BusyError):
        import_sheets(folder.root, [tmp_path / "x.csv"])


def test_the_users_system_prompt_is_hidden(tmp_path: Path) -> None:
    flags = {"target.api_endpoint.adapter_config": {"custom_system_prompt": "You are GPT."}}
    told = load_result(finished_folder(tmp_path / "out", flags).root)
    assert system_prompts(told) == {"You are GPT."}
    assert system_prompts(load_result(folder_to_rate(tmp_path / "plain", 4).root)) == frozenset()


def test_what_was_altered_before_is_found_after_sheets_went_out_and_came_back(folder: RunDir, tmp_path: Path) -> None:
    settings = folder.model_configs / "settings.json"
    settings.write_text("{ }")
    made = exported(folder, tmp_path / "sheet")
    assert {one.file for one in verify(folder.root).findings} == {"model_configs/settings.json"}
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    assert {one.file for one in verify(folder.root).findings} == {"model_configs/settings.json"}


def test_an_export_vouches_for_no_folder_that_nobody_vouched_for(folder: RunDir, tmp_path: Path) -> None:
    folder.checksums.unlink()
    exported(folder, tmp_path / "sheet")
    assert not folder.checksums.exists()


def test_an_altered_sheet_and_a_comment_are_found_whoever_makes_the_checksums_again(
    folder: RunDir, tmp_path: Path
) -> None:
    made = exported(folder, tmp_path / "sheet")
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    for file in (made.kept, folder.ratings):
        before = file.read_text("utf-8")
        file.write_text(before.replace('"rater": "1"', '"rater": "3"', 1) if file == folder.ratings else before + " ")
        write_checksums(
            folder, [folder.root / name for name in last_state(folder).runs], load_result(folder.root).result
        )
        found = verify(folder.root)
        assert any(one.file == f"annotations/{file.name}" and "(files)" in one.message for one in found.findings), found
        file.write_text(before, "utf-8")
