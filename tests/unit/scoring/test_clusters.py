"""A task's rule and an instance -> the source that it shares with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.results import Score
from eval_factory.helm import output
from eval_factory.scoring.clusters import LONGEST_LABEL, Clusters, notes_on_clusters
from eval_factory.scoring.intervals import describe
from eval_factory.scoring.notes import Importance
from eval_factory.tasks.framework import ClusterRule, load_framework

NOWHERE = Path("nowhere")


def instance(text: str = "", number: int = 0, **extra: Any) -> output.Instance:
    return output.Instance.model_validate({"id": f"id{number}", "input": {"text": text}, "extra_data": extra or None})


def label(rule: ClusterRule, one: output.Instance, folder: Path = NOWHERE) -> str:
    found = Clusters.of(rule, folder)
    assert found is not None
    return found.label_of(one)


def test_a_task_without_a_rule_has_no_clusters() -> None:
    assert Clusters.of(None, NOWHERE) is None


def test_a_field_names_the_source() -> None:
    rule = ClusterRule(what="note", field="cluster")
    assert label(rule, instance(cluster="note 7")) == "note 7"
    assert label(rule, instance(cluster=7)) == "7"
    for nothing in ({}, {"other": "x"}, {"cluster": " "}, {"cluster": None}):
        assert label(rule, instance(**nothing)) == "id0"


def test_a_pattern_finds_the_source_in_the_text() -> None:
    rule = ClusterRule(what="question", text="Question: (.+)")
    assert label(rule, instance("Note.\nQuestion: How  much\tis it?\nMore")) == "How much is it?"
    assert label(rule, instance("Note.")) == "id0"


def test_a_long_source_is_its_hash() -> None:
    """It may be a patient's note, and every line of results.jsonl would repeat it."""
    rule = ClusterRule(what="note", text="(?s)(.+)")
    assert label(rule, instance("x" * LONGEST_LABEL)) == "x" * LONGEST_LABEL
    hashed = label(rule, instance("x" * (LONGEST_LABEL + 1)))
    assert len(hashed) == 16
    assert hashed != label(rule, instance("x" * (LONGEST_LABEL + 2)))
    assert hashed == label(rule, instance("x" * (LONGEST_LABEL + 1) + "\n", number=1))
    assert len(label(rule, instance("\ud800" * 99))) == 16


RECORDED = ClusterRule(what="t", text="Q: (.+)", records=("a.json", "b.json"), key="q", labels=("tag", "template"))


def test_what_was_found_is_looked_up_in_the_scenarios_data(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"q": "one", "tag": "T", "template": "U"}, {"q": "two", "tag": ""}]))
    (tmp_path / "b.json").write_text(json.dumps([{"q": "three", "template": "U"}, {"tag": "lost"}, 3]))
    found = [label(RECORDED, instance(f"Q: {name}"), tmp_path) for name in ("one", "two", "three", "four")]
    assert found == ["T", "id0", "U", "id0"]


def test_where_data_are_gone_sources_are_as_they_were(tmp_path: Path) -> None:
    known = {"id0": "T", "id1": "U"}
    for name in ("a.json", "b.json"):  # both are needed
        found = Clusters.of(RECORDED, tmp_path, known)
        assert found is not None
        assert [found.label_of(instance("Q: one", number)) for number in range(3)] == ["T", "U", "id2"]
        (tmp_path / name).write_text(json.dumps([{"q": "one", "tag": "V"}]))
    here = Clusters.of(RECORDED, tmp_path, known)
    assert here is not None
    assert here.label_of(instance("Q: one")) == "V"
    by_field = Clusters.of(ClusterRule(what="note", field="cluster"), tmp_path, known)
    assert by_field is not None
    assert by_field.label_of(instance(cluster="W")) == "W"


