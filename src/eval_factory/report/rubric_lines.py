"""What the judges of a rubric said, in words and tables: for the screen, report.md, the page and the methods text."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.core.results import RubricReport, RubricVotes
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


def of_criteria(count: int) -> str:
    return f"{count:,} criteri{'on' if count == 1 else 'a'}"
