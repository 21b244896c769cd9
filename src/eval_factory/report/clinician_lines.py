"""What people's ratings say of a result, in sentences: for the screen, report.md and the page."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.core.results import Agreement, Clinicians, JudgeAgreement


def clinician_headline(found: Clinicians) -> str:
    """One line: the corrected score, or how many ratings it lacks."""
    by = f"{found.rated} of {found.answers} answers rated by {_raters(found.raters)}"
    if found.corrected is not None:
        one = found.corrected
        interval = f"95 % interval {one.ci_low:.4f} .. {one.ci_high:.4f}"
        return (
            f"corrected by clinicians = {one.value:.4f}  ({interval}); without correction {one.judge_value:.4f}; {by}"
        )
    if found.too_few is not None:
        return f"no score corrected by clinicians: {found.too_few.needed} rated answers are needed; {by}"
    return by


def clinician_lines(found: Clinicians) -> Iterator[str]:
    """The headline, then agreement, bias and notes."""
    yield clinician_headline(found)
    if found.agreement is not None:
        yield f"agreement of the raters: {agreement_text(found.agreement)}"
    for judge, one in found.judges.items():
        yield f"{judge} with the raters: {agreement_text(one)}; {bias_text(one)}"
    yield from (f"note: {note}" for note in found.notes)


def agreement_text(one: Agreement) -> str:
    """The measures that are defined."""
    named = {"alpha": one.alpha, "ICC": one.icc, "weighted kappa": one.weighted_kappa, "AC1": one.ac1}
    told = ", ".join(f"{name} {value:.2f}" for name, value in named.items() if value is not None)
    return f"{told or 'not defined'} (n = {one.n})"


def bias_text(one: JudgeAgreement) -> str:
    """Above 0: the judge is more lenient than the raters, where more is better."""
    if one.bias is None:
        return "bias not known"
    if one.bias_low is None or one.bias_high is None:
        return f"bias {one.bias:+.3f}"
    return f"bias {one.bias:+.3f} ({one.bias_low:+.3f} .. {one.bias_high:+.3f})"


def _raters(count: int) -> str:
    return f"{count} rater{'s' * (count != 1)}"
