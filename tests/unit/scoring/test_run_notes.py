"""Tests of what a reader has to know of the requests and answers of a run, and of its data."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.errors import HelmError
from eval_factory.core.results import DEMO, Instances, JudgeCounts, Score, Stats
from eval_factory.endpoint import openai_answers
from eval_factory.endpoint.response_cache import create_or_check, write_origin
from eval_factory.helm.names import RUN_RECORD_FILE
from eval_factory.helm.output import HelmRun, RequestState
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.provenance import provenance_of
from eval_factory.scoring.reportable import demo_reasons
from eval_factory.scoring.run_notes import (
    _UNKNOWN_SANDBOX,
    NO_ROWS,
    notes_of,
    notes_on_age,
    notes_on_data,
    notes_on_labels,
)
from eval_factory.scoring.scores import InstanceKey
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.framework import About
from eval_factory.tasks.jury_form import JuryForm
from facts import each_says, says
from unit.scoring.test_media_states import about
from unit.scoring.test_tally import judged_plan, jury_of, key, run_of

NOTHING = Instances(requested=0, scored=0, failed=0, empty=0, truncated=0, filtered=0)


def _other_data(found: int, known: int) -> list[tuple[Importance, str]]:
    text = (
        f"the data contain {found} instances, but {known} when this task was described: are they "
        "another version of the data?"
    )
    return [(Importance.DOUBTFUL, text)]


def asked(count: int) -> Tally:
    """Each of them in two trials."""
    return Tally(
        requested={key(number, trial) for number, trial in product(range(count), range(2))}
    )


WHOLE = 1000
"""Instances of the builders' task."""


def made(
    here: Plan, run: HelmRun, seen: Tally | None = None, labels: Collection[str] = (), **counts: int
) -> Draft:
    scores = {label: Score(1.0, Stats.without_interval(1, 1.0)) for label in labels}
    instances = replace(NOTHING, **counts)
    return draft(run, plan=here, tally=seen or asked(WHOLE), scores=scores, instances=instances)


def told(
    folder: Path, flags: dict[str, Any] | None = None, seen: Tally | None = None, **counts: int
) -> list[tuple[Importance, str]]:
    here = plan(flags)
    return list(notes_of(made(here, run_of(folder), seen, (), **counts)))


@pytest.mark.parametrize(
    ("flags", "found", "known"),
    [
        ({}, WHOLE - 1, WHOLE),
        ({}, WHOLE + 1, WHOLE),
        ({"config.params.limit_samples": 5}, 5, None),
        ({"config.type": "helm:boolq"}, 5, None),  # nobody has counted these
        ({"config.type": "head_qa"}, 5, 2675),
        ({"config.type": "head_qa", "config.params.extra.language": "en"}, 5, None),
        ({"config.type": "med_dialog_icliniq"}, 5, 3108),  # the task itself is of a part
    ],
)
def test_another_number_of_instances_is_said_where_all_were_asked(
    flags: dict[str, Any], found: int, known: int | None, tmp_path: Path
) -> None:
    assert (
        told(tmp_path, requested=2 * WHOLE, scored=2 * WHOLE, empty=3, truncated=4, filtered=5)
        == []
    )
    assert told(tmp_path, flags, asked(found)) == (_other_data(found, known) if known else [])


def test_a_score_of_named_instances_is_none_of_the_benchmark(tmp_path: Path) -> None:
    flags = {"config.params.extra.instances": ["id0", "id1", "id7"]}
    ((importance, said),) = told(tmp_path, flags, asked(3))
    assert importance is Importance.DOUBTFUL
    says(said, "3 instances", "extra.instances")


def test_a_finish_reason_that_nobody_knows_is_named(tmp_path: Path) -> None:
    seen = replace(asked(WHOLE), unknown_reasons=Counter({"repetition": 3}))
    ((importance, text),) = told(tmp_path, None, seen)
    assert importance is Importance.DOUBTFUL
    assert "3 answers" in text
    assert "'repetition'" in text


def test_pictures_that_were_made_and_not_scored(tmp_path: Path) -> None:
    flags = {
        "config.type": "helm:radiology",
        "target.api_endpoint.type": "images",
        "config.params.extra.only_generate": True,
    }
    ((importance, text),) = told(tmp_path, flags)
    assert importance is Importance.NO_RESULT
    says(text, "only_generate: ", "metrics of pictures", "clip")
    says(text, "without only_generate")


def test_metrics_of_pictures_that_were_not_computed(tmp_path: Path) -> None:
    """By what the run had, not by what this machine has now."""
    flags = {"config.type": "helm:radiology", "target.api_endpoint.type": "images"}
    ((importance, text),) = told(tmp_path, flags)
    assert importance is Importance.INCOMPLETE
    says(text, "CLIPScore", "1.7 GB", "huggingface.co", "fractal dimension (needs cv2)")
    assert "PSNR" not in text


