"""Requests and answers, as HELM writes them -> what is counted of them, and which share a source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.results import Instances, JudgeCounts, Score
from eval_factory.endpoint import openai_answers
from eval_factory.helm import names, output
from eval_factory.helm.command import deployment_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.intervals import describe
from eval_factory.scoring.jury import Jury
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.request_states import key_of
from eval_factory.scoring.scores import InstanceKey
from eval_factory.scoring.tally import _MAX_SOURCE_NAME, SourceFinder, Tally, notes_on_clusters
from eval_factory.tasks.framework import ClusterRule, load_framework
from facts import says
from known import there

NOWHERE = Path("nowhere")


def instance(text: str = "", number: int = 0, **extra: Any) -> output.Instance:
    return output.Instance.model_validate(
        {"id": f"id{number}", "input": {"text": text}, "extra_data": extra or None}
    )


def label(rule: ClusterRule, one: output.Instance, folder: Path = NOWHERE) -> str:
    found = there(SourceFinder.of(rule, folder))
    return found.source_of(one)


def test_a_field_names_the_source() -> None:
    rule = ClusterRule(what="note", field="cluster")
    assert label(rule, instance(cluster="note 7")) == "note 7"
    assert label(rule, instance(cluster=7)) == "7"
    for nothing in ({}, {"other": "x"}, {"cluster": " "}, {"cluster": None}):
        assert label(rule, instance(**nothing)) == "id0"


def test_a_long_source_is_its_hash() -> None:
    """It may be a patient's note, and every line of results.jsonl would repeat it."""
    rule = ClusterRule(what="note", text="(?s)(.+)")
    assert label(rule, instance("x" * _MAX_SOURCE_NAME)) == "x" * _MAX_SOURCE_NAME
    hashed = label(rule, instance("x" * (_MAX_SOURCE_NAME + 1)))
    assert len(hashed) == 16
    assert hashed != label(rule, instance("x" * (_MAX_SOURCE_NAME + 2)))
    assert hashed == label(rule, instance("x" * (_MAX_SOURCE_NAME + 1) + "\n", number=1))
    assert len(label(rule, instance("\ud800" * 99))) == 16


RECORDED = ClusterRule(
    what="t", text="Q: (.+)", records=("a.json", "b.json"), key="q", labels=("tag", "template")
)


def test_what_was_found_is_looked_up_in_the_scenarios_data(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps([{"q": "one", "tag": "T", "template": "U"}, {"q": "two", "tag": ""}])
    )
    (tmp_path / "b.json").write_text(
        json.dumps([{"q": "three", "template": "U"}, {"tag": "lost"}, 3])
    )
    found = [
        label(RECORDED, instance(f"Q: {name}"), tmp_path)
        for name in ("one", "two", "three", "four")
    ]
    assert found == ["T", "id0", "U", "id0"]


def test_where_data_are_gone_sources_are_as_they_were(tmp_path: Path) -> None:
    known = {"id0": "T", "id1": "U"}
    for name in ("a.json", "b.json"):  # both are needed
        found = there(SourceFinder.of(RECORDED, tmp_path, known))
        assert [found.source_of(instance("Q: one", number)) for number in range(3)] == [
            "T",
            "U",
            "id2",
        ]
        (tmp_path / name).write_text(json.dumps([{"q": "one", "tag": "V"}]))
    here = there(SourceFinder.of(RECORDED, tmp_path, known))
    assert here.source_of(instance("Q: one")) == "V"
    by_field = there(SourceFinder.of(ClusterRule(what="note", field="cluster"), tmp_path, known))
    assert by_field.source_of(instance(cluster="W")) == "W"


