"""Results of other programs become ordinary folders, with the values of those programs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.analysis.comparison import compare
from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.importing import counting, imported_result
from eval_factory.importing.sources import SourceError
from eval_factory.importing.tables import Columns
from eval_factory.reading import READER_VERSION
from eval_factory.report.exports.inspect_logs import write_inspect_log
from eval_factory.report.papers import methods_text
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.report.result_sentences import certainty_sentence, measurement_sentence
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.recollect import require_last_run_state
from eval_factory.workflows.reproduce import config_for, reproduce
from eval_factory.workflows.verify import verify
from facts import says
from foreign_results import (
    QUESTIONS,
    inspect_header,
    inspect_sample,
    inspect_samples,
    write_eval_log,
    write_json_log,
    write_lm_eval,
    write_table,
    write_zstd_zip,
)
from stored_results import right_or_wrong

SHARE = 8 / QUESTIONS
KEY = "sk-" + "abcdefgh12345678" * 2


def imported(source: Path, folder: Path, **options: object) -> StoredResult:
    (result,) = import_results(source, folder, **options)  # type: ignore[arg-type]
    return load_result(result.folder)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_eval_log(tmp_path / "logs" / "fruit.eval", inspect_samples())


def test_a_log_of_inspect_is_a_result(log: Path, tmp_path: Path) -> None:
    result = imported(log, tmp_path / "out").result
    assert (result.task, result.main_metric, result.provenance.target) == (
        "fruit",
        "choice",
        "org/model",
    )
    score = result.scores["choice"]
    assert score.value == SHARE
    assert score.stats.ci_low is not None
    assert score.stats.ci_low < SHARE
    assert result.reportable
    assert result.scores["exact_match.lenient"].value == SHARE
    floor = result.validity.floors["choice"]
    assert (floor.value, floor.answers["random"]) == (0.25, 0.25)
    source = result.provenance.imported
    assert source is not None
    assert (source.program, source.version, list(source.files)) == (
        "inspect_ai",
        "0.3.285",
        ["fruit.eval"],
    )


def test_both_forms_of_a_log_give_the_same_instances(log: Path, tmp_path: Path) -> None:
    other = write_json_log(tmp_path / "logs2" / "fruit.json", inspect_samples())
    imported(log, tmp_path / "a")
    imported(other, tmp_path / "b")
    for name in ("instances.jsonl", "results.jsonl"):
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()


def test_epochs_are_repeats_of_a_question(tmp_path: Path) -> None:
    path = write_json_log(tmp_path / "x.json", inspect_samples(epochs=3))
    result = imported(path, tmp_path / "out").result
    assert result.validity.instances.requested == 3 * QUESTIONS
    assert result.scores["choice"].stats.count == QUESTIONS
    assert {record.trial for record in result.instances} == {0, 1, 2}


def test_an_error_costs_its_question_and_says_why(tmp_path: Path) -> None:
    samples = inspect_samples()
    samples[2] = inspect_sample(2, "", error={"message": f"refused key {KEY}"})
    path = write_json_log(tmp_path / "x.json", samples)
    result = imported(path, tmp_path / "out").result
    assert not result.reportable
    assert result.validity.instances.failed == 1
    assert "--min_coverage" in result.validity.not_reportable[0]
    assert result.validity.failures[0].count == 1
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes()
    result = imported(path, tmp_path / "accepted", min_coverage=0.9).result
    assert result.reportable


def test_a_value_that_its_samples_do_not_make_has_no_interval(tmp_path: Path) -> None:
    results = {"scores": [{"name": "choice", "metrics": {"accuracy": {"value": 0.1}}}]}
    path = write_json_log(tmp_path / "x.json", inspect_samples(), results=results)
    score = imported(path, tmp_path / "out").result.scores["choice"]
    assert score.value == 0.1
    assert score.stats.ci_low is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"version": 1}, "version"), ({"eval": {"task": "x"}}, "model"), ({"eval": None}, "eval")],
)
def test_a_log_of_another_form_is_refused_and_nothing_is_written(
    changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    path = write_json_log(tmp_path / "x.json", inspect_samples(), **changes)
    with pytest.raises(SourceError, match=words):
        import_results(path, tmp_path / "out", kind="inspect")
    assert not (tmp_path / "out").exists()


def test_a_log_that_did_not_end_is_not_reportable(tmp_path: Path) -> None:
    path = write_json_log(tmp_path / "x.json", inspect_samples(), status="cancelled")
    result = imported(path, tmp_path / "out").result
    assert not result.reportable
    assert "cancelled" in result.validity.not_reportable[0]


def test_a_truncated_archive_is_refused(log: Path, tmp_path: Path) -> None:
    log.write_bytes(log.read_bytes()[:-40])
    with pytest.raises(SourceError):
        import_results(log, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_filters_of_the_harness_are_metrics(tmp_path: Path) -> None:
    source = write_lm_eval(tmp_path / "harness")
    result = imported(source.parent, tmp_path / "out").result
    assert result.main_metric == "exact_match.strict-match"
    assert set(result.scores) == {"exact_match.strict-match", "exact_match.flexible"}
    assert result.scores["exact_match.flexible"].value == SHARE
    assert result.scores["exact_match.strict-match"].stats.ci_low is not None
    assert [note for note in result.validity.notes if "standard error" in note] == [
        "lm-evaluation-harness states a standard error of 0.1 of exact_match.strict-match."
    ]
    assert result.validity.instances.requested == QUESTIONS
    assert result.provenance.imported is not None
    assert len(result.provenance.imported.files) == 2


def test_a_result_without_samples_is_not_reportable(tmp_path: Path) -> None:
    source = write_lm_eval(tmp_path / "harness")
    for samples in source.parent.glob("samples_*"):
        samples.unlink()
    result = imported(source, tmp_path / "out").result
    assert not result.reportable
    score = result.scores["exact_match.strict-match"]
    assert (score.value, score.stats.stderr, score.stats.ci_low) == (SHARE, 0.1, None)
    told = f"{measurement_sentence(result)} {certainty_sentence(result)}"
    assert "0 questions" not in told
    says(told, "a score alone", "no interval")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "No technical problem" not in page
    assert "Read all 0" not in page


def test_a_table_is_read_by_the_columns_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("nr;frage;soll;ist\n1;Welche?;ja;ja\n2;Wer?;nein;ja\n3;Was?;ja;ja\n")
    columns = Columns(id="nr", question="frage", right="soll", answer="ist")
    result = imported(path, tmp_path / "out", columns=columns, model="mine").result
    assert result.scores["exact_match"].value == pytest.approx(2 / 3)
    assert result.provenance.target == "mine"
    with pytest.raises(ConfigError, match="nummer"):
        import_results(path, tmp_path / "other", columns=Columns(id="nummer", value="ist"))
    with pytest.raises(ConfigError, match="--id"):
        import_results(path, tmp_path / "other")


def test_a_right_answer_whose_capital_is_two_letters_is_no_letter_of_an_option(
    tmp_path: Path,
) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("id,options,right,answer\n1,x|y,\u00df,\u00df\n2,x|y,b,y\n", encoding="utf-8")
    columns = Columns(id="id", options="options", right="right", answer="answer")
    result = imported(path, tmp_path / "out", columns=columns).result
    first, second = result.instances
    assert [reference["tags"] for reference in first.references] == [[], []]
    assert [reference["tags"] for reference in second.references] == [[], ["correct"]]


def test_the_stored_command_of_a_table_makes_the_same_result(tmp_path: Path) -> None:
    source = write_table(tmp_path / "answers.csv")
    columns = Columns(id="nr", answer="answer", right="gold")
    options: dict[str, Any] = {
        "columns": columns,
        "task": "my task",
        "model": "m",
        "min_coverage": 0.5,
    }
    stored = imported(source, tmp_path / "out", **options)
    words = shlex.split(stored.command)[1:]
    words[words.index("-o") + 1] = str(tmp_path / "again")
    finished = CliRunner().invoke(cli, words)
    assert finished.exit_code == 0, finished.output
    again = load_result(tmp_path / "again")
    assert again.config["imported"] == stored.config["imported"]
    assert again.extra == stored.extra


def test_a_table_with_a_value_that_is_no_number_names_its_row(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("id,score\n1,1\n2,good\n")
    with pytest.raises(SourceError, match="row 3"):
        import_results(path, tmp_path / "out", columns=Columns(id="id", value="score"))


def test_a_folder_of_others_is_left_alone(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="-o"):
        import_results(log, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.txt"]


def test_an_import_may_be_made_again_in_its_folder(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "out")
    before = RunDir(tmp_path / "out").checksums.read_text()
    imported(log, tmp_path / "out")
    assert RunDir(tmp_path / "out").checksums.read_text() == before


def test_verify_imports_the_source_again(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "out")
    assert verify(tmp_path / "out").intact
    changed = inspect_samples()
    changed[1] = inspect_sample(1, "ANSWER: D")
    write_eval_log(log, changed)
    found = verify(tmp_path / "out")
    assert not found.intact
    assert any("fruit.eval" in finding.field for finding in found.findings)
    log.unlink()
    found = verify(tmp_path / "out")
    assert found.intact
    assert str(log) in found.notes[0]


def test_verify_finds_a_changed_file_of_the_folder(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "out")
    file = tmp_path / "out" / "results.jsonl"
    file.write_text(file.read_text().replace("ANSWER: B", "ANSWER: C", 1))
    assert {finding.file for finding in verify(tmp_path / "out").findings} >= {"results.jsonl"}


def test_questions_of_two_programs_are_paired_by_what_they_ask(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "a")
    table = tmp_path / "answers.jsonl"
    rows = []
    for number in reversed(range(QUESTIONS)):
        question = f"Which fruit is  number {number}, of those that are LISTED?"
        options = ["fig", "plum", "pear", "apple"]
        rows.append({"id": f"x{number}", "q": question, "o": options, "score": number % 2})
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = Columns(id="id", question="q", options="o", value="score")
    imported(table, tmp_path / "b", columns=columns, model="other")
    refused = compare([tmp_path / "a", tmp_path / "b"])
    assert {reason.name for reason in refused.reasons} == {"prompts", "program"}
    compared = compare([tmp_path / "a", tmp_path / "b"], allow=["prompts", "program"])
    (comparison,) = compared.comparisons
    assert comparison.paired.n == QUESTIONS
    assert f"{QUESTIONS} of {QUESTIONS}" in compared.pairings[0]
    assert set(comparison.flips.b_only) == {"fruit/3", "fruit/9"}


def test_equal_questions_of_one_result_stay_unpaired(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "a")
    samples = inspect_samples()
    for number in range(3):
        samples[number] = {**inspect_sample(0, "ANSWER: A"), "id": f"same/{number}"}
    imported(write_json_log(tmp_path / "b.json", samples), tmp_path / "b")
    refused = compare([tmp_path / "a", tmp_path / "b"])
    assert [reason.name for reason in refused.reasons] == ["no_pairs"]
    assert "9 of 12" in refused.reasons[0].message
    assert "--min_paired" in refused.reasons[0].message
    accepted = compare([tmp_path / "a", tmp_path / "b"], min_paired=0.7, allow=["prompts"])
    assert accepted.comparisons[0].paired.n == 9


def test_papers_say_which_program_asked(log: Path, tmp_path: Path) -> None:
    stored = imported(log, tmp_path / "out")
    text = methods_text(stored.result, stored.config, stored.target)
    assert "inspect_ai 0.3.285" in text
    assert "HELM" not in text
    assert "endpoint" not in text


def test_what_needs_files_of_a_run_is_refused_by_name(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "out")
    with pytest.raises(PrerequisiteError, match="compare, gate"):
        require_last_run_state(RunDir(tmp_path / "out"))


def test_a_result_that_an_older_rule_read_is_compared_as_it_is(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "a")
    imported(log, tmp_path / "b")
    file = RunDir(tmp_path / "b").evaluation_config
    text = file.read_text()
    now = f"reader_version: {READER_VERSION}"
    assert now in text
    file.write_text(text.replace(now, "reader_version: 1"))
    (comparison,) = compare([tmp_path / "a", tmp_path / "b"]).comparisons
    assert comparison.paired.n == QUESTIONS
    refused = compare([tmp_path / "a", tmp_path / "b"], metric="exact_match.lenient")
    assert [reason.name for reason in refused.reasons] == ["reader"]


def test_a_prompt_with_its_options_in_the_text_is_paired_with_a_question(
    log: Path, tmp_path: Path
) -> None:
    imported(log, tmp_path / "a")
    rows: list[dict[str, Any]] = []
    for number in range(QUESTIONS):
        question = f"Which fruit is number {number}, of those that are listed?"
        text = f"Choose. {question} A. apple B. pear C. plum D. fig"
        rows.append({"id": f"x{number}", "q": text, "score": 1})
    rows[4]["q"] = rows[4]["q"].replace("D. fig", "D. date")
    table = tmp_path / "answers.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported(table, tmp_path / "b", columns=Columns(id="id", value="score", question="q"))
    document = (tmp_path / "b" / "instances.jsonl").read_text()
    (tmp_path / "b" / "instances.jsonl").write_text(document.replace('"question":', '"extra.q":'))
    compared = compare([tmp_path / "a", tmp_path / "b"], allow=["prompts", "program"])
    assert compared.comparisons[0].paired.n == QUESTIONS - 1


def test_a_chat_of_the_harness_has_the_texts_of_its_messages(tmp_path: Path) -> None:
    source = write_lm_eval(tmp_path / "harness")
    for file in source.parent.glob("samples_*"):
        lines = []
        for text in file.read_text().splitlines():
            line = json.loads(text)
            prompt = line["arguments"]["gen_args_0"]["arg_0"]
            message = [{"role": "user", "content": prompt}]
            line["arguments"]["gen_args_0"]["arg_0"] = [json.dumps(message)]
            lines.append(json.dumps(line))
        file.write_text("\n".join(lines))
    result = imported(source.parent, tmp_path / "out").result
    assert {record.prompt for record in result.instances} == {
        f"Q: fruit {number}?\nA:" for number in range(QUESTIONS)
    }


def test_three_results_are_compared_each_by_its_own_metric(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "a")
    for name in ("b", "c"):
        rows = []
        for number in range(QUESTIONS):
            question = f"Which fruit is number {number}, of those that are listed?"
            options = ["fig", "plum", "pear", "apple"]
            rows.append({"id": f"x{number}", "q": question, "o": options, f"points_{name}": 1})
        table = tmp_path / f"{name}.jsonl"
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        columns = Columns(id="id", question="q", options="o", value=f"points_{name}")
        imported(table, tmp_path / name, columns=columns)
    folders = [tmp_path / name for name in ("a", "b", "c")]
    compared = compare(folders, allow=["prompts", "program"])
    assert [comparison.metric for comparison in compared.comparisons] == [
        "choice",
        "choice",
        "points_b",
    ]


def test_another_version_writes_other_sentences(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(log, tmp_path / "out")
    monkeypatch.setattr("eval_factory.workflows.verify.__version__", "9.9.9")
    monkeypatch.setattr("eval_factory.importing.imported_result.__version__", "9.9.9")
    monkeypatch.setattr("platform.python_version", lambda: "3.99")
    found = verify(tmp_path / "out")
    assert found.intact
    assert any("SHA256SUMS" in note for note in found.notes)


def test_what_asks_again_refuses_an_imported_result_by_name(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "out")
    with pytest.raises(PrerequisiteError, match="compare, gate"):
        reproduce(tmp_path / "out", None, env={})
    with pytest.raises(PrerequisiteError, match="compare, gate"):
        config_for(tmp_path / "out", tmp_path / "other")


def test_results_that_keep_prompts_alone_are_paired_by_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        source = write_lm_eval(tmp_path / f"harness_{name}")
        for file in source.parent.glob("samples_*"):
            text = file.read_text().replace('"question"', '"passage"')
            file.write_text(text.replace("Q: fruit", "Q:  fruit" if name == "b" else "Q: fruit"))
        imported(source.parent, tmp_path / name)
    compared = compare([tmp_path / "a", tmp_path / "b"], allow=["prompts"])
    assert "by prompt" in compared.pairings[0]
    assert compared.comparisons[0].paired.n == QUESTIONS


def test_ids_of_a_table_pair_where_nothing_else_does(log: Path, tmp_path: Path) -> None:
    imported(log, tmp_path / "a")
    table = tmp_path / "scores.csv"
    table.write_text("nr,s\n" + "".join(f"fruit/{number},1\n" for number in range(QUESTIONS)))
    imported(table, tmp_path / "b", columns=Columns(id="nr", value="s"))
    compared = compare([tmp_path / "a", tmp_path / "b"], allow=["prompts", "program"])
    assert "by named columns" in compared.pairings[0]


def test_an_error_has_no_prompt_and_equal_ones_are_counted_together(tmp_path: Path) -> None:
    samples = inspect_samples()
    for number in (2, 5):
        # as `repr` writes the line breaks of an error
        request = f"Request:\\n{{\\n  'content': 'Mrs Example {number}'\\n}}"
        message = f"ModelGenerateError('\\n{request}\\n\\nBadRequestError(400: too long)')"
        samples[number] = inspect_sample(number, "", error={"message": message})
    import_results(write_json_log(tmp_path / "x.json", samples), tmp_path / "out")
    result = load_result(tmp_path / "out").result
    assert [failure.count for failure in result.validity.failures] == [2]
    assert "too long" in result.validity.failures[0].cause
    assert "Mrs Example" not in (tmp_path / "out" / "evaluation_config.yaml").read_text()


def test_refusals_are_counted_apart_from_answers_that_cannot_be_read(tmp_path: Path) -> None:
    samples = inspect_samples()
    samples[1] = inspect_sample(1, "I'm sorry, but I cannot help with that.")
    samples[2] = inspect_sample(2, "It depends on the season.")
    import_results(write_json_log(tmp_path / "x.json", samples), tmp_path / "out")
    stored = load_result(tmp_path / "out").result
    counts = stored.validity.instances
    assert (counts.refused, counts.unparsed, counts.unreadable) == (1, 1, 1)
    assert [record.signs for record in stored.instances][:4] == [
        (),
        ("refused",),
        ("unparsed",),
        (),
    ]
    assert any("2 of 12 answers" in note for note in stored.validity.notes)


def test_several_sources_are_read_before_any_is_written(log: Path, tmp_path: Path) -> None:
    harness = write_lm_eval(tmp_path / "harness").parent
    imported_results = import_results([log, harness], tmp_path / "out")
    assert [result.folder.parent for result in imported_results] == [tmp_path / "out"] * 2
    assert all(verify(result.folder).intact for result in imported_results)
    samples = next(harness.glob("samples_*"))
    samples.write_text(samples.read_text()[:-30])
    with pytest.raises(SourceError):
        import_results([log, harness], tmp_path / "third")
    assert not (tmp_path / "third").exists()
    with pytest.raises(ConfigError, match="already"):
        import_results(imported_results[0].folder, tmp_path / "fourth")


def test_what_an_older_reader_read_is_no_finding(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(imported_result, "READER_VERSION", READER_VERSION - 1)
        older.setattr(counting, "stated_option", lambda *_: None)
        import_results(log, tmp_path / "out")
    verified = verify(tmp_path / "out")
    assert verified.findings == ()
    assert any(str(READER_VERSION - 1) in note for note in verified.notes)


@pytest.mark.parametrize("source", ["inspect", "harness", "ours"])
def test_an_export_that_is_imported_is_the_same_result(source: str, tmp_path: Path) -> None:
    if source == "inspect":
        log = write_eval_log(tmp_path / "a.eval", inspect_samples(epochs=2))
        before = imported(log, tmp_path / "before")
        maker = "inspect_ai 0.3.285"
    elif source == "harness":
        before = imported(write_lm_eval(tmp_path / "harness").parent, tmp_path / "before")
        maker = "lm-evaluation-harness 0.4.13"
    else:
        before = load_result(right_or_wrong(tmp_path / "before", "1011"))
        maker = "crfm-helm 0.5.16"
    file = write_inspect_log(before, tmp_path / "logs", with_texts=True)
    after = imported(file, tmp_path / "after").result
    assert after.provenance.imported is not None
    assert after.provenance.imported.source == maker
    instances = {(record.id, record.trial): record for record in after.instances}
    for record in before.result.instances:
        again = instances.pop((record.id, record.trial))
        assert again.completion == record.completion
        assert record.metrics.items() <= again.metrics.items()
        rights = [reference for reference in record.references if "correct" in reference["tags"]]
        assert [item for item in again.references if "correct" in item["tags"]] == rights
    assert not instances
    for name, score in before.result.scores.items():
        assert after.scores[name].value == pytest.approx(score.value)


def test_a_log_with_samples_in_parts_is_refused(tmp_path: Path) -> None:
    entries = {
        "header.json": json.dumps(inspect_header(inspect_samples())).encode(),
        "samples/1_epoch_1/sample.json": b"{}",
        "samples/1_epoch_1/messages/0.json": b"[]",
    }
    write_zstd_zip(tmp_path / "x.eval", entries)
    with pytest.raises(SourceError, match="in parts"):
        import_results(tmp_path / "x.eval", tmp_path / "out")
    assert not (tmp_path / "out").exists()