def test_answers_of_another_run_are_told(tmp_path: Path) -> None:
    flags = {"config.output_dir": str(tmp_path / "new")}
    (tmp_path / "new").mkdir()
    create_or_check(tmp_path / "new" / "cache.db")
    assert told(tmp_path, flags) == []
    write_origin(tmp_path / "new" / "cache.db", "an-identity", "2026-01-02T03:04:05Z")
    ((importance, said),) = told(tmp_path, flags)
    assert importance is Importance.BACKGROUND
    says(said, "2026-01-02T03:04:05Z", "not asked again")


def test_the_embedded_endpoint_measures_nothing_as_a_target_or_as_a_judge() -> None:
    url = "demo://baseline"
    here = plan({"target.api_endpoint.url": url})
    assert demo_reasons(here) == [DEMO]
    assert demo_reasons(plan()) == []
    real = plan()
    judge = replace(real.model, role="gpt", url=url)
    (reason,) = demo_reasons(replace(real, judges=(judge,)))
    assert reason.startswith("judge gpt ")
    assert "url" in reason.split("\n")[1]
    both = replace(here, judges=(judge,))
    assert demo_reasons(both) == [DEMO], "a demo of both ends with exit code 0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(both), "has_answers", True)
        assert demo_reasons(both) == [DEMO], "the target is not asked"
        assert demo_reasons(here) == []


FAILED = {"failed": {("id0", 0, None), ("id1", 0, None)}}


@pytest.mark.parametrize(
    ("flags", "seen", "counts", "importance", "text"),
    [
        (
            {"target.api_endpoint.url": "demo://baseline"},
            {},
            {},
            Importance.NO_RESULT,
            "the target was the embedded demo baseline, not a model: these scores measure nothing",
        ),
        (
            {},
            FAILED,
            {"failed": 2},
            Importance.INCOMPLETE,
            "2 instances failed and are left out of the scores; bounds show the range; the same command asks them again",
        ),
        (
            {"config.params.extra.on_failure": "zero"},
            FAILED,
            {"failed": 2},
            Importance.INCOMPLETE,
            "2 instances failed and count as 0; the same command asks them again",
        ),
        (
            {},
            {"emptied_right_answers": 2},
            {"requested": 9},
            Importance.DOUBTFUL,
            "2 of 9 instances: HELM's quasi metrics ignore articles",
        ),
        (
            {},
            {"injected": 2},
            {},
            Importance.DOUBTFUL,
            "2 answers give instructions to their judges (see `injection` in results.jsonl): ",
        ),
    ],
)
def test_what_is_said_of_a_run(
    flags: dict[str, Any],
    seen: dict[str, Any],
    counts: dict[str, int],
    importance: Importance,
    text: str,
    tmp_path: Path,
) -> None:
    (note,) = told(tmp_path, flags, replace(asked(WHOLE), **seen), **counts)
    assert (note[0], note[1][: len(text)]) == (importance, text)


def test_answers_that_ran_out_of_tokens_are_said_with_what_was_granted(tmp_path: Path) -> None:
    seen = replace(asked(WHOLE), truncated={key(0), key(1), key(2)}, empty={key(1), key(2), key(3)})
    run = run_of(tmp_path, adapter_spec={"max_tokens": 17})
    (note,) = notes_of(made(plan(), run, seen, requested=9))
    assert note == (
        Importance.INCOMPLETE,
        f"2 of 9: {openai_answers.TOO_FEW_TOKENS_MESSAGE.format(granted=17)}",
    )


def test_why_helm_cannot_score_answers_is_said_the_most_frequent_first(tmp_path: Path) -> None:
    unscorable: dict[InstanceKey, tuple[str, str | None]] = {
        key(0): ("one", None),
        key(1): ("two", None),
        key(2): ("two", None),
    }
    seen = replace(asked(WHOLE), failed=set(unscorable), unscorable=unscorable)
    found = told(tmp_path, seen=seen, failed=3)
    assert {importance for importance, _ in found} == {Importance.INCOMPLETE}
    each_says(
        [text for _, text in found],
        ["3 instances failed", "left out", "bounds"],
        ["2", "two"],
        ["1", "one"],
    )
    for _, text in found[1:]:
        says(text, "HELM cannot score", "responses/")


def test_what_judges_did_not_judge_is_said(tmp_path: Path) -> None:
    counts = {"a": JudgeCounts(9, 6, 3), "b": JudgeCounts(9, 9, 0), "c": JudgeCounts(8, 7, 1, True)}
    left_out = "4 instances have no judgement and are left out of the jury's score"
    again = "the same command asks it again"
    found = told(tmp_path, seen=replace(asked(WHOLE), judges=counts), unjudged=4)
    assert [importance for importance, _ in found] == [Importance.INCOMPLETE] * 3 + [
        Importance.DOUBTFUL
    ]
    each_says(
        [text for _, text in found],
        [".helm"],
        ["judge a", "3 of 9 answers"],
        ["judge c", "1 of 8 answers"],
        ["judge c", "evaluated model's family"],
    )
    assert found[0][1].startswith(left_out)
    assert all(text.endswith(again) for _, text in found[1:3])