@pytest.mark.parametrize("content", [None, b"{", b"{}", b"3", b"\xff"])
def test_records_that_cannot_be_read_leave_each_instance_alone(
    content: bytes | None, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    assert label(RECORDED, instance("Q: one"), tmp_path) == "id0"


MEDCALC = "Patient note: A man. Question: why?\n\nQuestion: {question}\n"
MEDHALLU = "World Knowledge: k\n\nQuestion: "
DISCHARGED = "\n\nDischarge Text:\nnote\n\n\n\nRadiology Report:\nr\n\n"


@pytest.mark.parametrize(
    ("task", "one", "other", "same"),
    [
        (
            "medcalc_bench",
            MEDCALC.format(question="What is the BMI? "),
            "Patient note: B\n\nQuestion: What is the BMI?",
            True,
        ),
        (
            "medcalc_bench",
            MEDCALC.format(question="What is the BMI?"),
            MEDCALC.format(question="What is the QTc?"),
            False,
        ),
        (
            "medcalc_bench",
            MEDCALC.format(question="Based on the patient's dose of A, what of B?"),
            MEDCALC.format(question="Based on the patient's dose of C, what of D?"),
            True,
        ),
        (
            "race_based_med",
            "x\n Question: Why?\nResponse: a",
            "x\n Question: Why?\nResponse: b",
            True,
        ),
        (
            "race_based_med",
            "x\n Question: Why?\nResponse: a",
            "x\n Question: How?\nResponse: a",
            False,
        ),
        (
            "medhallu",
            f"{MEDHALLU}q\n\nAnswer: a\n",
            f"{MEDHALLU}q\n\nAnswer: b\n\nAnswer: c\n",
            True,
        ),
        ("medhallu", f"{MEDHALLU}q\n\nAnswer: a\n", f"{MEDHALLU}r\n\nAnswer: a\n", False),
        ("dischargeme", f"Generate A{DISCHARGED}A:\n", f"Generate B{DISCHARGED}B:\n", True),
        ("medi_qa", "How\nmuch?", "How much?", True),
        ("med_dialog", "a: b\nc", "a: b\nd", False),
    ],
)
def test_rules_of_tasks(task: str, one: str, other: str, *, same: bool) -> None:
    rule = there(there(load_framework().task(task)).helm.cluster)
    labels = {label(rule, instance(text, number)) for number, text in enumerate((one, other))}
    assert (len(labels) == 1) is same
    assert not labels & {"id0", "id1"}


def test_notes_tell_of_shared_sources_and_of_a_large_design_effect() -> None:
    rule = ClusterRule(what="note", field="cluster")
    labels = {f"id{number}": str(number // 4) for number in range(32)}
    main = Score(0.5, describe([1.0] * 16 + [0.0] * 16, clusters=list(labels.values())))
    shared, large = notes_on_clusters(rule, labels, main)
    says(shared.text, "32 instances", "8 sources (note)")
    says(large.text, "design effect", "4.4 (note)", "32 instances", "worth 7 independent")
    assert {shared.importance, large.importance} == {Importance.BACKGROUND}
    alternating = Score(0.5, describe([1.0, 0.0] * 16, clusters=list(labels.values())))
    assert notes_on_clusters(rule, labels, alternating) == [shared]
    assert notes_on_clusters(rule, labels, None) == [shared]
    assert notes_on_clusters(None, {}, main) == []
    assert notes_on_clusters(rule, {"id0": "a", "id1": "b"}, None) == []


def test_a_note_tells_where_few_sources_decide_or_there_is_no_interval() -> None:
    rule = ClusterRule(what="note", field="cluster")
    few = notes_on_clusters(rule, {f"id{number}": str(number // 8) for number in range(32)}, None)[
        1
    ]
    assert few.importance == Importance.DOUBTFUL
    says(few.text, "few sources", "4 sources", "4.0 of equal size")
    assert few.text.endswith(" (note)")
    labels = {f"id{number}": str(max(0, number - 30)) for number in range(40)}
    main = Score(1.0, describe([1.0] * 20 + [0.0] * 20, clusters=list(labels.values())))
    assert main.stats.ci_low is None
    none = notes_on_clusters(rule, labels, main)[1]
    says(none.text, "no interval", "10 sources", "1.6")


Entry = dict[str, Any]
ANSWER = "Take it with food."
ANNOTATION = "aci_bench"


def entry(number: int, text: str | None = ANSWER, **more: Any) -> Entry:
    """An entry of scenario_state.json; `text` None: there is no result."""
    instance = {"id": f"id{number}", "input": {"text": f"question {number}"}, "split": "test"}
    result = None if text is None else {"success": True, "completions": [{"text": text}]}
    known = {"train_trial_index": 0, "request": {"prompt": f"prompt {number}"}, "result": result}
    return {**known, **more, "instance": {**instance, **more.get("instance", {})}}


def failed(number: int, error: str | None = "HTTP 500: broken", **more: Any) -> Entry:
    return entry(number, result={"success": False, "error": error}, **more)


def filtered(number: int, **more: Any) -> Entry:
    return failed(number, openai_answers.FILTERED_MESSAGE, **more)


def cut_off(number: int, text: str = ANSWER, reason: str = openai_answers.CUT_OFF) -> Entry:
    completion = {"text": text, "finish_reason": {"reason": reason}}
    return entry(number, result={"success": True, "completions": [completion]})


def key(number: int, trial: int = 0, perturbation: str | None = None) -> InstanceKey:
    return (f"id{number}", trial, perturbation)


def run_of(
    folder: Path, *entries: Entry, metrics: Collection[str] = (), **spec: Any
) -> output.HelmRun:
    document = json.dumps({"request_states": entries}, indent=2)
    (folder / names.SCENARIO_STATE_FILE).write_text(document, encoding="utf-8")
    stats = [
        output.Stat(name=output.MetricName(name=name, split="test"), count=1) for name in metrics
    ]
    return output.HelmRun(folder, output.StoredRunSpec.model_validate({"name": "r", **spec}), stats)


def seen_in(here: Plan, run: output.HelmRun) -> Tally:
    """With what the jury said."""
    tally = Tally.of(here, run)
    jury = Jury(here, run.jury, tally) if run.jury else None
    for state in run.request_states():
        tally.see(key_of(state), state)
        if jury:
            jury.see(key_of(state), state)
    if jury:
        jury.count(draft(run, plan=here, tally=tally))
    return tally


def seen_of(folder: Path, *entries: Entry, metrics: Collection[str] = ()) -> Tally:
    return seen_in(plan(), run_of(folder, *entries, metrics=metrics))


def judged_plan(model: str, **judges: str) -> Plan:
    """A plan of a task with a jury: judge -> its model."""
    jury = [{"name": name, "model_id": judge} for name, judge in judges.items()]
    return plan(
        {
            "config.type": "aci_bench",
            "target.api_endpoint.model_id": model,
            "config.params.extra.judges": jury,
        }
    )


def jury_of(here: Plan) -> dict[str, Any]:
    """HELM's metric, which has names of its own for the judges."""
    models = {
        f"helm-{judge.role}": {"model_deployment": deployment_of(judge)} for judge in here.judges
    }
    arguments = {
        "metric_name": "aci_bench_accuracy",
        "scenario_name": ANNOTATION,
        "annotator_models": models,
    }
    return {"class_name": "helm.x.LLMJuryMetric", "args": arguments}


def judged(number: int, text: str = ANSWER, **given: int | str | None) -> Entry:
    """An answer with each judge's rating, or why it gave none."""
    said: dict[str, Any] = {"prompt_text": "p", names.NOT_JUDGED_FIELD: {}}
    for judge, rating in given.items():
        if isinstance(rating, int):
            said[f"helm-{judge}"] = {"accuracy": {"score": rating}, "clarity": {"score": rating}}
        elif rating is not None:
            said[names.NOT_JUDGED_FIELD][f"helm-{judge}"] = rating
    return entry(number, text, annotations={ANNOTATION: said})


def seen_by_jury(folder: Path, here: Plan, *entries: Entry) -> Tally:
    return seen_in(here, run_of(folder, *entries, metric_specs=[jury_of(here)]))


TYPOS = {"perturbation": {"name": "typos"}}


def test_an_instance_counts_once_for_each_trial_and_perturbation_and_repeated_rows_within_their_split(
    tmp_path: Path,
) -> None:
    def row(number: int, gold: str, **instance: Any) -> Entry:
        references = [{"output": {"text": gold}, "tags": ["correct"]}]
        return entry(
            number, instance={"input": {"text": "the same"}, "references": references, **instance}
        )

    seen = seen_of(
        tmp_path,
        row(0, "a"),
        row(1, "a"),
        row(1, "a") | {"train_trial_index": 1},
        row(2, "a", split="valid"),
        row(3, "b"),
        row(4, "a", **TYPOS),
    )
    assert seen.requested == {*(key(number) for number in range(4)), key(1, 1), key(4, 0, "typos")}
    assert (seen.repeated.with_same_gold, seen.repeated.with_another_gold) == ({"id1"}, {"id3"})


def test_the_hash_of_the_prompts_is_of_ids_and_prompts_in_their_order(tmp_path: Path) -> None:
    """Two runs have asked the same where they have sent the same prompts for the same instances."""
    seen = seen_of(tmp_path, entry(0), failed(1), entry(2, request={}))
    expected = hashlib.sha256(b'["id0", "prompt 0"]["id1", "prompt 1"]["id2", null]')
    assert seen.prompts_hash.hexdigest() == expected.hexdigest()


def test_instances_are_grouped_by_their_texts_and_their_sub_split(tmp_path: Path) -> None:
    """Numbers are no groups, and a field of the instances that is called `sub_split` does not hide HELM's."""
    seen = seen_of(
        tmp_path,
        entry(
            0,
            instance={
                "extra_data": {"ward": "a", "age": 50, "sub_split": "own"},
                "sub_split": "easy",
            },
        ),
        failed(1, instance={"extra_data": {"ward": "b"}, "sub_split": "easy"}),
        entry(2, instance={"extra_data": {"ward": "a", "sub_split": "own"}}),
    )
    assert {name: dict(groups) for name, groups in seen.members.items()} == {
        "ward": {"a": [key(0), key(2)], "b": [key(1)]},
        "sub_split": {"easy": [key(0), key(1)], "own": [key(2)]},
    }


def test_an_unknown_finish_reason_is_counted_by_its_name(tmp_path: Path) -> None:
    words = ("stop", "repetition\x1b", "repetition\x1b", "x" * 100, "MAX_TOKENS")
    entries = [cut_off(number, reason=word) for number, word in enumerate(words)]
    seen = seen_of(tmp_path, *entries)
    assert seen.truncated == {key(4)}
    assert seen.unknown_reasons == {"repetition\\x1b": 2, "x" * 40: 1}


def test_kinds_of_answers_are_told_apart(tmp_path: Path) -> None:
    mute = entry(1, " \n"), entry(2, None), cut_off(3), cut_off(4, ""), failed(5), filtered(6)
    seen = seen_of(tmp_path, entry(0), *mute)
    assert (seen.failed, seen.empty, seen.truncated) == (
        {key(2), key(5)},
        {key(1), key(4)},
        {key(3), key(4)},
    )
    assert (seen.filtered, seen.silent_instances, seen.unjudged) == (
        {key(6)},
        {key(1), key(4), key(6)},
        set(),
    )
    assert len(seen.truncated & seen.empty) == 1
    seen.unjudged = {key(0), key(3), key(8)}
    counts = Instances(
        requested=7, scored=5, failed=2, empty=2, truncated=2, filtered=1, unjudged=3
    )
    assert seen.counts({key(2), key(5), key(99)}) == counts


def test_an_answer_that_helm_cannot_score_is_failed_with_its_reason_and_split(
    tmp_path: Path,
) -> None:
    unscorable = failed(1, f"{names.UNSCORABLE_PREFIX}ValueError", instance={"split": "valid"})
    seen = seen_of(tmp_path, failed(0), unscorable, failed(2, None))
    assert seen.failed == {key(0), key(1), key(2)}
    assert seen.unscorable == {key(1): ("ValueError", "valid")}


def test_instances_whose_right_answer_is_nothing_count_for_quasi_metrics(tmp_path: Path) -> None:
    def references(*texts: str, tag: str = output.CORRECT_TAG) -> dict[str, Any]:
        return {"references": [{"output": {"text": text}, "tags": [tag]} for text in texts]}

    entries = (
        entry(0, instance=references("A", "the")),
        entry(1, instance=references("B")),
        entry(2, instance=references("A", tag="wrong")),
        failed(3, instance=references("B", "A")),
        entry(4, instance=references()),
    )
    for metrics, expected in ((("em", "quasi_exact_match"), 2), (("em",), 0), ((), 0)):
        assert seen_of(tmp_path, *entries, metrics=metrics).emptied_right_answers == expected


# Juries


def test_judges_are_counted_under_their_names_in_the_configuration(tmp_path: Path) -> None:
    here = judged_plan("org/own", a="org/one", b="org/two")
    entries = (
        judged(0, a=4, b=2),
        judged(1, a=5, b="HTTP 500: no"),
        judged(2, a=None, b=None),
        judged(3, " "),
        failed(4),
        filtered(5),
    )
    seen = seen_by_jury(tmp_path, here, *entries)
    assert seen.judges == {"a": JudgeCounts(3, 2, 1, None), "b": JudgeCounts(3, 1, 2, None)}
    assert dict(seen.ratings.by_judge) == {
        "a": {key(0): {"accuracy": 4, "clarity": 4}, key(1): {"accuracy": 5, "clarity": 5}},
        "b": {key(0): {"accuracy": 2, "clarity": 2}},
    }
    assert seen.unjudged == {key(2)}
    late = seen_by_jury(tmp_path, here, judged(0, a="HTTP 500: no", b=2), judged(1, a=5, b=2))
    assert list(late.ratings.by_judge) == list(late.judges) == ["a", "b"]
    assert seen.ratings.empty_answers == {key(3), key(5)}
    assert [(cause.role, cause.count, cause.cause) for cause in seen.causes.listed()] == [
        ("model", 1, "HTTP 500: broken"),
        ("a", 1, "no error was recorded"),
        ("b", 1, "HTTP 500: no"),
        ("b", 1, "no error was recorded"),
    ]


def test_a_judge_may_be_of_the_models_family(tmp_path: Path) -> None:
    for model, judge, same in (
        ("openai/gpt-4o", "openai/gpt-4.1", True),
        ("openai/gpt-4o", "claude-3-7-sonnet", False),
        ("openai/gpt-4o", "org/own", None),
        ("org/own", "openai/gpt-4o", None),
        ("org/own", "org/other", None),
    ):
        assert (
            seen_by_jury(tmp_path, judged_plan(model, a=judge), judged(0, a=4))
            .judges["a"]
            .same_family
            is same
        )


# What remains to ask


def test_what_can_still_be_answered_is_asked_again() -> None:
    for failures, unscorable, unheard, expected in (
        (0, 0, (0, 0), False),
        (1, 0, (0, 0), True),
        (1, 1, (0, 0), False),
        (2, 1, (0, 0), True),
        (0, 0, (0, 1), True),
        (1, 1, (1, 0), True),
    ):
        judges = {
            name: JudgeCounts(9, 9 - count, count)
            for name, count in zip("ab", unheard, strict=True)
        }
        tally = Tally(judges=judges, failed=set(map(key, range(failures))))
        tally.unscorable = dict.fromkeys(map(key, range(unscorable)), ("why", None))
        assert tally.something_to_ask is expected


def test_the_source_of_an_instance_is_that_of_its_unperturbed_text(tmp_path: Path) -> None:
    def asked(number: int, question: str, **more: Any) -> Entry:
        return entry(
            number, instance={"input": {"text": f"Question: {question}\nResponse: r"}, **more}
        )

    run = run_of(
        tmp_path,
        asked(0, "Whyy?", **TYPOS),
        asked(0, "Why?"),
        asked(0, "Wy?", **TYPOS),
        asked(1, "How?"),
    )
    seen = seen_in(plan({"config.type": "race_based_med"}), run)
    assert seen.clusters == {"id0": "Why?", "id1": "How?"}
    assert seen_of(tmp_path, entry(0)).clusters == {}


def test_the_field_that_names_the_source_sorts_into_no_groups(tmp_path: Path) -> None:
    here = plan()
    task = here.evaluation.task
    helm = replace(task.helm, cluster=ClusterRule(what="note", field="note"))
    here = replace(here, evaluation=replace(here.evaluation, task=replace(task, helm=helm)))
    seen = seen_in(
        here, run_of(tmp_path, entry(0, instance={"extra_data": {"note": "n1", "ward": "north"}}))
    )
    assert (seen.clusters, set(seen.members)) == ({"id0": "n1"}, {"ward"})
