"""Writes a judge's passport as text, JSON, YAML and a page.

A passport reports how well a judge agrees with physicians, and how steady the judge is: how often
it decides otherwise if it is asked again, or about a changed answer. docs/trust-a-judge.md explains
the rules of the verdict.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval_factory import __version__
from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.tables import Table, screen_lines
from eval_factory.core.tables import html as in_html
from eval_factory.scoring.agreement_figures import AgreementPart, Figure, Figures
from eval_factory.scoring.judge_calibration import Calibration, QuestionChange, Steadiness
from eval_factory.scoring.judge_passports import AskedJudge, items_as_lines, pairs_as_lines
from eval_factory.scoring.jury_choice import BestJury
from eval_factory.tasks.physician_labels import MIN_ITEMS

MARGIN = 0.05
"""A difference of macro F1 does not matter up to this size; nor does a bias up to this size."""
_MARGIN_POINTS = formats.short(100 * MARGIN)
FIGURE_NAMES = {
    "f1_macro": "macro F1",
    "kappa": "Cohen's kappa",
    "ac1": "Gwet's AC1",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "bias": "bias, points",
}
"""Each field of `Figures` with its name in tables."""
METHOD = (
    "95 % intervals by clusters of conversations: a jackknife with pseudo-clusters (macro F1, "
    "kappa, AC1 and their difference), Wilson's on the effective number (sensitivity, "
    f"specificity), Student's t with pseudo-clusters (bias). Categories of {MIN_ITEMS} items or "
    "more are pooled partially where there are three or more of them."
)
"""The statistical method, as the passport names it."""
# The possible values of `JudgePassport.agreement`:
AS_WELL = "as well"  # The judge agrees with physicians as well as physicians with each other.
LESS = "less"  # The judge agrees with physicians less than physicians with each other.
OPEN = "open"  # There are too few labels to decide between `AS_WELL` and `LESS`.
NOT_SHOWN = "not shown"  # The labels cannot show how well the judge agrees.
_MAX_CATEGORY_NAME = 34  # the maximum number of characters of a category's name on a screen


@dataclass(frozen=True)
class JudgePassport:
    """The measured agreement of one judge with physicians, and the verdict about the judge."""

    judge: str
    column: str  # the field of the labels that has the judge's decisions; empty if there is none
    labels_sha256: str  # the SHA-256 of the label file
    found: Calibration  # the measured agreement with physicians (a public name: docs/python.md)
    asked: AskedJudge | None = None  # None if the judge's decisions were in the label file
    # dict from a change of the questions to the steadiness of the judge's decisions
    steadiness: Mapping[QuestionChange, Steadiness] = field(default_factory=dict)
    unjudged: int = 0  # the number of items without a decision of the judge

    @property
    def agreement(self) -> str:
        """The judge's agreement with physicians: `AS_WELL`, `LESS`, `OPEN` or `NOT_SHOWN`."""
        if self._always_decides_the_same:
            return NOT_SHOWN
        # `gap` is the judge's agreement with physicians less the physicians' with each other.
        low = self.found.gap.ci_low
        high = self.found.gap.ci_high
        if low is None or high is None:
            return NOT_SHOWN
        if not self._physicians_beat_chance:
            return NOT_SHOWN
        if low >= -MARGIN:
            return AS_WELL
        if high < 0:
            return LESS
        return OPEN

    @property
    def _always_decides_the_same(self) -> bool:
        """True if the judge made one and the same decision about all items."""
        return self.found.always is not None

    @property
    def _physicians_beat_chance(self) -> bool:
        """True if the physicians' agreement with each other is shown to be better than chance."""
        physicians = self.found.total.physicians
        if physicians is None or physicians.kappa.ci_low is None:
            return False
        return physicians.kappa.ci_low > 0  # Agreement by chance has a kappa of 0.

    @property
    def bias(self) -> Figure:
        """The judge's bias: above 0 if the judge is more lenient than the physicians."""
        if self.found.total.judge is None:
            return Figure(value=None)
        return self.found.total.judge.bias

    @property
    def grade(self) -> str:
        """The CSS class of the page's card: `good`, `warn` or `bad`."""
        low = self.bias.ci_low
        high = self.bias.ci_high
        if self.agreement == LESS or self._always_decides_the_same:
            return "bad"
        if low is None or high is None or self.agreement != AS_WELL:
            return "warn"
        # All of the bias's interval is beyond the margin.
        if low > MARGIN or high < -MARGIN:
            return "bad"
        # A part of the bias's interval is beyond the margin.
        if low < -MARGIN or high > MARGIN:
            return "warn"
        if self._significant_shifts or self.unjudged:
            return "warn"
        return "good"

    @property
    def verdict(self) -> list[str]:
        """The sentences of the verdict, for a clinician: about agreement, bias and steadiness.

        A bias that makes the grade `bad` comes first.
        """
        sentences = [self._agreement_sentence(), self._bias_sentence()]
        if self.grade == "bad" and self.agreement == AS_WELL:
            sentences.reverse()
        return [*sentences, *self._steadiness_sentences(), *self._category_sentences()]

    @property
    def _significant_shifts(self) -> dict[QuestionChange, float]:
        """The changes of a question after which the judge says `met` significantly more or less
        often, each with its shift.
        """
        shifts = {}
        for change, steadiness in self.steadiness.items():
            shift = steadiness.shift
            if shift.value is not None and not shift.includes_0:
                shifts[change] = shift.value
        return shifts

    def _steadiness_sentences(self) -> Iterator[str]:
        """Yield sentences about missing decisions and changed decisions."""
        if self.unjudged:
            items = formats.counted(self.unjudged, "item")
            yield f"The judge did not decide about {items}; the figures leave these out."
        for change, shift in self._significant_shifts.items():
            points = formats.points(abs(shift))
            yield (
                f"The judge can be moved: with {change}, it says 'met' {points} points "
                f"{_more_or_less(shift)} often."
            )
        in_same_words = self.steadiness.get(QuestionChange.AGAIN)
        if in_same_words is not None and in_same_words.flips.value is not None:
            flips = formats.percent(in_same_words.flips.value)
            yield f"Asked the same again, the judge decides otherwise in {flips} of cases."

    def _agreement_sentence(self) -> str:
        """Return a sentence about the judge's agreement, or about why no agreement is shown."""
        calibration = self.found
        judge_figures = calibration.total.judge
        physician_figures = calibration.total.physicians
        if calibration.always is not None:
            decision = "not met"
            if calibration.always:
                decision = "met"
            return (
                f"The judge said {decision!r} of everything: "
                "nothing shows that it can tell good from bad."
            )
        number_of_physicians = calibration.physicians
        if number_of_physicians == 1:
            return (
                "Only one physician labelled: how far physicians agree with each other, which is "
                "the most that a judge can reach, is not known."
            )
        if judge_figures is None or physician_figures is None or calibration.gap.ci_low is None:
            conversations = formats.counted(calibration.conversations, "conversation")
            return (
                f"{conversations} cannot show how far the judge agrees with the physicians: "
                "too few, or all decisions are equal."
            )
        if self.agreement == NOT_SHOWN:
            kappa = f"kappa {_with_interval(physician_figures.kappa)}"
            return (
                "The physicians' own agreement is not shown to be better than chance "
                f"({kappa}): these labels cannot show how good the judge is."
            )
        gap_text = self._gap_text(judge_figures, physician_figures)
        return f"{_AGREEMENT_SENTENCES[self.agreement]} ({gap_text})."

    def _gap_text(self, judge: Figures, physicians: Figures) -> str:
        """Return the agreements of the judge and of the physicians, and their difference."""
        if self.found.marks:  # The labels are marks on a scale, not `met` or `not met`.
            measure = "weighted kappa"
            of_judge = judge.kappa
            of_physicians = physicians.kappa
        else:
            measure = "macro F1"
            of_judge = judge.f1_macro
            of_physicians = physicians.f1_macro
        gap = self.found.gap
        return (
            f"{measure} {_coefficient_text(of_judge)} beside {_coefficient_text(of_physicians)}; "
            f"the difference is {_points_text(gap.ci_low)} to {_points_text(gap.ci_high)} points"
        )

    def _bias_sentence(self) -> str:
        """Return a sentence that says whether the judge is lenient or strict."""
        value = self.bias.value
        low = self.bias.ci_low
        high = self.bias.ci_high
        if value is None or low is None or high is None:
            return "These labels cannot show whether the judge is lenient or strict."
        if not self.bias.includes_0:
            return self._significant_bias_sentence(value, low, high)
        if low >= -MARGIN and high <= MARGIN:
            return f"The judge is neither lenient nor strict by more than {_MARGIN_POINTS} points."
        measured = f"{_points_text(value)} points, {_points_text(low)} to {_points_text(high)}"
        largest_possible = formats.points(max(-low, high))
        return (
            f"The judge is not shown to be lenient or strict ({measured}), but it may be by up to "
            f"{largest_possible} points."
        )

    def _significant_bias_sentence(self, value: float, low: float, high: float) -> str:
        """Return a sentence about a bias whose interval, from `low` to `high`, excludes 0.

        The numbers in the sentence have no sign: the words `lenient` and `strict` replace it.
        """
        kind = "strict"
        direction = "lower"
        if value > 0:
            kind = "lenient"
            direction = "higher"
        points = formats.points(abs(value))
        smallest, largest = sorted((abs(low), abs(high)))
        interval = f"{formats.points(smallest)} to {formats.points(largest)}"
        if self.found.marks:
            return (
                f"The judge is {kind}: its marks are {points} points of 100 {direction} than the "
                f"physicians' ({interval})."
            )
        return (
            f"The judge is {kind}: it says 'met' {points} points {_more_or_less(value)} often "
            f"than the physicians ({interval})."
        )

    def _category_sentences(self) -> list[str]:
        """Return a sentence about biased categories, or about categories without a figure.

        The list is empty if all categories have figures and none is biased.
        """
        categories = self.found.categories
        with_figures = 0
        biased: dict[str, float] = {}  # dict from a category with a significant bias to this bias
        for name, part in categories.items():
            if part.judge is None:
                continue
            with_figures += 1
            bias = part.judge.bias
            if bias.value is not None and not bias.includes_0:
                biased[name] = bias.value
        if biased:
            worst = max(biased, key=lambda name: abs(biased[name]))
            worst_bias = f"{one_line(worst)} ({_points_text(biased[worst])} points)"
            shown = formats.counted(with_figures, "category", "categories")
            extent = f"{len(biased)}, most in {worst_bias}"
            return [f"Of {shown} with figures, the judge is biased in {extent}."]
        if with_figures == len(categories):
            return []
        without_figures = f"{len(categories) - with_figures} of {len(categories)}"
        return [
            f"{without_figures} categories have no figure: they have fewer than {MIN_ITEMS} items."
        ]