def test_whether_judges_saw_the_pictures_is_said(tmp_path: Path) -> None:
    here = judged_plan("m", one="judge/one")
    seen = Tally()
    sees = replace(here, evaluation=here.evaluation.with_extra({"judges_see_images": True}))
    assert "judges_see_images has no effect" in str(
        list(notes_of(made(sees, run_of(tmp_path), seen)))
    )
    seen.see(key(0), RequestState.model_validate(about(0, "gone.jpg")))
    found = [str(list(notes_of(made(of, run_of(tmp_path), seen)))) for of in (here, sees, plan())]
    assert ["without the questions' pictures" in text for text in found] == [True, False, False]


GPU = "BERTScore and SummaC are absent: they need torch, a GPU and their weights"
SERVICE = "HELM's toxicity metrics are left out: they need the Perspective API"


@pytest.mark.parametrize(
    ("metric", "labels", "said"),
    [
        ("Summarization", ("rouge_l",), [GPU]),
        ("Summarization", ("rouge_l", "BERTScore-F"), []),
        ("Summarization", ("summac", "rouge_l"), []),
        ("Other", (), []),
        ("Toxicity", ("em",), [SERVICE]),
        ("Toxicity", ("em", "expected_max_toxicity"), []),
        ("Other", ("em",), []),
    ],
)
def test_scores_that_need_a_gpu_or_an_outer_service_are_said_to_be_absent(
    tmp_path: Path, metric: str, labels: Collection[str], said: list[str]
) -> None:
    specs = [{"class_name": "helm.x.First"}, {"class_name": f"helm.x.{metric}Metric"}]
    notes = notes_of(
        made(plan(), run_of(tmp_path, metrics=labels, metric_specs=specs), labels=labels)
    )
    assert notes == [(Importance.BACKGROUND, text) for text in said]


def test_zero_is_no_mark_of_a_jury(tmp_path: Path) -> None:
    here = judged_plan("org/model", a="judge/a")
    again = replace(asked(WHOLE), failed={key(0)})
    run = run_of(tmp_path, metric_specs=[jury_of(here)])
    zero = plan({"config.type": "aci_bench", "config.params.extra.on_failure": "zero"})

    def of_failed(of: Plan) -> str:
        (text,) = [
            one.text
            for one in notes_of(made(of, run, again, requested=2, failed=1))
            if "failed" in one.text
        ]
        return text

    says(
        of_failed(zero),
        "1 instances failed",
        "count as 0",
        "jury's score",
        "left out",
        "same command",
    )
    again.ratings.form = JuryForm((0, 1))
    says(of_failed(zero), "jury's score")
    says(of_failed(here), "left out", "bounds")
    assert "0 is no mark" not in of_failed(here)


def here(tmp_path: Path, task: str, **flags: Any) -> Plan:
    made = plan({"config.type": task, "config.output_dir": str(tmp_path), **flags})
    made.rundir.helm.mkdir(parents=True, exist_ok=True)
    return made


@pytest.mark.parametrize(
    ("statement", "notes"), [("SELECT 1", [NO_ROWS]), ("INSERT INTO patient VALUES (1)", [])]
)
def test_a_database_without_rows_is_said(statement: str, notes: list[str], tmp_path: Path) -> None:
    made = here(tmp_path, "ehr_sql")
    assert notes_on_data(made) == []
    # as it was told before
    assert [note.text for note in notes_on_data(made, [NO_ROWS, "other"])] == [NO_ROWS]
    database = made.rundir.helm / "scenarios" / "ehr_sql" / "eicu.sqlite"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            f'CREATE TABLE "odd ""name" (a); CREATE TABLE patient (a); {statement};'
        )
    assert [note.text for note in notes_on_data(made, [NO_ROWS])] == notes
    assert all(note.importance == Importance.NO_RESULT for note in notes_on_data(made))


@pytest.mark.parametrize(
    ("limits", "beginnings"),
    [
        ({"records": 9, "left_out": 3}, ["3 of 9 records"]),
        ({"records": 9, "cut": 2}, ["2 of 9 records are longer"]),
        ({"records": 9, "left_out": 0}, []),
    ],
)
def test_what_max_length_did(
    limits: dict[str, object], beginnings: list[str], tmp_path: Path
) -> None:
    made = here(tmp_path, "helm:ehrshot:subject=guo_icu,data_path=x")
    assert notes_on_data(made) == []
    write(made, limited_records={"max_length": 100, **limits})
    assert all(
        note.text.startswith(said)
        for note, said in zip(notes_on_data(made), beginnings, strict=True)
    )
    write(made, limited_records={})  # a damaged record is HELM's failure
    with pytest.raises(HelmError, match=RUN_RECORD_FILE):
        notes_on_data(made)


