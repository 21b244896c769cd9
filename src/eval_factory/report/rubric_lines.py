"""What the judges of a rubric said, in words and tables: for the screen, report.md, the page and the methods text."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Validity
from eval_factory.core.rubric_results import RubricReport, RubricVotes
from eval_factory.report.bibliography import Citations
from eval_factory.report.markdown_text import code, table

MAJORITY = "majority"
"""What stands in the place of a judge's name for what most of the judges say."""


def rubric_headline(found: RubricReport) -> str:
    """One line: how many criteria are met, and how far the judges agree."""
    votes = found.criteria
    rest = {"not met": votes.not_met, "tied": votes.tied, "unjudged": votes.unjudged}
    told = [f"{votes.met:,} of {of_criteria(votes.asked)} met"]
    told += [f"{count:,} {name}" for name, count in rest.items() if count or name == "not met"]
    return "; ".join([", ".join(told), *_agreement(found)])


def _agreement(found: RubricReport) -> Iterator[str]:
    if found.krippendorff_alpha is not None:
        yield f"agreement of the judges (Krippendorff's alpha): {found.krippendorff_alpha:.3f}"
    if found.unanimous is not None:
        yield f"all judges say the same of {100 * found.unanimous:.1f} %"


def screen_lines(found: RubricReport | None) -> Iterator[str]:
    if found is not None:
        yield f"  criteria: {rubric_headline(found)}"


def markdown_lines(found: RubricReport | None) -> Iterator[str]:
    """Two tables: of the judges, and of pairs of them."""
    if found is None:
        return
    yield f"\nCriteria: {rubric_headline(found)}"
    yield ""
    head = ["criteria judged by", "asked", "met", "not met", "tied", "unjudged", "score by it alone"]
    several = len(found.judges) > 1
    rows = [_row(MAJORITY, found.criteria)] if several else []
    rows += [_row(code(judge), votes) for judge, votes in found.judges.items()]
    yield from table(head, rows, numbers=6)
    if found.agreement:
        pairs = [
            [code(pair), f"{one.criteria:,}", f"{100 * one.agreement:.1f} %", _decimals(one.kappa)]
            for pair, one in found.agreement.items()
        ]
        yield ""
        yield from table(["judges", "criteria that both decided", "the same", "Cohen's kappa"], pairs, numbers=3)


def _row(name: str, votes: RubricVotes) -> list[str]:
    counts = (votes.asked, votes.met, votes.not_met, votes.tied, votes.unjudged)
    return [name, *(f"{count:,}" for count in counts), "" if votes.score is None else f"{votes.score:.4f}"]


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def rests_on(validity: Validity, found: RubricReport, cite: Citations) -> Iterator[str]:
    """What a rubric's score is made of: criteria, judges, and how they become a number."""
    judges = len(validity.judges)
    answers = validity.instances.requested - validity.instances.failed
    each = f", {found.criteria.asked / answers:.1f} for an answer in the mean" if answers > 0 else ""
    yield (
        f"The answers were judged criterion by criterion ({of_criteria(found.criteria.asked)}{each}), each criterion by"
        f" {'one language model' if judges == 1 else f'{judges} language models, of which the majority counts'}."
    )
    yield (
        "The score of an answer is the points of the criteria that it meets, divided by the sum of the positive points;"
        f" the benchmark's is the mean, clipped to 0 to 1 {cite('healthbench')}."
    )
    yield from undecided(found)


def undecided(found: RubricReport) -> Iterator[str]:
    votes = found.criteria
    if votes.unjudged:
        yield f"No judge decided {votes.unjudged:,} of {of_criteria(votes.asked)}; their answers have no score."
    if votes.tied:
        yield f"As many judges said met as not met of {of_criteria(votes.tied)}, which count half."


def agreement_sentences(found: RubricReport, cite: Citations) -> Iterator[str]:
    """How far the judges agree about criteria; nothing of a single one."""
    if found.krippendorff_alpha is not None:
        yield (
            "The agreement of the judges about criteria, by Krippendorff's alpha"
            f" {cite('krippendorff')}, is {found.krippendorff_alpha:.3f}."
        )
    if found.unanimous is not None:
        yield f"All judges say the same of {100 * found.unanimous:.1f} % of the criteria that several decided."
    for pair, one in found.agreement.items():
        kappa = "" if one.kappa is None else f", Cohen's kappa {one.kappa:.3f}"
        yield f"{one_line(pair)} say the same of {100 * one.agreement:.1f} % of {of_criteria(one.criteria)}{kappa}."


def of_criteria(count: int) -> str:
    return f"{count:,} criteri{'on' if count == 1 else 'a'}"
