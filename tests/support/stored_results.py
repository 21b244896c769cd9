"""Output folders with results that are made up, written as a run writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core import results
from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.report.write import write_reports

CONFIG: dict[str, Any] = {
    "config": {
        "type": "pubmed_qa",
        "output_dir": "x",
        "params": {"extra": {"on_failure": "exclude", "min_coverage": 0.5}},
    },
    "target": {
        "api_endpoint": {"model_id": "org/model", "adapter_config": {"custom_system_prompt": None}}
    },
}
PROVENANCE = results.Provenance(
    "1",
    "0.5.16",
    "3.11",
    {},
    {"scenarios/x/test.json": "a" * 64},
    "b" * 64,
    "identity",
    3,
    None,
    "org/model",
)
JUDGE = results.AskedEndpoint("judge/one", "host", (), 4, {}, 0, ("c" * 64,))
MODEL = results.AskedEndpoint("org/model", "host", (), 4, {}, 0, None)
_SPENT = results.SpentByRole(
    results.Spent(
        requests=1,
        cached=0,
        retries=0,
        prompt_tokens=1,
        completion_tokens=1,
        latency_p50_s=0.1,
        latency_p95_s=0.1,
    ),
    {},
)


def instance(
    key: str, value: float | None, metric: str = "exact_match", **changes: Any
) -> results.InstanceRecord:
    """Return an instance with one value; without a value it has failed."""
    failed = value is None
    record = results.InstanceRecord(
        id=key,
        split="test",
        sub_split=None,
        trial=0,
        perturbation=None,
        prompt=f"What is {key}?",
        references=({"text": "yes", "tags": ["correct"]}, {"text": "no", "tags": []}),
        categories={},
        completion=None if failed else f"answer to {key}",
        metrics={} if value is None else {metric: value},
        finish_reason="stop",
        prompt_tokens=1,
        completion_tokens=1,
        latency_s=0.1,
        cached=False,
        error="HTTP 500" if failed else None,
        judges={},
        unjudged=False,
        injection=(),
    )
    return replace(record, **changes)


def result(
    records: Sequence[results.InstanceRecord],
    scores: Sequence[str] = ("exact_match",),
    **changes: Any,
) -> results.TaskResult:
    """Its scores are labels as `exact_match@valid`; the first is the main one."""
    counts = results.Instances(
        len(records), sum(not record.error for record in records), 0, 0, 0, 0
    )
    made = results.TaskResult(
        task="pubmed_qa",
        main_metric=scores[0],
        scores={label: _score(label) for label in scores},
        groups={},
        validity=results.Validity(counts, {}, {}, None, (), main_split="test"),
        usage=results.Usage(_SPENT, _SPENT, 1, 1.0),
        provenance=PROVENANCE,
        instances=list(records),
        reportable=True,
        status=RunStatus.COMPLETE,
        something_to_ask=False,
    )
    return replace(made, **changes)


def _score(label: str) -> results.Score:
    metric, _, split = label.partition("@")
    return results.Score(0.5, results.Stats.without_interval(4, 0.5), metric, split or "test", None)


def written(folder: Path, made: results.TaskResult, config: Mapping[str, Any] = CONFIG) -> Path:
    rundir = RunDir(folder)
    rundir.create()
    write_reports(
        made, rundir, config=dict(config), command="helm-run", redactor=Redactor(), responses={}
    )
    return folder


def kept(folder: Path, name: str, data: bytes, kind: str = "image/png") -> dict[str, Any]:
    """The record of a file that is written where HELM's scenarios have theirs."""
    file = folder / "helm" / "scenarios" / "x" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    inside = file.relative_to(folder).as_posix()
    return {
        "type": kind,
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "file": inside,
    }


def right_or_wrong(folder: Path, values: str, **changes: Any) -> Path:
    """A folder with an instance a character: 1, 0, or x for one that failed; ids q0, q1 ..."""
    records = [
        instance(f"q{number}", None if one == "x" else float(one))
        for number, one in enumerate(values)
    ]
    return written(folder, result(records, **changes))


def criterion(
    points: float, verdict: str, *tags: str, text: str = "Says why", **judges: Any
) -> dict[str, Any]:
    """One criterion of results.jsonl; a judge that says a text gave it as the reason for no decision."""
    said = {
        name: {"error": one}
        if isinstance(one, str)
        else {"criteria_met": one, "explanation": f"words of {name}"}
        for name, one in judges.items()
    }
    return {
        "criterion": text,
        "points": points,
        "tags": list(tags),
        "verdict": verdict,
        "judges": said,
    }


def rubric_result(
    records: Sequence[results.InstanceRecord],
    report: results.RubricReport,
    groups: Sequence[str] = (),
) -> results.TaskResult:
    """Return the result of a rubric; `axis:accuracy` is a group."""
    made = result(records, ("rubric_score",), task="custom.mine")
    found: dict[str, dict[str, Any]] = {}
    for field, value in (one.split(":") for one in groups):
        found.setdefault(field, {})[value] = dict(made.scores)
    counts = {
        name: results.JudgeCounts(votes.asked, votes.asked - votes.unjudged, votes.unjudged)
        for name, votes in report.judges.items()
    }
    return replace(
        made, groups=found, validity=replace(made.validity, rubric=report, judges=counts)
    )