def write(made: Plan, **known: object) -> None:
    (made.rundir.helm / RUN_RECORD_FILE).write_text(json.dumps(known))


def test_how_answers_were_executed(tmp_path: Path) -> None:
    allowed = {"config.params.extra.allow_code_execution": True}
    made = here(tmp_path, "helm:code:dataset=humaneval", **allowed)
    assert notes_on_data(made) == []
    elsewhere = here(tmp_path / "elsewhere", "helm:bigcodebench:version=v0.1.3", **allowed)
    assert notes_on_data(elsewhere) == [(Importance.DOUBTFUL, _UNKNOWN_SANDBOX)]
    write(made, executed_by=["a process", "bubblewrap"])
    ((importance, confined),) = notes_on_data(made)
    assert importance is Importance.BACKGROUND
    says(confined, "was executed", "in bubblewrap")
    write(made, executed_by=["a process"], ended=3)
    background, ended = notes_on_data(made)
    assert background[0] is Importance.BACKGROUND
    says(background[1], "was executed", "a process")
    assert "bubblewrap" not in background[1]
    assert ended[0] is Importance.INCOMPLETE
    says(ended[1], "3 answers", "ended the process", "count as wrong")


def test_an_interval_that_reaches_the_ceiling_of_wrong_labels_is_noted() -> None:
    """Wrong labels that cost 16 to 23 points let a model that is right score 0.77 to 0.84."""
    known: dict[str, Any] = {"tags": (), "access": "public", "source": "x", "instances": None}
    about = About(**known, label_noise=(0.16, 0.23), label_audit="by an audit")

    def scores(**highs: float | None) -> dict[str, Score]:
        made = {
            name: Score(
                0.7,
                Stats(9, 0.7, stddev=None, stderr=None, ci_low=0.6, ci_high=high, ci_method=None),
            )
            for name, high in highs.items()
        }
        return {name.replace("_c", ".corrected"): score for name, score in made.items()}

    (note,) = notes_on_labels("m", scores(m=0.77, m_c=0.76, other=1.0), about)
    says(note.text, "m: the 95 %", "0.7700", "0.77 .. 0.84", "labels")
    assert (note.importance, note.text.endswith("(by an audit)")) == (Importance.DOUBTFUL, True)
    assert [note.text[:12] for note in notes_on_labels("m", scores(m_c=0.9), about)] == [
        "m.corrected:"
    ]
    assert list(notes_on_labels("m", scores(m=0.7699, m_c=None), about)) == []
    assert list(notes_on_labels("m", scores(m=1.0), replace(about, label_noise=None))) == []


CUTOFF = "target.api_endpoint.training_cutoff"
UNKNOWN = f"is not known ({CUTOFF})"


@pytest.mark.parametrize(
    ("flags", "since", "trained"),
    [
        ({}, "have been public since 2019-09", UNKNOWN),
        ({CUTOFF: "2024-06"}, "have been public since 2019-09", "is 2024-06"),
        (
            {CUTOFF: "2019-09"},
            "have been public since 2019-09",
            "is 2019-09",
        ),  # in the same month: nobody knows
        ({CUTOFF: "2019-08"}, None, None),
        (
            {"config.type": "mtsamples_replicate"},
            "are public (since when is not known)",
            UNKNOWN,
        ),
        (
            {"config.type": "mtsamples_replicate", CUTOFF: "2024-06"},
            "are public (since when is not known)",
            "is 2024-06",
        ),
        ({"config.type": "medalign", "config.params.extra.data_path": "/x"}, None, None),  # gated
        (
            {"config.type": "healthbench", "config.params.extra.data_path": "/x"},
            None,
            None,
        ),  # the user's own
        ({"config.type": "helm:boolq"}, None, None),  # nobody has said who may read it
        ({"config.type": "sample_medical_qa"}, None, None),
        ({"target.api_endpoint.url": "demo://baseline"}, None, None),
    ],
)
def test_a_model_that_may_have_seen_the_answers(
    flags: dict[str, Any], since: str | None, trained: str | None, tmp_path: Path
) -> None:
    here = plan({"config.output_dir": str(tmp_path), **flags})
    record = provenance_of(here, here.evaluation.task.helm.scenario, "0" * 64, None, None)
    assert record.training_cutoff == flags.get(CUTOFF)
    text = (
        f"the questions and answers {since}, and the model's training cut-off {trained}: the model "
        "may have seen them"
    )
    assert list(notes_on_age(here, record)) == ([(Importance.BACKGROUND, text)] if since else [])
