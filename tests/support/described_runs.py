"""Results that say much of themselves, for what describes a run in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eval_factory.core import results
from eval_factory.core.enums import RunStatus
from stored_results import PROVENANCE, instance, result

CONFIG: dict[str, Any] = {
    "type": "pubmed_qa",
    "params": {"limit_samples": 20, "extra": {"on_failure": "exclude"}},
}
TARGET: dict[str, Any] = {
    "api_endpoint": {
        "type": "chat",
        "adapter_config": {"custom_system_prompt": None, "params_to_add": {}},
    }
}
ODD = "\u202eodd \x1b[2J\n# | `x` <script>alert(1)</script> @someone #12 [a](javascript:b) http://evil.example/x"
"""What nothing that is shown may hold as it is."""


def plain(**changes: Any) -> results.TaskResult:
    """Twenty questions of pubmed_qa, of which one failed."""
    stats = results.Stats(
        19, 0.7368, stddev=0.45, stderr=0.1, ci_low=0.5121, ci_high=0.8819, ci_method="wilson"
    )
    made = result([instance(f"q{n}", 1.0 if n else None) for n in range(20)])
    validity = replace(
        made.validity,
        instances=results.Instances(20, 19, 1, 2, 3, 0, unparsed=4),
        bounds={"exact_match": (0.7, 0.75)},
        splits={"test": 20},
        floors={
            "exact_match": results.Floor("always A", 0.552, 20, {"empty": 0.0, "always A": 0.552})
        },
        failures=(results.FailureCause("model", 1, "HTTP 500", None),),
        notes=tuple(f"note {n}" for n in range(7)),
    )
    provenance = replace(
        PROVENANCE,
        packages={"crfm-helm": "0.5.16", "scipy": "1.15.3"},
        patches=("one", "two"),
        endpoints={
            "model": results.AskedEndpoint(
                "org/model",
                "api.example.org",
                ({"max_tokens": 1, "temperature": 0.0},),
                19,
                {"org/model-0806": 19},
                0,
                None,
            )
        },
        dataset_revisions={"scenarios/x/test.json": "1f00b98"},
        seeds={"helm_sample": 0},
        platform={"distribution": "Debian 12", "machine": "x86_64"},
        started_at="2026-01-02T03:04:05Z",
        ended_at="2026-01-02T03:05:06Z",
    )
    score = results.Score(0.7368, stats, "exact_match", "test", None, True, (0.0, 1.0), "share")
    comparability = results.Comparability(
        False, None, (results.Deviation("temperature", 0.0, 0.7, "answers vary"),)
    )
    described = replace(
        made,
        scores={"exact_match": score},
        validity=validity,
        provenance=provenance,
        comparability=comparability,
    )
    return replace(described, **changes)


def of_a_jury(**changes: Any) -> results.TaskResult:
    """Three instances of medication_qa, rated by two judges, of which one missed a third."""
    made = plain()
    stats = results.Stats(
        3,
        4.25,
        stddev=0.5,
        stderr=0.3,
        ci_low=2.1,
        ci_high=4.9,
        ci_method="student-t-pseudo-values",
    )
    judge = results.AskedEndpoint(
        "judge/one", "h", ({"temperature": 0.0},), 3, {"judge/one": 3}, 0, ("c" * 64,)
    )
    validity = replace(
        made.validity,
        instances=results.Instances(3, 3, 0, 0, 0, 0),
        splits={"test": 3},
        floors={},
        failures=(),
        bounds={"medication_qa_accuracy": (3.5, 4.5)},
        judges={"kind": results.JudgeCounts(3, 3, 0), "strict": results.JudgeCounts(3, 2, 1)},
        judgements=results.Judgements(6, 5),
        jury=results.JuryReport(
            {"kind": 4.5, "strict": 3.9},
            0.614,
            {"kind/strict": 0.322},
            {"kind": 3.9, "strict": 4.5},
        ),
        not_reportable=("judge strict gave no usable judgement of 1 of 3 answers: ask it again",),
    )
    endpoints = {
        **made.provenance.endpoints,
        "kind": judge,
        "strict": replace(judge, model="judge/two", sampling=()),
    }
    described = replace(
        made,
        task="medication_qa",
        main_metric="medication_qa_accuracy",
        validity=validity,
        reportable=False,
        provenance=replace(made.provenance, endpoints=endpoints),
        status=RunStatus.PARTIAL,
        scores={
            "medication_qa_accuracy": results.Score(
                4.25, stats, "medication_qa_accuracy", "test", None, True, (1.0, 5.0), "rating"
            )
        },
    )
    return replace(described, **changes)


def of_a_rubric() -> results.TaskResult:
    """Return a result with the same answers and judges, asked about 12 criteria, of which the
    stricter one left three open.
    """
    made = of_a_jury()
    report = results.RubricReport(
        results.RubricVotes(12, 5, 4, 1, 2),
        {
            "kind": results.RubricVotes(12, 8, 4, 0, 0, 1.0),
            "strict": results.RubricVotes(12, 4, 5, 3, 0, 0.25),
        },
        {"kind/strict": results.PairAgreement(9, 0.6666, 0.4)},
        0.0635,
        0.3333,
    )
    judges = {"kind": results.JudgeCounts(12, 12, 0), "strict": results.JudgeCounts(12, 9, 3)}
    return replace(made, validity=replace(made.validity, jury=None, judges=judges, rubric=report))


def hostile() -> results.TaskResult:
    """Every name and text in it that others wrote is odd."""
    made = of_a_jury()
    score = made.scores["medication_qa_accuracy"]
    validity = replace(
        made.validity,
        judges={ODD: results.JudgeCounts(3, 2, 1)},
        notes=(ODD,),
        not_reportable=(ODD,),
        failures=(results.FailureCause(ODD, 1, ODD, ODD),),
        splits={ODD: 3},
        bounds={ODD: (0.0, 1.0)},
        floors={ODD: results.Floor(ODD, 0.1, 3, {ODD: 0.1})},
        jury=results.JuryReport({ODD: 1.0}, 0.1, {ODD: 0.1}, {ODD: 1.0}),
    )
    asked = results.AskedEndpoint(ODD, ODD, ({ODD: ODD},), 3, {ODD: 1}, 1, (ODD,))
    provenance = replace(
        made.provenance,
        eval_factory=ODD,
        helm=ODD,
        python=ODD,
        packages={ODD: ODD},
        dataset_files={ODD: ODD},
        prompts_sha256=ODD,
        run_identity=ODD,
        target=ODD,
        endpoints={"model": asked, ODD: asked},
        dataset_revisions={ODD: ODD},
        platform={"distribution": ODD, "machine": ODD},
        started_at=ODD,
        ended_at=ODD,
    )
    odd = replace(score, unit=ODD, stats=replace(score.stats, ci_method=ODD))
    return replace(
        made,
        task=ODD,
        main_metric=ODD,
        scores={ODD: odd, f"{ODD}.corrected": odd, f"{ODD}.lenient": odd},
        groups={ODD: {ODD: {ODD: odd}}},
        validity=validity,
        provenance=provenance,
        comparability=results.Comparability(
            False, ODD, (results.Deviation(ODD, ODD, ODD, ODD),), (ODD,)
        ),
    )
