"""The collector on small HELM output made here: exclusion, bounds, labels, juries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.results import JudgeCounts, Judgements, TaskResult
from eval_factory.endpoint import response_cache
from eval_factory.helm import names
from eval_factory.helm.names import NOT_JUDGED_FIELD
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.collect import collect
from eval_factory.scoring.scores import helm_mean
from facts import says
from known import near, there

TEST = "test"
VALID = "valid"


def state(number: int, text: str | None, *, split: str = TEST, **changes: Any) -> dict[str, Any]:
    """A request state as HELM writes it; `text` None is a failed request."""
    result: dict[str, Any] = {
        "success": text is not None,
        "cached": False,
        "completions": [{"text": text or ""}],
    }
    if text is None:
        result["error"] = "HTTP 500: broken"
    instance = {
        "id": f"id{number}",
        "input": {"text": f"question {number}"},
        "split": split,
        "references": [{"output": {"text": "yes"}, "tags": ["correct"]}],
        "extra_data": {"category": "odd" if number % 2 else "even", "long": "x" * 500},
    }
    request = {
        "prompt": f"prompt {number}",
        "temperature": 0.0,
        "max_tokens": 5,
        "top_p": 1,
        "num_completions": 1,
    }
    return {
        "instance": {**instance, **changes.pop("instance", {})},
        "train_trial_index": 0,
        "request": request,
        "result": {**result, **changes.pop("result", {})},
        **changes,
    }


def write_run(
    folder: Path,
    states: list[dict[str, Any]],
    values: dict[str, list[float | None]],
    metric_specs: list[dict[str, Any]] | None = None,
    perturbation: dict[str, Any] | None = None,
) -> None:
    """A run folder in which each metric has a value per state (None: this instance has none)."""
    per_instance = []
    totals = dict[tuple[str, str], list[float]]()
    for index, one in enumerate(states):
        stats = []
        for name, column in values.items():
            value = column[index]
            if value is None:
                continue
            split = one["instance"]["split"]
            stats.append(
                {"name": {"name": name, "split": split}, "count": 1, "sum": value, "mean": value}
            )
            totals.setdefault((name, split), []).append(value)
        per_instance.append(
            {"instance_id": one["instance"]["id"], "train_trial_index": 0, "stats": stats}
        )
    aggregated: list[dict[str, Any]] = []
    for (name, split), numbers in totals.items():
        mean = helm_mean({(str(i), 0, None): number for i, number in enumerate(numbers)})
        aggregated.append(
            {"name": {"name": name, "split": split}, "count": 1, "sum": mean, "mean": mean}
        )
    aggregated.append(
        {"name": {"name": "num_references", "split": TEST}, "count": 1, "sum": 1, "mean": 1.0}
    )
    aggregated.append({"name": {"name": "never", "split": TEST}, "count": 0, "sum": 0})
    worst = {"name": "robustness", "computed_on": "worst", "robustness": True}
    aggregated.append(
        {
            "name": {"name": "exact_match", "split": TEST, "perturbation": worst},
            "count": 1,
            "mean": 0.0,
        }
    )
    if perturbation:
        aggregated.append(
            {
                "name": {"name": "exact_match", "split": TEST, "perturbation": perturbation},
                "count": 1,
                "mean": 0.25,
            }
        )
        per_instance.append(
            {"instance_id": "p", "perturbation": perturbation, "train_trial_index": 0, "stats": []}
        )
    folder.mkdir(parents=True)
    documents = {
        "run_spec.json": {"name": "r", "metric_specs": metric_specs or []},
        "scenario_state.json": {"request_states": states},
        "stats.json": aggregated,
        "per_instance_stats.json": per_instance,
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2))


def result_of(tmp_path: Path, flags: dict[str, Any] | None = None, **run: Any) -> TaskResult:
    here: Plan = plan({"config.output_dir": str(tmp_path / "out"), **(flags or {})})
    folder = here.rundir.helm / "runs" / "s" / "r"
    write_run(folder, **run)
    response_cache.create_or_check(here.rundir.cache_db)
    return collect(here, [folder], run_id="run", wall_s=1.0, git_hash=None)


RUBRIC = "healthbench_score"
FOUR = [1.0, 0.0, 1.0, 0.0]
JURY: dict[str, Any] = {
    "class_name": "helm.benchmark.metrics.llm_jury_metrics.LLMJuryMetric",
    "args": {
        "metric_name": "aci_bench_accuracy",
        "scenario_name": "aci_bench",
        "annotator_models": {name: {"model_deployment": f"endpoint/{name}"} for name in "ab"},
    },
}


def by_jury(
    folder: Path,
    states: list[dict[str, Any]],
    marks: list[float],
    others: dict[str, list[float]] | None = None,
    **flags: Any,
) -> TaskResult:
    """Of aci_bench; `others` are other metrics, `flags` extra ones."""
    flags = {
        "config.type": "aci_bench",
        **{f"config.params.extra.{name}": value for name, value in flags.items()},
    }
    values = {"aci_bench_accuracy": marks, **(others or {})}
    return result_of(folder, flags, states=states, metric_specs=[JURY], values=values)


def test_all_answered(tmp_path: Path) -> None:
    result = result_of(
        tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR}
    )
    (score,) = result.scores.values()
    assert (score.metric, score.value, score.stats.count) == ("exact_match", 0.5, 4)
    assert result.validity.bounds == {"exact_match": (0.5, 0.5)}
    assert (result.status, result.reportable, result.groups) == ("complete", True, {})
    assert any(note.endswith("by category") for note in result.validity.notes)
    assert result.validity.urgent_notes == 0


def test_instances_of_one_question_are_one_source(tmp_path: Path) -> None:
    """race_based_med: its answers to one question stand and fall together."""
    texts = [
        f"Rate it.\n Question: {'abcd'[number // 5]}?\nResponse: {number}" for number in range(20)
    ]
    states = [
        state(number, "no", instance={"input": {"text": text}}) for number, text in enumerate(texts)
    ]
    values = {"exact_match": [1.0] * 10 + [0.0] * 10}
    result = result_of(tmp_path, {"config.type": "race_based_med"}, states=states, values=values)
    stats = result.scores["exact_match"].stats
    assert (stats.count, stats.clusters, stats.ci_method) == (20, 4, "wilson-clustered")
    # distances' sums are 2.5 in each of four clusters: 4 / 3 * 25 / 400 over 0.25 / 19
    assert stats.design_effect == near(4 / 3 * 25 / 400 / (0.25 / 19))
    assert [record.cluster for record in result.instances][::5] == ["a?", "b?", "c?", "d?"]
    few, shared, large = [note for note in result.validity.notes if "(question)" in note]
    says(few, "few sources", "4 sources", "4.0 of equal size")
    says(shared, "20 instances", "4 sources (question)")
    says(large, "design effect", "6.3 (question)", "20 instances", "worth 3 independent")
    even = result.groups["category"]["even"]["exact_match"].stats
    assert (even.count, even.clusters) == (10, 4)


UNSCORABLE: dict[str, Any] = {
    "result": {"error": f"{names.UNSCORABLE_PREFIX}ValueError in SomeMetric (some_metric.py:80)"}
}


def test_an_answer_that_helm_cannot_score_is_failed_and_not_asked_again(tmp_path: Path) -> None:
    states = [state(0, "yes"), state(1, None, **UNSCORABLE), state(2, "yes"), state(3, "no")]
    values: dict[str, list[float | None]] = {
        "exact_match": [1.0, 0.0, 1.0, 0.0],
        "raises": [1.0, None, 1.0, 0.0],
    }
    result = result_of(tmp_path / "exclude", states=states, values=values)
    instances = result.validity.instances
    assert (instances.failed, instances.scored, result.something_to_ask) == (1, 3, False)
    first, second = [note for note in result.validity.notes if "failed" in note]
    assert "the same command" not in first + second
    says(second, "1 of the failed", "HELM cannot score", "ValueError")
    assert {result.scores[name].stats.count for name in values} == {3}
    assert result.validity.bounds == dict.fromkeys(values, (0.5, 0.75))
    zero = result_of(
        tmp_path / "zero", {"config.params.extra.on_failure": "zero"}, states=states, values=values
    )
    assert [zero.scores[name].value for name in values] == [0.5, 0.5]


def test_the_place_of_an_unscorable_answer_is_kept_in_its_own_split_only(tmp_path: Path) -> None:
    states = [
        state(0, "yes"),
        state(1, None, split=VALID, **UNSCORABLE),
        state(2, "no"),
        state(3, "no", split=VALID),
    ]
    result = result_of(tmp_path, states=states, values={"raises": [1.0, None, 0.0, 1.0]})
    assert result.validity.bounds == {"raises": (0.5, 0.5), "raises@valid": (0.5, 1.0)}


def test_a_failed_instance_is_left_out_and_bounded(tmp_path: Path) -> None:
    states = [state(0, "yes"), state(1, None), state(2, "yes"), state(3, "no")]
    result = result_of(tmp_path, states=states, values={"exact_match": FOUR})
    score = result.scores["exact_match"]
    assert (score.value, score.stats.count) == (
        helm_mean({(name, 0, None): name != "c" for name in "abc"}),
        3,
    )
    assert result.validity.bounds["exact_match"] == (0.5, 0.75)
    assert (result.validity.instances.failed, result.validity.instances.scored) == (1, 3)
    assert (result.status, result.reportable) == ("partial", False)
    record = list(result.instances)[1]
    assert (record.completion, dict(record.metrics), record.error) == (None, {}, "HTTP 500: broken")


def test_splits_and_perturbations_do_not_overwrite_each_other(tmp_path: Path) -> None:
    states = [state(0, "yes"), state(1, "yes", split=VALID)]
    result = result_of(
        tmp_path,
        states=states,
        values={"exact_match": [1.0, 0.0]},
        perturbation={"name": "typos", "robustness": True, "computed_on": "perturbed"},
    )
    values = {"": 1.0, "@valid": 0.0, "@test+typos": 0.25, "@test+robustness.worst": 0.0}
    assert {
        name.removeprefix("exact_match"): score.value for name, score in result.scores.items()
    } == values


def test_an_instance_without_judgement_is_out_of_the_jurys_score(tmp_path: Path) -> None:
    """HELM gives it full marks: 13 of its run specs have a default score of 1."""
    judged = {"aci_bench": {"prompt_text": "p", "a": {"accuracy": {"score": 4}}, "b": None}}
    silent = {"aci_bench": {"prompt_text": "p", "a": None}}
    states = [
        state(number, "text", annotations=one)
        for number, one in enumerate((judged, silent, judged))
    ]
    result = by_jury(tmp_path, states, [4.0, 1.0, 4.0], {"exact_match": [0.0, 1.0, 0.0]})
    values = {label: (score.value, score.stats.count) for label, score in result.scores.items()}
    assert (values["aci_bench_accuracy"], values["exact_match"]) == ((4.0, 2), (near(1 / 3), 3))
    assert "aci_bench_accuracy.all_judges" not in values
    validity = result.validity
    assert validity.judges == {"a": JudgeCounts(3, 2, 1, None), "b": JudgeCounts(3, 0, 3, None)}
    # each of the two that judge a rated lacks b's judgement, the third lacks both
    assert validity.bounds["aci_bench_accuracy"] == near(((2.5 + 1 + 2.5) / 3, (4.5 + 5 + 4.5) / 3))
    assert (validity.judgements, validity.coverage) == (Judgements(due=6, given=2), near(1 / 3))
    assert (validity.instances.unjudged, result.reportable) == (1, False)
    assert [reason.partition(" gave")[0] for reason in validity.not_reportable] == [
        "judge a",
        "judge b",
    ]
    both = {"aci_bench_accuracy": 4.0, "exact_match": 0.0}
    assert [(line.unjudged, dict(line.metrics)) for line in result.instances] == [
        (False, both),
        (True, {"exact_match": 1.0}),
        (False, both),
    ]


def test_an_answer_with_nothing_in_it_gets_the_lowest_mark(tmp_path: Path) -> None:
    """No judge is asked about it; the mean without it would be better for saying nothing."""
    judged = {
        "aci_bench": {
            "prompt_text": "p",
            "a": {"accuracy": {"score": 4}},
            "b": {"accuracy": {"score": 4}},
        }
    }
    states = [
        state(0, "text", annotations=judged),
        state(1, " ", annotations={"aci_bench": {"prompt_text": None}}),
    ]
    result = by_jury(tmp_path, states, [4.0, 0.0], max_unreadable=0.5)
    assert (
        result.scores["aci_bench_accuracy"].value,
        result.scores["aci_bench_accuracy.helm"].value,
    ) == (2.5, 2.0)
    assert (result.status, result.reportable, result.something_to_ask) == ("complete", True, False)
    assert (result.validity.instances.scored, result.validity.instances.unjudged) == (2, 0)
    assert result.validity.judges["a"].asked == 1
    assert there(result.validity.jury).leave_one_out == {"a": 2.5, "b": 2.5}
    assert [line.metrics["aci_bench_accuracy"] for line in result.instances] == [4.0, 1.0]


HEARD = {"aci_bench": {"prompt_text": "p", **{name: {"accuracy": {"score": 4}} for name in "ab"}}}
HALF = {"aci_bench": {"prompt_text": "p", "a": {"accuracy": {"score": 2}}, "b": None}}


def judged_by_both_but(folder: Path, half: int, of: int, **flags: Any) -> TaskResult:
    """Judge b says nothing of `half` answers."""
    states = [
        state(number, "text", annotations=HALF if number < half else HEARD) for number in range(of)
    ]
    return by_jury(folder, states, [2.0] * half + [4.0] * (of - half), **flags)


def test_a_judge_that_said_nothing_makes_it_another_jury(tmp_path: Path) -> None:
    result = judged_by_both_but(tmp_path, 20, of=20)
    assert result.validity.instances.coverage == 1.0  # judge a rated each
    assert (result.status, result.reportable, result.something_to_ask) == ("partial", False, True)
    assert (result.validity.judgements, result.validity.coverage) == (Judgements(40, 20), 0.5)
    (reason,) = result.validity.not_reportable
    says(reason, "judge b", "20 of 20 answers", "max_judge_failures is 0.1")
    assert result.validity.bounds["aci_bench_accuracy"] == (1.5, 3.5)
    assert result.scores["aci_bench_accuracy"].value == 2.0
    assert judged_by_both_but(tmp_path / "a", 20, of=20, max_judge_failures=1.0).reportable, (
        "the user's choice"
    )
    assert not judged_by_both_but(tmp_path / "b", 1, of=20, max_judge_failures=0).reportable


def test_the_score_over_what_all_judges_rated_stands_beside(tmp_path: Path) -> None:
    result = judged_by_both_but(tmp_path, 1, of=10)
    assert (result.reportable, result.status, result.validity.not_reportable) == (
        True,
        "partial",
        (),
    )
    assert result.validity.judgements == Judgements(20, 19)
    assert {
        label: (score.value, score.stats.count, score.metric)
        for label, score in result.scores.items()
    } == {
        "aci_bench_accuracy": (near(3.8), 10, "aci_bench_accuracy"),
        "aci_bench_accuracy.all_judges": (4.0, 9, "aci_bench_accuracy"),
    }


def test_who_was_asked_and_what_answers_state_is_kept(tmp_path: Path) -> None:
    """Only of the answers of this run: others in the cache may be of another endpoint."""
    judges = [
        {"name": name, "model_id": "org/judge", "url": f"http://{name}.example/v1"} for name in "ab"
    ]
    here = plan({"config.type": "aci_bench", "config.output_dir": str(tmp_path / "out")})
    here.rundir.helm.mkdir(parents=True)
    record = {"judge_prompts": {"aci_bench": ["c" * 64], "other": []}}
    (here.rundir.helm / names.RUN_RECORD_FILE).write_text(json.dumps(record))
    for run_id, stated in (("run", "fallback"), ("before", "org/model")):
        kept = response_cache.ResponseCache(here.rundir.cache_db, run_id)
        attempt = response_cache.Attempt(run_id, "model", 1, "answered", 200, None, 1.0, 0.1)
        answer = response_cache.Answer(
            run_id, "model", "org/model", {"top_p": 1}, {"model": stated}, 1.0, 0.1
        )
        kept.save(answer, attempt)
        kept.close()
    result = judged_by_both_but(tmp_path, 0, of=3, judges=judges)
    endpoints = result.provenance.endpoints
    assert list(endpoints) == ["model", "a", "b"]
    assert (endpoints["model"].stated_models, endpoints["model"].sampling) == (
        {"fallback": 1},
        ({"top_p": 1},),
    )
    judged = [("org/judge", f"{name}.example", ("c" * 64,)) for name in "ab"]
    asked = [(one.model, one.host, one.prompt_sha256) for one in endpoints.values()]
    assert asked == [("org/model", "host.example", None), *judged]
    (reason,) = result.validity.not_reportable
    says(reason, "1 of 1 answers", "another model", "org/model")
    assert not result.reportable
    says("\n".join(result.validity.notes), "judges a and b", "the same model, org/judge")


def test_what_no_judge_scored_counts_where_the_main_metric_is_not_the_jurys(tmp_path: Path) -> None:
    unjudged = {"aci_bench": {"prompt_text": "p", "a": None}}
    states = [state(number, "CORRECT", annotations=unjudged) for number in range(20)]
    result = result_of(
        tmp_path,
        {"config.type": "medec"},
        states=states,
        metric_specs=[JURY],
        values={"medec_error_flag_accuracy": FOUR * 5, "aci_bench_accuracy": [1.0] * 20},
    )
    assert (result.main_metric, result.reportable) == ("medec_error_flag_accuracy", True)
    assert (result.validity.instances.scored, result.something_to_ask) == (20, True)
    assert result.groups["category"]["odd"]["medec_error_flag_accuracy"].stats.count == 10
    corrected = result.groups["category"]["even"]["medec_error_flag_accuracy.corrected"]
    assert (corrected.value, corrected.stats.count) == (0.0, 10)  # "text" names no sentence
    assert "aci_bench_accuracy" not in result.scores
    says("\n".join(result.validity.notes), "aci_bench_accuracy is absent", "no judge")


@pytest.mark.parametrize(("second", "reported"), [("no", True), (None, False)])
def test_a_score_of_all_answers_at_once_needs_all_of_them(
    tmp_path: Path, second: str | None, reported: bool
) -> None:
    """HELM keeps no value of an instance."""
    here = plan({"config.output_dir": str(tmp_path / "out")})
    folder = here.rundir.helm / "runs" / "s" / "r"
    write_run(folder, [state(0, "yes"), state(1, second)], {"exact_match": [1.0, 0.0]})
    stats = json.loads((folder / "stats.json").read_text())
    stats.append({"name": {"name": "macro_f1", "split": TEST}, "count": 1, "sum": 0.4, "mean": 0.4})
    (folder / "stats.json").write_text(json.dumps(stats))
    response_cache.create_or_check(here.rundir.cache_db)
    result = collect(here, [folder], run_id="run", wall_s=1.0, git_hash=None)
    assert ("macro_f1" in result.scores) is reported
    assert (
        any(note.startswith("macro_f1 is absent") for note in result.validity.notes) is not reported
    )


def test_a_run_spec_has_the_main_split_that_helm_names(tmp_path: Path) -> None:
    """boolq's is `valid`, of which a small sample may hold none; a task of ours keeps `test`."""
    flags = {"config.type": "helm:boolq"}
    metric = "quasi_exact_match"
    states = [state(0, "yes"), state(1, "yes", split=VALID)]
    result = result_of(tmp_path, flags, states=states, values={metric: [1.0, 0.0]})
    assert (result.task, result.main_metric) == ("helm:boolq", metric)
    assert (result.scores[metric].value, result.scores[f"{metric}@test"].value) == (0.0, 1.0)
    without = result_of(tmp_path / "without", flags, states=states[:1], values={metric: [1.0]})
    says("\n".join(without.validity.notes), "main split valid", "split test")


