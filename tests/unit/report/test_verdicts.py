"""What speaks against a score though it may be reported: judges that show little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_factory.core.results import (
    MODEL_ROLE,
    AskedEndpoint,
    JudgeCounts,
    JuryReport,
    PairAgreement,
    RubricReport,
    RubricVotes,
    TaskResult,
)
from eval_factory.report.result_sentences import measurement_sentence
from eval_factory.report.verdicts import Verdict, verdict_of

VOTES = RubricVotes(48, 24, 24, 0)
CONSTANT = JuryReport({"a": 3.0}, None, {}, {}, constant=("a",))
AGREE = JuryReport({"a": 3.0, "b": 3.5}, 0.7, {}, {}, agreement_p=0.001)


def by_judges(result: TaskResult, jury: JuryReport | None, rubric: RubricReport | None) -> Verdict:
    return verdict_of(replace(result, validity=replace(result.validity, jury=jury, rubric=rubric)))


def of_pairs(alpha: float, *pairs: PairAgreement) -> RubricReport:
    agreement = {f"{number}/x": pair for number, pair in enumerate(pairs)}
    return RubricReport(VOTES, {}, agreement, alpha)


@pytest.mark.parametrize(
    ("rubric", "verdict"),
    [
        (of_pairs(0.214, PairAgreement(48, 0.604, 0.214)), Verdict.JURY),  # two coins
        (of_pairs(0.6, PairAgreement(48, 0.8, 0.6)), Verdict.GOOD),
        (of_pairs(0.6, PairAgreement(4, 0.8, 0.6)), Verdict.JURY),  # too few criteria to tell
        (of_pairs(1.0, PairAgreement(48, 1.0, 1.0)), Verdict.GOOD),
        (of_pairs(-0.1, PairAgreement(480, 0.9, 0.3)), Verdict.JURY),
        (of_pairs(0.2, *[PairAgreement(48, 0.6, 0.2)] * 3), Verdict.GOOD),
        (RubricReport(VOTES, {}, {}), Verdict.GOOD),  # one judge: nobody knows
        (of_pairs(0.1, PairAgreement(48, 1.0, None)), Verdict.GOOD),
        (replace(of_pairs(0.6), constant=("a",)), Verdict.CONSTANT),
    ],
)
def test_judges_of_a_rubric_are_shown_to_agree_or_the_score_is_amber(
    rubric: RubricReport, verdict: Verdict, result: TaskResult
) -> None:
    assert by_judges(result, None, rubric) is verdict


def test_a_judge_that_gives_every_answer_the_same_marks_is_amber(result: TaskResult) -> None:
    assert by_judges(result, CONSTANT, None) is Verdict.CONSTANT
    assert by_judges(result, AGREE, None) is Verdict.GOOD


@pytest.mark.parametrize(
    ("models", "verdict"),
    [
        (("org/m", "org/m"), Verdict.JURY),
        (("org/m", "m"), Verdict.JURY),
        (("org/m", "org/other"), Verdict.GOOD),
        (("org/m",), Verdict.GOOD),
    ],
)
def test_one_model_under_several_names_is_no_jury(
    models: tuple[str, ...], verdict: Verdict, result: TaskResult
) -> None:
    judges = {f"judge {number}": model for number, model in enumerate(models)}
    endpoints = {
        name: AskedEndpoint(model, "h.test", (), 4, {model: 4}, 0, None)
        for name, model in judges.items()
    }
    provenance = replace(result.provenance, endpoints=endpoints)
    counts = dict.fromkeys(judges, JudgeCounts(4, 4, 0))
    validity = replace(result.validity, jury=AGREE, judges=counts)
    assert verdict_of(replace(result, provenance=provenance, validity=validity)) is verdict


@pytest.mark.parametrize(
    ("judges", "verdict"),
    [
        (("org/m",), Verdict.OWN_JUDGE),
        (("M",), Verdict.OWN_JUDGE),  # the same model under another name
        (("m", "org/m"), Verdict.OWN_JUDGE),
        (("org/m", "org/other"), Verdict.GOOD),
        (("org/other",), Verdict.GOOD),
        ((), Verdict.GOOD),
    ],
)
def test_a_model_that_judges_itself_alone_is_amber(
    judges: tuple[str, ...], verdict: Verdict, result: TaskResult
) -> None:
    models = {f"judge {number}": model for number, model in enumerate(judges)}
    endpoints = {
        name: AskedEndpoint(model, "h.test", (), 4, {model: 4}, 0, None)
        for name, model in {MODEL_ROLE: "org/m", **models}.items()
    }
    provenance = replace(result.provenance, endpoints=endpoints)
    counts = dict.fromkeys(models, JudgeCounts(4, 4, 0))
    validity = replace(result.validity, jury=AGREE, judges=counts)
    found = replace(result, provenance=provenance, validity=validity)
    assert verdict_of(found) is verdict
    assert ("the evaluated model itself" in measurement_sentence(found)) is (
        verdict is Verdict.OWN_JUDGE
    )