_AGREEMENT_SENTENCES = {
    AS_WELL: (
        "The judge agrees with the physicians as well as they agree with each other, "
        f"to within {_MARGIN_POINTS} points"
    ),
    LESS: "The judge agrees with the physicians less than they agree with each other",
    OPEN: (
        "These labels are too few to say whether the judge agrees with the physicians "
        "as well as they agree with each other"
    ),
}


def _more_or_less(difference: float) -> str:
    """Return `more` if a difference is positive, otherwise `less`."""
    if difference > 0:
        return "more"
    return "less"


def _coefficient_text(figure: Figure) -> str:
    """Return a figure without its interval; `-` if the figure has no value."""
    return formats.coefficient(figure.value, missing="-")


def _points_text(share: float | None) -> str:
    """Return a share in points of 100, with its sign; `-` if there is no share."""
    if share is None:
        return "-"
    return formats.points(share, sign="+")


def _with_interval(figure: Figure, show: Callable[[float], str] = formats.coefficient) -> str:
    """Return a figure with its interval, formatted by `show`; `-` if the figure has no value."""
    if figure.value is None:
        return "-"
    if figure.ci_low is None or figure.ci_high is None:
        return show(figure.value)
    return f"{show(figure.value)} ({show(figure.ci_low)} to {show(figure.ci_high)})"


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Return the document that `--json` prints.

    The numbers are exact. They are shares, not points. A missing figure is null.
    """
    fields = asdict(calibration)
    return {**fields["total"], "categories": fields["categories"]}


def passport_document(passport: JudgePassport, date: str) -> dict[str, Any]:
    """Return the document of judge_passport.yaml. `date` is in the format YYYY-MM-DD."""
    fields = asdict(passport)
    calibration = fields["found"]
    total = calibration["total"]
    usual_lengths = None
    if passport.found.usual_lengths is not None:
        usual_lengths = list(passport.found.usual_lengths)
    gap_key = "f1_macro_difference"
    if passport.found.marks:
        gap_key = "kappa_difference"
    return {
        "schema_version": 2,
        "judge": passport.judge,
        "judge_labels": passport.column or None,  # null if no field has the judge's decisions
        "date": date,
        "eval_factory": __version__,
        "label_set": {
            "sha256": passport.labels_sha256,
            "items": total["items"],
            "labels": total["labels"],
            "physicians": calibration["physicians"],  # their number
            "conversations": calibration["conversations"],
        },
        "asked": fields["asked"],
        "unjudged": passport.unjudged,
        "verdict": passport.verdict,
        "method": METHOD,
        "steadiness": {str(name): value for name, value in fields["steadiness"].items()},
        "figures": {
            "judge": total["judge"],
            "physicians": total["physicians"],
            gap_key: calibration["gap"],
        },
        "categories": calibration["categories"],
        # the agreement in each third of the items by the length of the answer
        "answer_lengths": calibration["lengths"],
        "majority": calibration["majority"],
        "by_physician": calibration["by_physician"],
        "languages": calibration["languages"],
        "marks": list(calibration["marks"]),
        "says_met": calibration["says_met"],  # the share of items that the judge decides as `met`
        # the 5 % and the 95 % quantile of the answers' lengths, in characters
        "usual_lengths": usual_lengths,
        # lines of numbers: counts of pairs, and groups of items with equal decisions
        "pairs": pairs_as_lines(passport.found.pairs, list(calibration["categories"])),
        "items": items_as_lines(passport.found.item_groups, list(calibration["categories"])),
    }


def figures_table(part: AgreementPart, majority: AgreementPart | None = None) -> Table:
    """Return a table with one row for each figure, and columns for the judge and the physicians.

    `majority` adds a column: the agreement of the judge with the majority of the physicians.
    """
    head = ["figure", "judge with physicians"]
    if majority is not None:
        head.append("judge with their majority")
    head.append("physicians with each other")
    rows = []
    for key, name in FIGURE_NAMES.items():
        row = [name, _figure_text(part.judge, key)]
        if majority is not None:
            row.append(_figure_text(majority.judge, key))
        if key == "bias":
            row.append("-")  # Among physicians, the bias is always 0.
        else:
            row.append(_figure_text(part.physicians, key))
        rows.append(row)
    return Table(head, _rows_with_figures(rows, first_figure=1), number_columns=len(head) - 1)


def _rows_with_figures(rows: Sequence[list[str]], *, first_figure: int) -> list[list[str]]:
    """Return the rows with at least one figure.

    `first_figure` is the index of the first column with figures.
    """
    rows_with_figures = []
    for row in rows:
        if any(cell != "-" for cell in row[first_figure:]):
            rows_with_figures.append(row)
    return rows_with_figures


def parts_table(parts: Mapping[str, AgreementPart], first_head: str) -> Table:
    """Return a table with one row for each part that has a figure.

    A part is a category, a physician, a language or a third of the answers by length.
    `first_head` is the head of the first column.
    """
    head = [first_head, "items", "labels", "judge: macro F1"]
    has_physicians = any(part.physicians is not None for part in parts.values())
    if has_physicians:
        head.append("physicians: macro F1")
    head.append(FIGURE_NAMES["bias"])
    rows = []
    for name, part in parts.items():
        row = [name, str(part.items), str(part.labels), _figure_text(part.judge, "f1_macro")]
        if has_physicians:
            row.append(_figure_text(part.physicians, "f1_macro"))
        row.append(_figure_text(part.judge, "bias"))
        rows.append(row)
    return Table(head, _rows_with_figures(rows, first_figure=3), number_columns=len(head) - 1)


def steadiness_table(by_change: Mapping[QuestionChange, Steadiness]) -> Table:
    """Return a table with one row for each change of the question."""
    head = ["question", "asked", "decides otherwise", "more often met, points"]
    rows = []
    for change, steadiness in by_change.items():
        flips = _with_interval(steadiness.flips, formats.percent)
        shift = _with_interval(steadiness.shift, _points_text)
        rows.append([str(change), str(steadiness.decisions), flips, shift])
    return Table(head, rows, number_columns=3)


def _figure_text(figures: Figures | None, key: str) -> str:
    """Return the figure of this key with its interval; `-` if there is none."""
    if figures is None:
        return "-"
    if key == "bias":
        return _with_interval(figures.bias, _points_text)
    return _with_interval(getattr(figures, key))


def passport_text(passport: JudgePassport) -> str:
    """Return the passport as text for a screen of 80 columns, with a line break at the end."""
    calibration = passport.found
    lines = [
        f"judge {one_line(passport.judge)}: {label_set_size(calibration)}",
        "",
        *screen_lines(figures_table(calibration.total)),
        "",
    ]
    if passport.steadiness:
        lines += [*screen_lines(steadiness_table(passport.steadiness)), ""]
    categories = _narrow_category_table(calibration)
    if categories.rows:
        lines += [*screen_lines(categories), ""]
    for sentence in passport.verdict:
        lines += textwrap.wrap(sentence, width=80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _narrow_category_table(calibration: Calibration) -> Table:
    """Return a table of the categories with figures that fits on a screen of 80 columns."""
    rows = []
    for name, part in calibration.categories.items():
        if part.judge is not None:
            rows.append(
                [
                    one_line(name, _MAX_CATEGORY_NAME),
                    str(part.items),
                    _coefficient_text(part.judge.f1_macro),
                    _figure_text(part.judge, "bias"),
                ]
            )
    return Table(["category", "items", "macro F1", FIGURE_NAMES["bias"]], rows, number_columns=3)


def label_set_size(calibration: Calibration) -> str:
    """Return the numbers of items, labels, physicians and conversations, as a text."""
    items = formats.counted(calibration.total.items, "item")
    labels = formats.counted(calibration.total.labels, "label")
    physicians = formats.counted(calibration.physicians, "physician")
    conversations = formats.counted(calibration.conversations, "conversation")
    return f"{items}, {labels} of {physicians}, {conversations}"


# The hints on the page, each above the table that the hint explains.
_POOLING_HINT = (
    "The figures of a row with few items are drawn towards the others. "
    f"There is no row for fewer than {MIN_ITEMS} items."
)
_PHYSICIANS_HINT = (
    f"The physicians with most labels, {MIN_ITEMS} at least. "
    "Does the judge disagree with all of them, or with one physician?"
)
_LENGTHS_HINT = (
    "Thirds of the items. A judge whose bias grows with the length rewards long answers."
)
_STEADINESS_HINT = (
    "The judge was asked the same again, and it was asked about answers to which words were "
    "added that change nothing of what the answers say."
)
MAX_PHYSICIANS = 20  # the maximum number of physicians on the page
# the maximum number of characters of a physician's name on the page; the names are long hashes
_MAX_PHYSICIAN_NAME = 12


def passport_page(passport: JudgePassport, date: str) -> str:
    """Return the passport as an offline page with the figures and the verdict.

    The page has no questions, answers or criteria.
    """
    # Imported here, because the passport as text or JSON needs no page.
    from markupsafe import Markup

    from eval_factory.report.page.document import tables_page

    calibration = passport.found
    total = calibration.total
    physicians: dict[str, AgreementPart] = {}
    for name, part in calibration.by_physician.items():
        if part.judge is not None and len(physicians) < MAX_PHYSICIANS:
            physicians[one_line(name, _MAX_PHYSICIAN_NAME)] = part
    by_category = parts_table(calibration.categories, "category")
    by_physician = parts_table(physicians, "physician")
    by_length = parts_table(calibration.lengths, "characters")
    by_language = parts_table(calibration.languages, "language")
    by_change = steadiness_table(passport.steadiness)
    sections = []
    for section_id, title, hint, table in (
        ("categories", "Categories", _POOLING_HINT, by_category),
        ("by-physician", "Each physician", _PHYSICIANS_HINT, by_physician),
        ("lengths", "Length of the answer", _LENGTHS_HINT, by_length),
        ("languages", "Language", _POOLING_HINT, by_language),
        ("steadiness", "Is it steady?", _STEADINESS_HINT, by_change),
    ):
        if table.rows:
            html_table = Markup(in_html(table))  # noqa: S704 - escaped
            sections.append((section_id, title, hint, html_table))
    agreements = {}
    for who, figures in (("judge", total.judge), ("physicians", total.physicians)):
        if figures is not None:
            agreements[who] = figures.f1_macro
    plot_title = "Macro F1: the judge with the physicians, and the physicians with each other"
    # `Markup` is safe here: eval-factory makes the SVG and the tables, and escapes their texts.
    return tables_page(
        "judge_passport.html.j2",
        passport=passport,
        date=date,
        size=label_set_size(calibration),
        method=METHOD,
        plot=Markup(_plot(plot_title, agreements, total.items)),  # noqa: S704
        figures=Markup(in_html(figures_table(total, calibration.majority))),  # noqa: S704
        sections=sections,
    )


def _plot(title: str, agreements: Mapping[str, Figure], items: int) -> str:
    """Return a dot plot of the agreements as SVG; an empty string if no agreement has a value.

    `items` is the number of items in the label set.
    """
    from eval_factory.report.drawing import svg
    from eval_factory.report.plots import PlottedValue, dot_plot

    rows = []
    for name, figure in agreements.items():
        if figure.value is not None:
            row = PlottedValue(
                name, figure.value, low=figure.ci_low, high=figure.ci_high, count=items
            )
            rows.append(row)
    if not rows:
        return ""
    return svg(dot_plot(title, rows, axis_label="macro F1", scale=(0.0, 1.0)))


JURIES_HINT = (
    "For each size, the jury that agrees best with the physicians. The cross-validated figure is "
    "of conversations that were not used to choose the jury; the other figure is of the "
    "conversations that were used, and is therefore too good. Cost: dollars for 1,000 requests to "
    "each judge of the jury."
)


def juries_table(juries: Sequence[BestJury]) -> Table:
    """Return a table with one row for each jury."""
    head = ["jury", "macro F1, cross-validated", "by which it was chosen", "cost"]
    rows = []
    for jury in juries:
        cost = "-"
        if jury.cost_per_1000 is not None:
            cost = formats.short(jury.cost_per_1000)
        rows.append(
            [
                one_line(", ".join(jury.judges)),
                _with_interval(jury.cross_validated),
                formats.coefficient(jury.f1_macro),
                cost,
            ]
        )
    return Table(head, rows, number_columns=3)


def juries_document(juries: Sequence[BestJury]) -> dict[str, Any]:
    """Return the document about the best juries, for YAML or JSON."""
    documents = []
    for jury in juries:
        documents.append(asdict(jury) | {"judges": list(jury.judges)})
    return {"schema_version": 1, "about": JURIES_HINT, "juries": documents}


def juries_page(juries: Sequence[BestJury], size: str, items: int) -> str:
    """Return the offline page about the best juries.

    Args:
        juries: The best jury of each size.
        size: The size of the label set, as `label_set_size` returns it.
        items: The number of items in the label set.
    """
    # Imported here, because the table and the document need no page.
    from markupsafe import Markup

    from eval_factory.report.page.document import tables_page

    agreements = {", ".join(jury.judges): jury.cross_validated for jury in juries}
    plot = _plot("Macro F1 with the physicians, cross-validated", agreements, items)
    # `Markup` is safe here: eval-factory makes the SVG and the table, and escapes their texts.
    return tables_page(
        "juries.html.j2",
        hint=JURIES_HINT,
        size=size,
        plot=Markup(plot),  # noqa: S704
        table=Markup(in_html(juries_table(juries))),  # noqa: S704
    )