def test_a_run_without_any_score_is_not_reportable(tmp_path: Path) -> None:
    states = [state(0, "yes"), state(1, None)]
    result = result_of(
        tmp_path, {"config.type": "helm:simple_mcqa"}, states=states, values={"num_x": [1.0, 1.0]}
    )
    assert (result.main_metric, result.reportable, dict(result.scores)) == ("none", False, {})
    first, second, *_ = result.validity.notes
    assert ("no score" in first, "instances failed" in second) == (True, True)


def test_why_judges_gave_no_judgement_is_grouped_by_judge(tmp_path: Path) -> None:
    given = {"accuracy": {"score": 4}}
    annotations: list[dict[str, Any]] = [
        {"prompt_text": "p", "a": given, "b": given},
        {"prompt_text": "p", "a": given, NOT_JUDGED_FIELD: {"b": "HTTP 500: boom 1"}},
        {"prompt_text": "p", "a": given, NOT_JUDGED_FIELD: {"b": "HTTP 500: boom 2"}},
        {"prompt_text": "p", "b": given, NOT_JUDGED_FIELD: "of another shape"},
        {"prompt_text": None, "empty_output_equivalence_judgement": False},
    ]
    states = [
        state(i, "text" if i < 4 else "", annotations={"aci_bench": one})
        for i, one in enumerate(annotations)
    ]
    result = by_jury(tmp_path, states, [4.0, 4.0, 4.0, 4.0, 1.0])
    told = [(cause.role, cause.count, cause.cause) for cause in result.validity.failures]
    assert told == [("a", 1, "no error was recorded"), ("b", 2, "HTTP 500: boom ...")]


