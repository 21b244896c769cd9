"""What people's ratings say, in sentences."""

from __future__ import annotations

from dataclasses import replace

from eval_factory.core.results import Agreement, Clinicians, CorrectedScore, JudgeAgreement, TooFewRated
from eval_factory.report.sentences import agreement_text, bias_text, clinician_headline, clinician_lines

CORRECTED = CorrectedScore("jury", 3.51234, 3.2, 3.8, "ppi++-stratified", 0.8, 4.5)
FOUND = Clinicians(
    40, 200, 2, 80, CORRECTED, None, Agreement(38, 0.5, 0.625, None, 0.7),
    {"kind": JudgeAgreement(40, None, 0.4, 0.3, None, 1.0, 0.8, 1.2)}, ("a note",),
)  # fmt: skip


def test_the_score_its_agreement_and_its_notes() -> None:
    assert list(clinician_lines(FOUND)) == [
        (
            "corrected by clinicians = 3.5123  (95 % interval 3.2000 .. 3.8000); without correction 4.5000;"
            " 40 of 200 answers rated by 2 raters"
        ),
        "agreement of the raters: alpha 0.50, ICC 0.63, AC1 0.70 (n = 38)",
        "kind with the raters: ICC 0.40, weighted kappa 0.30 (n = 40); bias +1.000 (+0.800 .. +1.200)",
        "note: a note",
    ]


def test_too_few() -> None:
    few = replace(FOUND, corrected=None, too_few=TooFewRated(9, 30), rated=9, raters=1, agreement=None)
    assert clinician_headline(few) == (
        "no score corrected by clinicians: 30 rated answers are needed; 9 of 200 answers rated by 1 rater"
    )
    assert len(list(clinician_lines(few))) == 3
    assert clinician_headline(replace(few, too_few=None)) == "9 of 200 answers rated by 1 rater"


def test_what_is_not_known() -> None:
    assert agreement_text(Agreement(0)) == "not defined (n = 0)"
    assert bias_text(JudgeAgreement(0)) == "bias not known"
    assert bias_text(JudgeAgreement(3, bias=-0.5)) == "bias -0.500"
