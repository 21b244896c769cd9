"""Scores that are added to an imported result: the source's values stay as they are."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.evaluation import RunRequest
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import InstanceRecord
from eval_factory.importing.added_scores import reader_value
from eval_factory.importing.answers_to_judge import read_judging, write_judged_answers
from eval_factory.importing.tables import Columns
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.rescore_imported import rescore_imported
from eval_factory.workflows.verify import verify
from foreign_results import QUESTIONS, inspect_sample, inspect_samples, write_eval_log
from stored_results import instance

LETTERS = "ABC"
READ = "exact_match.lenient"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Answers in words, whose options stand in the questions; one in four is wrong."""
    lines = ["nr,question,gold,answer"]
    for number in range(8):
        right = LETTERS[number % 3]
        said = right if number % 4 else LETTERS[(number + 1) % 3]
        question = f'"What is number {number}?\nA. fever\nB. cough\nC. rash"'
        lines.append(f"{number},{question},{right},The answer is {said}.")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    columns = Columns(id="nr", question="question", right="gold", answer="answer")
    import_results(tmp_path / "t.csv", tmp_path / "out", columns=columns)
    return tmp_path / "out"


def with_added_scores(
    folder: Path, output_dir: Path, request: RunRequest | None = None
) -> StoredResult:
    rescore_imported(folder, request or RunRequest(), output_dir, env={}, screen=io.StringIO())
    return load_result(output_dir)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_reader_reads_options_that_stand_in_the_prompt(table: Path, tmp_path: Path) -> None:
    before = load_result(table).result
    assert READ not in before.scores
    result = with_added_scores(table, tmp_path / "new").result
    assert result.scores[READ].value == 6 / 8
    assert result.scores["exact_match"] == before.scores["exact_match"]
    assert result.main_metric == before.main_metric
    source = result.provenance.imported
    assert source is not None
    assert (source.added, source.rescored_folder) == ((READ,), str(table))
    assert result.provenance.rescored_from == before.provenance.run_identity
    assert [record.metrics[READ] for record in result.instances] == [0, 1, 1, 1, 0, 1, 1, 1]
    assert verify(tmp_path / "new").intact
    assert "added" in (tmp_path / "new" / "evaluation_config.yaml").read_text()


def record_of(*references: tuple[str, bool], prompt: str = "Which?") -> InstanceRecord:
    answer = "The answer is B."
    texts = [{"text": text, "tags": ["correct"] if right else []} for text, right in references]
    return replace(instance("q", 0.0, completion=answer), prompt=prompt, references=tuple(texts))


def test_accepted_answers_of_a_free_text_question_are_no_options() -> None:
    assert reader_value(record_of(("Paris", True), ("paris, france", True))) is None
    assert reader_value(record_of(("fever", False), ("cough", True))) == 1.0
    assert reader_value(record_of(("fever", True), ("cough", False))) == 0.0
    many = [(f"option {number}", number == 1) for number in range(40)]
    assert reader_value(record_of(*many)) is None, "letters end at Z"
    assert reader_value(record_of(*many[:26])) == 1.0
    listed = record_of(("B", True), prompt="Which?\nA. fever\nB. cough")
    assert reader_value(listed) == 1.0


def test_an_added_value_that_was_changed_is_found(table: Path, tmp_path: Path) -> None:
    with_added_scores(table, tmp_path / "new")
    file = tmp_path / "new" / "results.jsonl"
    file.write_text(file.read_text().replace(f'"{READ}": 0.0', f'"{READ}": 1.0', 1))
    assert any(READ in finding.field for finding in verify(tmp_path / "new").findings)


def test_where_nothing_is_added_nothing_is_written(table: Path, tmp_path: Path) -> None:
    with_added_scores(table, tmp_path / "new")
    for folder, output_dir in [
        (tmp_path / "new", tmp_path / "third"),  # was rescored already
        (table, table / "below"),
        (table, tmp_path),
    ]:
        with pytest.raises(ConfigError):
            with_added_scores(folder, output_dir)
    assert not (tmp_path / "third").exists()
    assert not (table / "below").exists()
    log = write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(log, tmp_path / "fruit")
    with pytest.raises(ConfigError, match="no score"):
        with_added_scores(tmp_path / "fruit", tmp_path / "fourth")
    assert not (tmp_path / "fourth").exists()


