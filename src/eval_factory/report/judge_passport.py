"""What a judge's passport says: as text, JSON and YAML, and as one page. The verdict's rules:
docs/trust-a-judge.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval_factory import __version__
from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.tables import Table, screen
from eval_factory.core.tables import html as in_html
from eval_factory.scoring.judge_calibration import (
    BestJury,
    Calibration,
    Change,
    Figure,
    Figures,
    Part,
    Steadiness,
)
from eval_factory.scoring.judge_passports import AskedJudge, items_as_lines, pairs_as_lines
from eval_factory.tasks.message_files import FEWEST_ITEMS

MARGIN = 0.05  # of macro F1, and of the bias, in shares: what is smaller does not matter
_MARGIN = formats.short(100 * MARGIN)
NAMES = {
    "f1_macro": "macro F1",
    "kappa": "Cohen's kappa",
    "ac1": "Gwet's AC1",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "bias": "bias, points",
}
METHOD = (
    "95 % intervals by clusters of conversations: "
    "a jackknife with pseudo-clusters (macro F1, kappa, AC1 and their"
    " difference), Wilson's on the effective number (sensitivity, specificity), "
    "Student's t with pseudo-clusters"
    f" (bias). Categories of {FEWEST_ITEMS} "
    "items or more are pooled partially where there are three or more of them."
)
AS_WELL = "as well"
LESS = "less"
OPEN = "open"
NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class JudgePassport:
    judge: str
    column: str  # the field of the labels that has its decisions
    labels_sha256: str  # of the label file's bytes
    found: Calibration
    asked: AskedJudge | None = None  # None: its decisions were in the labels
    steadiness: Mapping[Change, Steadiness] = field(default_factory=dict)
    unjudged: int = 0  # items about which it gave no decision; they are in no figure

    @property
    def agreement(self) -> str:
        """`as well` as physicians agree with each other, `less`, `open`, or `not shown`."""
        low = self.found.gap.ci_low
        high = self.found.gap.ci_high
        physicians = self.found.total.physicians
        by_chance = physicians is None or (physicians.kappa.ci_low or 0.0) <= 0
        if self.found.always is not None or low is None or high is None or by_chance:
            return NOT_SHOWN
        if low >= -MARGIN:
            return AS_WELL
        return LESS if high < 0 else OPEN

    @property
    def bias(self) -> Figure:
        return Figure(None) if self.found.total.judge is None else self.found.total.judge.bias

    @property
    def grade(self) -> str:
        """The class of the page's card: good, warn or bad."""
        low = self.bias.ci_low
        high = self.bias.ci_high
        if self.agreement == LESS or self.found.always is not None:
            return "bad"
        if low is None or high is None or self.agreement != AS_WELL:
            return "warn"
        if low > MARGIN or high < -MARGIN:
            return "bad"
        return (
            "good"
            if low >= -MARGIN and high <= MARGIN and not self._moved and not self.unjudged
            else "warn"
        )

    @property
    def verdict(self) -> list[str]:
        """Two or three sentences for a clinician, the worst first."""
        sentences = [self._agreement_in_words(), self._bias_in_words()]
        if self.grade == "bad" and self.agreement == AS_WELL:
            sentences.reverse()
        return [*sentences, *self._steadiness_in_words(), *self._categories_in_words()]

    @property
    def _moved(self) -> list[tuple[Change, Steadiness]]:
        """What surely changes how often it says `met`."""
        return [(change, one) for change, one in self.steadiness.items() if not one.shift.holds_0]

    def _steadiness_in_words(self) -> Iterator[str]:
        if self.unjudged:
            yield (
                f"It did not decide about {formats.counted(self.unjudged, 'item')}, "
                "which are in no figure."
            )
        for change, one in self._moved:
            moved = one.shift.value or 0.0
            points = formats.points(abs(moved))
            more = "more" if moved > 0 else "less"
            yield f"It can be moved: with {change}, it says 'met' {points} points {more} often."
        again = self.steadiness.get(Change.AGAIN)
        if again is not None:
            yield (
                "Asked the same again, it decides otherwise in "
                f"{formats.percent(again.flips.value or 0.0)} of cases."
            )

    def _agreement_in_words(self) -> str:
        found = self.found
        judge = self.found.total.judge
        physicians = self.found.total.physicians
        if found.always is not None:
            said = "met" if found.always else "not met"
            return (
                f"The judge said {said!r} of everything: "
                "nothing shows that it can tell good from bad."
            )
        if found.physicians == 1:
            return (
                "One physician alone: how far physicians agree with each other, "
                "which is the ceiling, is not known."
            )
        if judge is None or physicians is None or found.gap.ci_low is None:
            few = formats.counted(found.conversations, "conversation")
            return (
                f"{few} cannot show how far the judge agrees with the physicians: "
                "too few, or all decisions are equal."
            )
        if self.agreement == NOT_SHOWN:
            own = f"kappa {_with_interval(physicians.kappa)}"
            why = "these labels cannot show how good the judge is"
            return (
                f"The physicians' own agreement is not shown to be better than chance ({own}): "
                f"{why}."
            )
        kind = "macro F1"
        one = judge.f1_macro
        other = physicians.f1_macro
        if found.marks:
            kind = "weighted kappa"
            one = judge.kappa
            other = physicians.kappa
        both = f"{kind} {_coefficient(one)} beside {_coefficient(other)}"
        ends = f"{_points(found.gap.ci_low)} to {_points(found.gap.ci_high)}"
        as_well = "the judge agrees with the physicians as well as they agree with each other"
        words = {
            AS_WELL: f"T{as_well[1:]}, to within {_MARGIN} points",
            LESS: "The judge agrees with the physicians less than they agree with each other",
            OPEN: f"These labels are too few to say whether {as_well}",
        }
        return f"{words[self.agreement]} ({both}; the difference is {ends} points)."

    def _bias_in_words(self) -> str:
        value = self.bias.value
        low = self.bias.ci_low
        high = self.bias.ci_high
        if value is None or low is None or high is None:
            return "Whether the judge is lenient or strict cannot be said."
        if not self.bias.holds_0:
            kind, more = ("lenient", "more") if value > 0 else ("strict", "less")
            ends = " to ".join(map(formats.points, sorted((abs(low), abs(high)))))
            if self.found.marks:
                by = (
                    f"{formats.points(abs(value))} points of 100 "
                    f"{'higher' if value > 0 else 'lower'}"
                )
                return f"The judge is {kind}: its marks are {by} than the physicians' ({ends})."
            by = f"{formats.points(abs(value))} points {more} often than the physicians"
            return f"The judge is {kind}: it says 'met' {by} ({ends})."
        if low >= -MARGIN and high <= MARGIN:
            return f"The judge is neither lenient nor strict by more than {_MARGIN} points."
        found = f"{_points(value)} points, {_points(low)} to {_points(high)}"
        most = formats.points(max(-low, high))
        return (
            f"No leniency or strictness is shown ({found}), but one of up to {most} "
            "points is not ruled out."
        )

    def _categories_in_words(self) -> list[str]:
        """A sentence, where there is something to say."""
        figures = [
            (name, part.judge.bias)
            for name, part in self.found.categories.items()
            if part.judge is not None
        ]
        biased = {
            name: bias.value or 0.0
            for name, bias in figures
            if bias.ci_low is not None and not bias.holds_0
        }
        most = max(biased, key=lambda name: abs(biased[name]), default="")
        many = formats.counted(len(figures), "category", "categories")
        where = f"{len(biased)}, most in {one_line(most)} ({_points(biased.get(most))} points)"
        if biased:
            return [f"Of {many} with figures, a bias is shown in {where}."]
        small = f"{len(self.found.categories) - len(figures)} of {len(self.found.categories)}"
        too_small = f"Categories too small for a figure (fewer than {FEWEST_ITEMS} items): {small}."
        return [too_small] if len(figures) < len(self.found.categories) else []