@pytest.mark.parametrize("content", [None, b"{", b"{}", b"3", b"\xff"])
def test_records_that_cannot_be_read_leave_each_instance_alone(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    assert label(RECORDED, instance("Q: one"), tmp_path) == "id0"


def rule_of(task: str) -> ClusterRule:
    found = load_framework().task(task)
    assert found is not None
    assert found.helm.cluster is not None
    return found.helm.cluster


MEDCALC = "Patient note: A man. Question: why?\n\nQuestion: {question}\n"


@pytest.mark.parametrize(
    ("task", "one", "other", "same"),
    [
        ("medcalc_bench", MEDCALC.format(question="What is the BMI? "), "Patient note: B\n\nQuestion: What is the BMI?", True),
        ("medcalc_bench", MEDCALC.format(question="What is the BMI?"), MEDCALC.format(question="What is the QTc?"), False),
        ("medcalc_bench", MEDCALC.format(question="Based on the patient's dose of A, what of B?"),
         MEDCALC.format(question="Based on the patient's dose of C, what of D?"), True),
        ("race_based_med", "x\n Question: Why?\nResponse: a", "x\n Question: Why?\nResponse: b", True),
        ("race_based_med", "x\n Question: Why?\nResponse: a", "x\n Question: How?\nResponse: a", False),
        ("medhallu", "World Knowledge: k\n\nQuestion: q\n\nAnswer: a\n",
         "World Knowledge: k\n\nQuestion: q\n\nAnswer: b\n\nAnswer: c\n", True),
        ("medhallu", "World Knowledge: k\n\nQuestion: q\n\nAnswer: a\n", "World Knowledge: k\n\nQuestion: r\n\nAnswer: a\n",
         False),
        ("dischargeme", "Generate A\n\nDischarge Text:\nnote\n\n\n\nRadiology Report:\nr\n\nA:\n",
         "Generate B\n\nDischarge Text:\nnote\n\n\n\nRadiology Report:\nr\n\nB:\n", True),
        ("medi_qa", "How\nmuch?", "How much?", True),
        ("med_dialog", "a: b\nc", "a: b\nd", False),
    ],
)  # fmt: skip
def test_rules_of_tasks(task: str, one: str, other: str, *, same: bool) -> None:
    labels = {label(rule_of(task), instance(text, number)) for number, text in enumerate((one, other))}
    assert (len(labels) == 1) is same
    assert not labels & {"id0", "id1"}


def test_templates_of_queries_are_in_the_scenarios_data(tmp_path: Path) -> None:
    records = [{"question": "what of a?", "q_tag": "what of {x}?"}, {"question": "what of b?", "q_tag": "what of {x}?"}]
    (tmp_path / "ehrsql_valid.json").write_text(json.dumps(records))
    texts = [f"-- Database Schema:\n...\n\n--   Question:\nwhat of {name}?\n\n" for name in "ab"]
    assert {label(rule_of("ehr_sql"), instance(text), tmp_path) for text in texts} == {"what of {x}?"}


def test_notes_tell_of_shared_sources_and_of_a_large_design_effect() -> None:
    rule = ClusterRule(what="note", field="cluster")
    labels = {f"id{number}": str(number // 4) for number in range(32)}
    main = Score(0.5, describe([1.0] * 16 + [0.0] * 16, clusters=list(labels.values())))
    shared, large = notes_on_clusters(rule, labels, main)
    assert shared.text.startswith("32 instances share 8 sources (note): ")
    assert large.text.startswith("the main score's design effect is 4.4 (note): its 32 instances say as much as 7 ")
    assert {shared.importance, large.importance} == {Importance.BACKGROUND}
    alternating = Score(0.5, describe([1.0, 0.0] * 16, clusters=list(labels.values())))
    assert notes_on_clusters(rule, labels, alternating) == [shared]
    assert notes_on_clusters(rule, labels, None) == [shared]
    assert notes_on_clusters(None, {}, main) == []
    assert notes_on_clusters(rule, {"id0": "a", "id1": "b"}, None) == []


def test_a_note_tells_where_few_sources_decide_or_there_is_no_interval() -> None:
    rule = ClusterRule(what="note", field="cluster")
    few = notes_on_clusters(rule, {f"id{number}": str(number // 8) for number in range(32)}, None)[1]
    assert few.importance == Importance.DOUBTFUL
    assert few.text.startswith("few sources decide the interval: 4 sources say as much as 4.0 of equal size, and the")
    assert few.text.endswith(" (note)")
    labels = {f"id{number}": str(max(0, number - 30)) for number in range(40)}
    main = Score(1.0, describe([1.0] * 20 + [0.0] * 20, clusters=list(labels.values())))
    assert main.stats.ci_low is None
    assert notes_on_clusters(rule, labels, main)[1].text.startswith(
        "there is no interval: 10 sources say as much as 1.6"
    )
