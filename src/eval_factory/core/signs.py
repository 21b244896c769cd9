"""Lists the signs of instances: properties such as "failed", "empty answer" or "judges disagree".

All parts of a report that show signs read this table: the page's filters, rows and first screen,
and the methods text. `scoring/readability.py` finds the signs of answers, and
`report/page/instance_data.py` finds the other signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# the names of signs that other modules use
DISAGREE = "disagree"
# the signs of answers with a rubric: at least one criterion is such
NOT_MET = "criterion_not_met"  # positive points, and not met
HARM = "harm_met"  # negative points, and met
UNDECIDED = "criterion_undecided"  # a judge did not decide it; "unjudged" is about the answer


@dataclass(frozen=True)
class Sign:
    """A sign, with its words in the parts of a report."""

    label: str  # the label on the page
    # the label on the page if the values of the instances are numbers, not right or wrong; empty:
    # the same label
    label_of_values: str = ""
    count: str | None = None  # the field of `validity.instances` with its count, if there is one
    # the words after the number of instances on the first screen, if the sign is a problem
    trouble: str = ""
    severity: int = 0  # the rank of the problem: 1 is the worst; 0 if the sign is not a problem
    in_methods: str = ""  # the words after the number of answers in the methods text
    bar: str = ""  # the label of the bar in the plot of instances
    is_of_answer: bool = False  # True if the sign is in `InstanceRecord.signs`
    is_listed: bool = True
    """False: the rows of the page's table do not list the sign, because it is not a problem, is
    very frequent, or is shown instead of the score.
    """


SIGNS: Mapping[str, Sign] = {
    "wrong": Sign("wrong", label_of_values="low", is_listed=False),
    "right": Sign("right", label_of_values="not low", is_listed=False),
    "failed": Sign(
        "failed",
        count="failed",
        trouble="got no answer: the request failed",
        bar="failed",
        severity=1,
        is_listed=False,
    ),
    "empty": Sign(
        "empty answer",
        count="empty",
        trouble="answered with nothing at all",
        bar="empty",
        severity=3,
        in_methods="were empty",
    ),
    "cut_off": Sign(
        "cut off",
        count="truncated",
        trouble="ended at the token limit",
        bar="cut off",
        severity=9,
        in_methods="were cut off",
    ),
    DISAGREE: Sign("judges disagree"),
    "unparsed": Sign(
        "not in the form asked for",
        count="unparsed",
        trouble="answered in a form that the benchmark cannot read",
        bar="not in the form asked for",
        severity=5,
        in_methods="were not in the form that was asked for",
        is_of_answer=True,
    ),
    "refused": Sign(
        "refused",
        count="refused",
        trouble="declined by the model",
        bar="refused",
        severity=8,
        is_of_answer=True,
    ),
    "thinking_stripped": Sign(
        "thinking taken out", count="thinking_stripped", is_of_answer=True, is_listed=False
    ),
    "thinking_unfinished": Sign(
        "thinking unfinished",
        count="thinking_unfinished",
        trouble="cut off while the model was still thinking",
        bar="thinking unfinished",
        severity=4,
        is_of_answer=True,
    ),
    "filtered": Sign(
        "filtered",
        count="filtered",
        trouble="withheld by the endpoint's content filter",
        bar="filtered",
        severity=2,
    ),
    "unjudged": Sign(
        "unjudged",
        count="unjudged",
        trouble="answered, but the judgements that a score needs are missing",
        bar="unjudged",
        severity=6,
    ),
    "prompt_truncated": Sign(
        "prompt cut",
        count="prompt_truncated",
        trouble="asked with a prompt that was cut",
        bar="prompt cut",
        severity=7,
        is_of_answer=True,
    ),
    "injection": Sign("tells its judges what to do"),
    NOT_MET: Sign("a wanted criterion not met", is_listed=False),
    HARM: Sign("an unwanted criterion met"),
    UNDECIDED: Sign("a judge gave no decision"),
}
"""The name of a sign -> the sign, in the order of the page's filters."""
ANSWER_SIGNS = tuple(name for name, sign in SIGNS.items() if sign.is_of_answer)
"""The names of the signs of answers (`InstanceRecord.signs`)."""