def _coefficient(figure: Figure) -> str:
    return formats.coefficient(figure.value, missing="-")


def _points(share: float | None) -> str:
    return "-" if share is None else formats.points(share, sign="+")


def _with_interval(figure: Figure, show: Callable[[float], str] = formats.coefficient) -> str:
    if figure.value is None or figure.ci_low is None or figure.ci_high is None:
        return "-" if figure.value is None else show(figure.value)
    return f"{show(figure.value)} ({show(figure.ci_low)} to {show(figure.ci_high)})"


def calibration_document(found: Calibration) -> dict[str, Any]:
    """What `--json` prints, with all digits. Shares, not points; null where there is no figure."""
    fields = asdict(found)
    return {**fields["total"], "categories": fields["categories"]}


def passport_document(passport: JudgePassport, date: str) -> dict[str, Any]:
    """What judge_passport.yaml holds. `date`: YYYY-MM-DD."""
    fields = asdict(passport)
    found = fields["found"]
    total = fields["found"]["total"]
    lengths = passport.found.usual_lengths
    difference = "kappa_difference" if passport.found.marks else "f1_macro_difference"
    return {
        "schema_version": 2,
        "judge": passport.judge,
        "judge_labels": passport.column or None,
        "date": date,
        "eval_factory": __version__,
        "label_set": {
            "sha256": passport.labels_sha256,
            "items": total["items"],
            "labels": total["labels"],
            "physicians": found["physicians"],
            "conversations": found["conversations"],
        },
        "asked": fields["asked"],
        "unjudged": passport.unjudged,
        "verdict": passport.verdict,
        "method": METHOD,
        "steadiness": {str(change): one for change, one in fields["steadiness"].items()},
        "figures": {
            "judge": total["judge"],
            "physicians": total["physicians"],
            difference: found["gap"],
        },
        "categories": found["categories"],
        "answer_lengths": found["lengths"],
        "majority": found["majority"],
        "by_physician": found["by_physician"],
        "languages": found["languages"],
        "marks": list(found["marks"]),
        "says_met": found["says_met"],
        "usual_lengths": None if lengths is None else list(lengths),
        "pairs": pairs_as_lines(passport.found.pairs, list(found["categories"])),
        "items": items_as_lines(passport.found.kinds, list(found["categories"])),
    }


