"""Records of Every Eval Ever with samples, in the forms that the schema and its converters have."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.importing import every_eval_ever_files
from eval_factory.importing.sources import SourceError, digest_of
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.import_results import import_results
from foreign_results import record_line, record_result, write_record


def imported(source: Path, folder: Path) -> dict[str, StoredResult]:
    """Import a record; the stored results by their tasks."""
    by_task = {}
    for result in import_results(source, folder):
        by_task[result.result.task] = load_result(result.folder)
    return by_task


def lines(**changes: Any) -> list[dict[str, Any]]:
    """Four lines, of which every second one is right."""
    return [record_line(number, "pear" if number % 2 else "fig", **changes) for number in range(4)]


def test_ids_with_a_number_sign_are_questions_of_their_own(tmp_path: Path) -> None:
    source = write_record(tmp_path / "data", lines())
    stored = imported(source, tmp_path / "out")["fruit"]
    assert [instance.id for instance in stored.result.instances] == [
        "fruit#0",
        "fruit#1",
        "fruit#2",
        "fruit#3",
    ]
    assert {instance.trial for instance in stored.result.instances} == {0}


def test_a_sample_has_the_value_of_each_metric_that_rates_it(tmp_path: Path) -> None:
    results = [
        record_result("exact_match", 0.5, evaluation_result_id="em"),
        record_result("f1", 0.75, evaluation_result_id="f1"),
    ]
    rated = []
    for line in lines():
        rated.append(line | {"evaluation_result_id": "em", "evaluation_name": "a data set"})
        f1 = (line["evaluation"]["score"] + 1) / 2
        rated.append(line | {"evaluation_result_id": "f1", "evaluation": {"score": f1}})
    source = write_record(tmp_path / "data", rated, results)
    result = imported(source, tmp_path / "out")["fruit"].result
    assert [instance.metrics["f1"] for instance in result.instances] == [0.5, 1.0, 0.5, 1.0]
    for metric in ("exact_match", "f1"):
        assert result.scores[metric].stats.ci_low is not None
    assert result.validity.instances.requested == 4


def test_results_are_told_apart_by_what_describes_them(tmp_path: Path) -> None:
    results = []
    for name in ("acc", "acc_norm"):
        config = {"evaluation_description": name, "lower_is_better": False}
        results.append(record_result(metric_config=config))
    source = write_record(tmp_path / "data", lines(), results)
    assert set(imported(source, tmp_path / "out")["fruit"].result.scores) == {"acc", "acc_norm"}
    for metric_id, result in zip(("acc", "acc_norm"), results, strict=True):
        result["metric_config"] = {
            "metric_name": {},
            "metric_id": metric_id,
        }  # an empty name is none
    by_id = write_record(tmp_path / "by_id", lines(), results)
    assert set(imported(by_id, tmp_path / "ids")["fruit"].result.scores) == {"acc", "acc_norm"}
    same = write_record(tmp_path / "same", lines(), [record_result(), record_result()])
    with pytest.raises(SourceError, match="apart"):
        import_results(same, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_each_evaluation_has_its_own_samples_and_files_are_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [record_result(), record_result(evaluation_name="nuts", score_details={"score": 1})]
    rated = [*lines(), record_line(7, evaluation_name="nuts"), record_line(8, evaluation_name="?")]
    source = write_record(tmp_path / "data", rated, results)
    hashed = []

    def counted(path: Path, algorithm: str = "sha256") -> str:
        hashed.append(path.name)
        return digest_of(path, algorithm)

    monkeypatch.setattr(every_eval_ever_files, "digest_of", counted)
    by_task = imported(source, tmp_path / "out")
    assert sorted(hashed) == ["record.json", "samples.jsonl"]
    assert [instance.id for instance in by_task["nuts"].result.instances] == ["fruit#7"]
    assert by_task["fruit"].result.validity.instances.requested == 4
    assert any("1 lines" in note for note in by_task["fruit"].result.validity.notes)


def test_lines_of_another_name_are_those_of_the_only_evaluation(tmp_path: Path) -> None:
    source = write_record(tmp_path / "data", lines(evaluation_name="as the data set is called"))
    assert imported(source, tmp_path / "out")["fruit"].result.validity.instances.scored == 4


def test_a_conversation_has_an_answer_and_its_turns(tmp_path: Path) -> None:
    messages = [
        {"turn_idx": 0, "role": "user", "content": "Which fruit?"},
        {
            "turn_idx": 1,
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "name": "look", "arguments": {"at": "tree"}}],
        },
        {"turn_idx": 2, "role": "tool", "content": "pear-shaped"},
        {"turn_idx": 3, "role": "assistant", "content": "pear"},
    ]
    agent = lines(interaction_type="agentic", output=None, messages=messages)
    source = write_record(tmp_path / "data", agent)
    result = imported(source, tmp_path / "out")["fruit"].result
    assert result.reportable
    instance = next(iter(result.instances))
    assert instance.completion == "pear"
    assert [turn["role"] for turn in instance.turns] == ["user", "assistant", "tool"]
    assert "look" in instance.turns[1]["content"]
    assert instance.categories == {"tool_calls": 1, "turns": 2}


def test_an_error_is_no_answer_and_epochs_are_repeats(tmp_path: Path) -> None:
    rated = []
    for epoch in ("1", "2"):
        rated += lines(metadata={"epoch": epoch, "stop_reason": "max_tokens", "ward": "north"})
    rated[1]["error"] = "Timeout\nTraceback"
    source = write_record(tmp_path / "data", rated)
    result = imported(source, tmp_path / "out")["fruit"].result
    instances = {(item.id, item.trial): item for item in result.instances}
    assert len(instances) == 8
    assert instances["fruit#1", 0].error == "Timeout"
    assert instances["fruit#1", 1].metrics == {"exact_match": 1.0}
    assert instances["fruit#1", 1].finish_reason == "length"
    assert instances["fruit#1", 1].categories == {"ward": "north"}
    assert (result.validity.instances.failed, result.validity.instances.truncated) == (1, 7)


def test_letters_name_the_right_options_where_no_text_does(tmp_path: Path) -> None:
    fruit = ["apple", "pear"]
    by_letter = {"raw": "Which?", "reference": ["B"], "choices": fruit}
    source = write_record(tmp_path / "data", lines(input=by_letter))
    result = imported(source, tmp_path / "out")["fruit"].result
    references = next(iter(result.instances)).references
    assert [reference["tags"] for reference in references] == [[], ["correct"]]


@pytest.mark.parametrize(
    ("of_samples", "words"),
    [
        ({"hash_algorithm": "md5", "checksum": "0" * 32}, "checksum"),
        ({"hash_algorithm": "sha256", "checksum": "0" * 64}, "checksum"),
        ({"total_rows": 5}, "4 of the 5"),
    ],
)
def test_samples_that_are_not_those_of_the_record_are_refused(
    of_samples: dict[str, Any], words: str, tmp_path: Path
) -> None:
    source = write_record(tmp_path / "data", lines(), **of_samples)
    with pytest.raises(SourceError, match=words):
        import_results(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checksum_of_another_kind_holds(tmp_path: Path) -> None:
    source = write_record(tmp_path / "data", lines())
    content = (tmp_path / "data" / "samples.jsonl").read_bytes()
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    source = write_record(tmp_path / "data", lines(), hash_algorithm="md5", checksum=checksum)
    assert imported(source, tmp_path / "out")["fruit"].result.reportable


def test_a_record_with_fewer_samples_than_it_counts_is_not_reportable(tmp_path: Path) -> None:
    details = {"score": 0.5, "uncertainty": {"num_samples": 9}}
    source = write_record(tmp_path / "data", lines(), [record_result(score_details=details)])
    result = imported(source, tmp_path / "out")["fruit"].result
    assert any("4 of 9" in reason for reason in result.validity.not_reportable)


def test_a_sample_that_is_there_twice_and_another_version_are_refused(tmp_path: Path) -> None:
    source = write_record(tmp_path / "data", [*lines(), record_line(1)])
    with pytest.raises(SourceError, match="twice"):
        import_results(source, tmp_path / "out")
    document = json.loads(source.read_text())
    source.write_text(json.dumps(document | {"schema_version": "1.0.0"}))
    with pytest.raises(SourceError, match=r"version 1\.0\.0"):
        import_results(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_repeats_of_our_own_export_are_those_of_the_question(tmp_path: Path) -> None:
    repeat = record_line(1, sample_id="fruit#1#1", metadata={"epoch": "2"})
    source = write_record(tmp_path / "data", [record_line(1), repeat])
    document = json.loads(source.read_text())
    ours = {"source_metadata": {"source_name": "eval-factory"}}
    source.write_text(json.dumps(document | ours))
    instances = imported(source, tmp_path / "out")["fruit"].result.instances
    assert [(item.id, item.trial) for item in instances] == [("fruit#1", 0), ("fruit#1", 1)]