def test_of_a_repeated_instance_one_counts_whichever_was_answered(tmp_path: Path) -> None:
    """The corrected score of med_dialog counts the first of several; that one failed here, its twin did not."""
    jury = {
        **JURY,
        "args": {
            **JURY["args"],
            "metric_name": "med_dialog_accuracy",
            "scenario_name": "med_dialog",
        },
    }
    judged = {"med_dialog": {"prompt_text": "p", "a": {"accuracy": {"score": 4}}}}
    same = {"input": {"text": "the same"}}
    states = [
        state(0, None, instance=same),
        state(1, "text", annotations=judged),
        state(2, "text", annotations=judged, instance=same),
    ]
    result = result_of(
        tmp_path,
        {"config.type": "med_dialog_icliniq"},
        states=states,
        metric_specs=[jury],
        values={"med_dialog_accuracy": [1.0, 4.0, 4.0]},
    )
    corrected = "med_dialog_accuracy.corrected"
    # what holds of most weighs least
    score = result.scores[corrected]
    (*_, defect, age) = result.validity.notes
    assert (score.stats.count, score.metric, score.split) == (2, corrected, TEST)
    assert result.validity.bounds[corrected] == (2.5, 4.5)  # judge b rated none
    says(age, "have been public")
    assert defect.startswith(corrected)
    says(defect, "1 instance", "does not count")