def figures_table(part: Part, majority: Part | None = None) -> Table:
    """A row a figure, the judge beside the physicians. `majority`: of theirs, a column more."""
    among = {key: "-" if key == "bias" else _figure(part.physicians, key) for key in NAMES}
    rows = [[name, _figure(part.judge, key), among[key]] for key, name in NAMES.items()]
    head = ["figure", "judge with physicians", "physicians with each other"]
    if majority is not None:
        head.insert(2, "judge with their majority")
        rows = [
            [*row[:2], _figure(majority.judge, key), row[2]]
            for row, key in zip(rows, NAMES, strict=True)
        ]
    return Table(head, _with_figures(rows, 1), len(head) - 1)


def _with_figures(rows: Sequence[list[str]], begin: int) -> list[list[str]]:
    """The rows that have a figure in a column from `begin` on."""
    filled = []
    for row in rows:
        if any(cell != "-" for cell in row[begin:]):
            filled.append(row)
    return filled


def parts_table(parts: Mapping[str, Part], name: str) -> Table:
    """A row a category or a third of the lengths that has a figure."""
    head = [name, "items", "labels", "judge: macro F1", "physicians: macro F1", NAMES["bias"]]
    rows = []
    for each, part in parts.items():
        agreement = [_figure(figures, "f1_macro") for figures in (part.judge, part.physicians)]
        rows.append(
            [each, str(part.items), str(part.labels), *agreement, _figure(part.judge, "bias")]
        )
    if all(part.physicians is None for part in parts.values()):
        head = [*head[:4], head[5]]
        rows = [[*row[:4], row[5]] for row in rows]
    return Table(head, _with_figures(rows, 3), len(head) - 1)


def steadiness_table(found: Mapping[Change, Steadiness]) -> Table:
    """A row a change of the question."""
    rows = []
    for change, one in found.items():
        flips = _with_interval(one.flips, formats.percent)
        shift = _with_interval(one.shift, _points)
        rows.append([str(change), str(one.decisions), flips, shift])
    return Table(["question", "asked", "decides otherwise", "more often met, points"], rows, 3)


def _figure(figures: Figures | None, key: str) -> str:
    show = _points if key == "bias" else formats.coefficient
    return "-" if figures is None else _with_interval(getattr(figures, key), show)