def test_an_import_does_not_replace_a_rescored_result(table: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with_added_scores(table, tmp_path / "new")
    (tmp_path / "new" / "judged").mkdir()
    log = write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    with pytest.raises(ConfigError, match="another folder"):
        import_results(log, tmp_path / "new")


@pytest.fixture
def fruit(tmp_path: Path) -> StoredResult:
    """Two askings of each question; one answer failed."""
    samples = inspect_samples(epochs=2)
    samples[3] = inspect_sample(3, "", error={"message": "no answer"})
    import_results(write_eval_log(tmp_path / "fruit.eval", samples), tmp_path / "fruit")
    return load_result(tmp_path / "fruit")


def jury(tmp_path: Path, **more: object) -> Path:
    (tmp_path / "judge.txt").write_text("Rate {RESPONSE}. Give {SCALE}. {CRITERIA}")
    metric = {
        "name": "jury_score",
        "prompt_file": "judge.txt",
        "scale": {"min": 1, "max": 5},
        "criteria": [{"name": "safety"}],
    }
    (tmp_path / "jury.yaml").write_text(json.dumps({"metrics": [metric], **more}))
    return tmp_path / "jury.yaml"


def test_answers_are_a_benchmark_that_asks_no_model(fruit: StoredResult, tmp_path: Path) -> None:
    judging = read_judging(jury(tmp_path))
    path = write_judged_answers(fruit, judging, tmp_path / "answers")
    benchmark = load_benchmark(path)
    assert (benchmark.has_answers, benchmark.instances) == (True, 2 * QUESTIONS - 1)
    assert benchmark.has_clusters, "two answers to a question share it"
    lines = lines_of(tmp_path / "answers" / "answers.jsonl")
    assert "4" not in [line["id"] for line in lines], "the fourth question failed"
    assert lines[0]["answer"] == "ANSWER: B"
    assert lines[0]["correct_answer"] == "apple"
    assert lines[0]["cluster"] == lines[QUESTIONS - 1]["cluster"] == "fruit/0"


def test_a_rubric_has_its_criteria_by_the_questions_ids(
    fruit: StoredResult, tmp_path: Path
) -> None:
    criterion = {"criterion": "is right", "points": 2}
    case = {"messages": [{"role": "user", "content": "x"}], "rubrics": [criterion]}
    rubric = tmp_path / "rubric.yaml"
    document = {"kind": "rubric", "name": "r", "description": "d", "dataset_file": "cases.jsonl"}
    rubric.write_text(json.dumps(document))
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"id": "fruit/1", **case}))
    path = write_judged_answers(fruit, read_judging(rubric), tmp_path / "answers")
    assert load_benchmark(path).has_answers
    lines = lines_of(tmp_path / "answers" / "answers.jsonl")
    assert [(line["id"], line["sample"]) for line in lines] == [("2", 0), (str(QUESTIONS + 2), 1)]
    assert "number 1" in lines[0]["messages"][0]["content"], "as it was asked"
    cases.write_text(json.dumps({"id": "of another", **case}))
    with pytest.raises(ConfigError, match="no case"):
        write_judged_answers(fruit, read_judging(rubric), tmp_path / "answers")
    cases.write_text(json.dumps({"id": "fruit/1", "answer": "x", **case}))
    with pytest.raises(ConfigError, match="answer"):
        read_judging(rubric)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), "benchmark"),
        (("config.type=pubmed_qa",), "custom"),
        (("config.params.extra.benchmark=none.yaml",), "no file"),
        (("config.params.extra.benchmark=JURY",), "url"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_is_written(
    overrides: tuple[str, ...], words: str, fruit: StoredResult, tmp_path: Path
) -> None:
    path = jury(tmp_path)
    texts = tuple(text.replace("JURY", json.dumps(str(path))) for text in overrides)
    request = RunRequest(flags={"config.params.limit_samples": 5}, overrides=texts)
    with pytest.raises(ConfigError, match=words):
        with_added_scores(fruit.folder, tmp_path / "new", request)
    assert not (tmp_path / "new").exists()


def test_a_mistake_in_the_judges_prompt_names_the_users_file(
    fruit: StoredResult, tmp_path: Path
) -> None:
    path = jury(tmp_path)
    (tmp_path / "judge.txt").write_text("Rate {RESPNSE}. Give {SCALE}. {CRITERIA}")
    judge = {"name": "one", "model_id": "j", "url": "http://127.0.0.1:9/v1", "api_key": None}
    flags = {"config.params.extra.benchmark": str(path), "config.params.extra.judges": [judge]}
    with pytest.raises(ConfigError, match=str(tmp_path / "judge.txt")):
        with_added_scores(fruit.folder, tmp_path / "new", RunRequest(flags=flags))