def test_a_rubric_is_scored_as_published_and_says_what_its_judges_left_open(tmp_path: Path) -> None:
    met = {"criteria_met": True}
    not_met = {"criteria_met": False}
    broken = {"error": "HTTP 500"}
    rubrics = [
        {"criterion": "good", "points": 8, "tags": ["axis:accuracy"]},
        {"criterion": "bad", "points": -4, "tags": []},
    ]
    instance = {"extra_data": {"rubrics": rubrics, "tags": ["theme:care"]}}
    said = [{"a": not_met, "b": not_met}, {"a": met, "b": met}]
    unheard = [{"a": broken, "b": broken}] * 2
    states = [
        state(
            number,
            "x",
            instance=instance,
            annotations={"rubric": {"criteria": said if number else unheard}},
        )
        for number in range(12)
    ]
    spec = {
        "class_name": names.RUBRIC_METRIC_CLASS,
        "args": {"metric_name": RUBRIC, "judges": {"a": "x", "b": "y"}},
    }
    flags = {"config.type": "healthbench", "config.params.extra.max_judge_failures": 0.01}
    result = result_of(
        tmp_path, flags, states=states, metric_specs=[spec], values={RUBRIC: [-0.5] * 12}
    )
    assert result.main_metric == RUBRIC
    assert {name: score.value for name, score in result.scores.items()} == {
        RUBRIC: 0.0,
        f"{RUBRIC}.unclipped": -0.5,
    }
    assert result.validity.bounds[RUBRIC] == (0.0, 0.0)
    criteria = there(result.validity.rubric).criteria
    assert (criteria.asked, criteria.unjudged) == (24, 2)
    assert result.validity.judgements == Judgements(due=48, given=44)
    assert result.groups["axis"]["accuracy"][RUBRIC].value == 0.0
    assert [reason.partition(" gave")[0] for reason in result.validity.not_reportable] == [
        "judge a",
        "judge b",
    ]
    assert (result.status, result.validity.instances.scored) == ("partial", 11)


def test_a_jurys_score_beside_another_main_score_is_not_reported_either(tmp_path: Path) -> None:
    states = [state(number, "CORRECT", annotations=HALF) for number in range(4)]
    values = {"medec_error_flag_accuracy": FOUR, "aci_bench_accuracy": [2.0] * 4}
    result = result_of(
        tmp_path, {"config.type": "medec"}, states=states, metric_specs=[JURY], values=values
    )
    assert (result.main_metric, result.reportable) == ("medec_error_flag_accuracy", False)
    assert len(result.validity.not_reportable) == 1
    assert (result.validity.judgements, result.validity.coverage) == (None, 1.0)  # the main score's