def passport_text(passport: JudgePassport) -> str:
    """For a screen of 80 columns; ends with a line break."""
    found = passport.found
    lines = [
        f"judge {one_line(passport.judge)}: {size_of(found)}",
        "",
        *screen(figures_table(found.total)),
        "",
    ]
    rows = []
    for name, part in found.categories.items():
        if (judge := part.judge) is not None:
            rows.append(
                [
                    one_line(name, 34),
                    str(part.items),
                    _coefficient(judge.f1_macro),
                    _figure(judge, "bias"),
                ]
            )
    if passport.steadiness:
        lines += [*screen(steadiness_table(passport.steadiness)), ""]
    if rows:
        lines += [*screen(Table(["category", "items", "macro F1", NAMES["bias"]], rows, 3)), ""]
    for sentence in passport.verdict:
        lines += textwrap.wrap(sentence, 80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def size_of(found: Calibration) -> str:
    items = formats.counted(found.total.items, "item")
    labels = formats.counted(found.total.labels, "label")
    who = formats.counted(found.physicians, "physician")
    where = formats.counted(found.conversations, "conversation")
    return f"{items}, {labels} of {who}, {where}"


def passport_page(passport: JudgePassport, date: str) -> str:
    """One offline page with the figures and the verdict; it holds no question, answer or
    criterion.
    """
    from markupsafe import (
        Markup,
    )  # imported here, as the rest of the page: text and JSON need none of it

    from eval_factory.report.page.document import tables_page

    found = passport.found
    pooled = (
        "A category with few items is drawn towards the others. "
        f"One with fewer than {FEWEST_ITEMS} has no figure and no row."
    )
    most = (
        f"Those with most labels, {FEWEST_ITEMS} at least. "
        "Does the judge disagree with all of them, or with one?"
    )
    by_length = (
        "Thirds of the items. A judge whose bias grows with the length rewards long answers."
    )
    again = (
        "The same was asked again, and about answers with words at their end that change nothing "
        "of what they say."
    )
    judged = [(name, part) for name, part in found.by_physician.items() if part.judge is not None][
        :20
    ]
    physicians = {one_line(name, 12): part for name, part in judged}  # their names are long hashes
    parts = [
        ("categories", "Categories", pooled, parts_table(found.categories, "category")),
        ("by-physician", "Each physician", most, parts_table(physicians, "physician")),
        ("lengths", "Length of the answer", by_length, parts_table(found.lengths, "characters")),
        ("languages", "Language", pooled, parts_table(found.languages, "language")),
        ("steadiness", "Is it steady?", again, steadiness_table(passport.steadiness)),
    ]
    # SVG and tables are ours, and escape what is in them
    own = [("judge", found.total.judge), ("physicians", found.total.physicians)]
    agreements = {name: figures.f1_macro for name, figures in own if figures is not None}
    title = "Macro F1: the judge with the physicians, and the physicians with each other"
    return tables_page(
        "judge_passport.html.j2",
        passport=passport,
        date=date,
        size=size_of(found),
        method=METHOD,
        plot=Markup(_plot(title, agreements, found.total.items)),  # noqa: S704
        figures=Markup(in_html(figures_table(found.total, found.majority))),  # noqa: S704
        parts=[(*words, Markup(in_html(table))) for *words, table in parts if table.rows],  # noqa: S704
    )


def _plot(title: str, agreements: Mapping[str, Figure], items: int) -> str:
    """Agreements, one below the other; nothing where none is defined."""
    from eval_factory.report.drawing import svg
    from eval_factory.report.plots import PlottedValue, dot_plot

    rows = [
        PlottedValue(name, one.value, one.ci_low, one.ci_high, items)
        for name, one in agreements.items()
        if one.value is not None
    ]
    return svg(dot_plot(title, rows, axis_label="macro F1", scale=(0.0, 1.0))) if rows else ""


HINT = (
    "Of each size the jury that agrees best with the physicians. Cross-validated: "
    "on conversations that had no part in"
    " the choice; the other figure has the luck of the choice in it. Cost: "
    "dollars per 1,000 criteria."
)


def juries_table(juries: Sequence[BestJury]) -> Table:
    rows = []
    for one in juries:
        shown = _with_interval(one.cross_validated)
        cost = "-" if one.cost_per_1000 is None else formats.short(one.cost_per_1000)
        rows.append(
            [one_line(", ".join(one.judges)), shown, formats.coefficient(one.f1_macro), cost]
        )
    return Table(["jury", "macro F1, cross-validated", "by which it was chosen", "cost"], rows, 3)


def juries_document(juries: Sequence[BestJury]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "about": HINT,
        "juries": [asdict(one) | {"judges": list(one.judges)} for one in juries],
    }


def juries_page(juries: Sequence[BestJury], size: str, items: int) -> str:
    """One offline page. `size`: of what the figures are, in words; `items`: how many."""
    from markupsafe import Markup  # imported here, as the rest of the page

    from eval_factory.report.page.document import tables_page

    found = {", ".join(one.judges): one.cross_validated for one in juries}
    plot = _plot("Macro F1 with the physicians, cross-validated", found, items)
    # SVG and table are ours, and escape what is in them
    return tables_page(
        "juries.html.j2",
        hint=HINT,
        size=size,
        plot=Markup(plot),  # noqa: S704
        table=Markup(in_html(juries_table(juries))),  # noqa: S704
    )
