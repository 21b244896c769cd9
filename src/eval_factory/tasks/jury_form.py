"""Defines the form of a jury's answers (ratings and criteria), and checks the judges' prompt.

A custom benchmark can choose the scale and the criteria. The judges' prompt, the check of the
judges' answers, the scale of the score and the sheet for clinicians follow this form. HELM's metric
is the mean of the ratings as whole numbers: HELM neither clips nor rescales the mean.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.tasks.custom_table import CORRECT
from eval_factory.tasks.file_problems import Findings, line_of, read_text

JURY = "jury_score"
"""The name of a jury's metric in benchmark.yaml. `SCALE` and `CRITERIA` are keys of this metric;
`MIN` and `MAX` are keys of a scale.
"""
SCALE = "scale"
CRITERIA = "criteria"
MIN = "min"
MAX = "max"
SCALE_PLACEHOLDER = "SCALE"
CRITERIA_PLACEHOLDER = "CRITERIA"
"""Placeholders (`{SCALE}`, `{CRITERIA}`) that eval-factory fills before HELM reads the prompt."""
FIELDS = ("score", "explanation")  # the fields of a criterion's rating that `{CRITERIA}` asks for
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class JuryForm:
    """The form of a jury's ratings."""

    values: tuple[int, ...]  # all valid ratings, in ascending order (see `shares`)
    labels: Mapping[str, int] = field(default_factory=dict)
    """Word for a rating -> the rating, in ascending order; empty if judges answer with numbers."""
    criteria: Mapping[str, str] = field(default_factory=dict)
    """Name of a criterion -> its description, which may be ""; empty if only the judges' prompt
    defines the criteria.
    """
    own_scale: bool = False  # True if the benchmark states a scale, even if the scale equals HELM's
    # True if `values` has only the lowest and the highest rating, and every number between the two
    # is also a rating
    shares: bool = False

    @property
    def lowest(self) -> float:
        """The lowest rating, which an empty answer gets."""
        return float(self.values[0])

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest rating."""
        return self.lowest, float(self.values[-1])

    @property
    def wanted(self) -> str:
        """The description of a valid rating for prompts and messages."""
        if self.labels:
            return "one of " + ", ".join(f'"{label}"' for label in self.labels)
        return f"a whole number from {self.values[0]} to {self.values[-1]}"

    def value_of(self, score: object) -> int | None:
        """Return the rating in a judge's answer; None if the answer is not one of `values`.

        Args:
            score: the value of `score` in the judge's JSON: a number, a number as text, or one of
                `labels` in any letter case.
        """
        if isinstance(score, str):
            text = score.strip()
            spelled = {str(value): value for value in self.values}
            spelled |= {label.casefold(): value for label, value in self.labels.items()}
            return spelled.get(text.casefold())
        if (
            isinstance(score, bool)
            or not isinstance(score, (int, float))
            or score not in self.values
        ):
            return None
        return int(score)

    def spellings(self, value: int) -> set[str]:
        """Return the ways to write a rating: digits, an English number word up to ten, its label.

        `value`: the rating.
        """
        forms = {str(value), f"{value}.0"}
        if 0 <= value < len(_WORDS):
            forms.add(_WORDS[value])
        for label, value_of_label in self.labels.items():
            if value_of_label == value:
                forms.add(label)
        return forms

    def filled(self, prompt: str) -> str:
        """Return a judges' prompt with the scale and criteria filled in.

        A placeholder stays if the benchmark does not state the scale or the criteria.
        """
        if self.own_scale:
            prompt = prompt.replace(
                f"{{{SCALE_PLACEHOLDER}}}", f"{self.wanted} (from the worst to the best)"
            )
        if self.criteria:
            # The request has three parts: the list of criteria, the block in which HELM looks for
            # criteria, and an example of the answer at the end.
            lines = []
            for name, text in self.criteria.items():
                lines.append(f"- {name}: {text}" if text else f"- {name}")
            listed = "\n".join(lines)
            block = json.dumps(dict.fromkeys(self.criteria, FIELDS), ensure_ascii=False)
            # The example shows the rating in the middle of the scale.
            middle = self.values[len(self.values) // 2]
            score = next((label for label, value in self.labels.items() if value == middle), middle)
            rating = {"score": score, "explanation": "why this score"}
            example = json.dumps(dict.fromkeys(self.criteria, rating), ensure_ascii=False)
            request = (
                f"{listed}\n\n<rubric_criteria>\n{block}\n</rubric_criteria>\n\n"
                "Give one JSON object with every criterion and nothing else. Output Format:\n\n"
                f"{example}"
            )
            prompt = prompt.replace(f"{{{CRITERIA_PLACEHOLDER}}}", request)
        return prompt

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names of the placeholders that `filled` fills."""
        placeholders = []
        if self.own_scale:
            placeholders.append(SCALE_PLACEHOLDER)
        if self.criteria:
            placeholders.append(CRITERIA_PLACEHOLDER)
        return tuple(placeholders)

    def as_dict(self) -> dict[str, Any]:
        """Return the scale and criteria in the form of benchmark.yaml; empty if the benchmark
        states neither.
        """
        document: dict[str, Any] = {}
        if self.own_scale:
            document[SCALE] = dict(self.labels) or {MIN: self.values[0], MAX: self.values[-1]}
        if self.criteria:
            document[CRITERIA] = []
            for name, text in self.criteria.items():
                document[CRITERIA].append({"name": name, "description": text})
        return document


HELMS_FORM = JuryForm((1, 2, 3, 4, 5))
"""The default form: HELM's juries rate with whole numbers from 1 to 5."""
SHARES_FORM = JuryForm((0, 1), shares=True)
"""The form of medhelm's HealthBench: a judge's rating is the share of a rubric's points."""


def jury_form_of(metric: Mapping[str, Any]) -> JuryForm:
    """Return the form of a jury.

    Args:
        metric: the jury's metric in a benchmark.yaml that was checked.
    """
    scale: Mapping[str, int] | None = metric.get(SCALE)
    listed_criteria: Sequence[Mapping[str, str]] = metric.get(CRITERIA) or ()
    criteria = {}
    for criterion in listed_criteria:
        criteria[criterion["name"]] = criterion.get("description", "")
    if scale is None:
        return JuryForm(HELMS_FORM.values, criteria=criteria)
    if scale.keys() == {MIN, MAX}:
        return JuryForm(tuple(range(scale[MIN], scale[MAX] + 1)), criteria=criteria, own_scale=True)
    labels = dict(sorted(scale.items(), key=lambda item: item[1]))
    return JuryForm(tuple(labels.values()), labels, criteria, own_scale=True)


# the names of the placeholders that HELM fills in a judge's prompt
HELM_PLACEHOLDERS = ("QUESTION", "RESPONSE", "GOLD_RESPONSE")

# the pattern with which HELM finds the criteria in a judge's prompt
_CRITERIA = re.compile(r"<rubric_criteria>\s*(\{.*?\})\s*</rubric_criteria>", re.DOTALL)


def check_judge_prompt(
    path: Path, file: Path, header: Sequence[str] | None, findings: Findings, form: JuryForm
) -> None:
    """Check the judges' prompt of a custom benchmark.

    Args:
        path: the benchmark's YAML file, which names the prompt's file.
        file: the file of the prompt.
        header: the columns of the benchmark's data; None if the data cannot be read.
        findings: the lists to which problems are added.
        form: the form of the jury's answers.
    """
    text = read_text(file, "the judges' prompt_file", path, findings)
    if text is None:
        return
    names = [name for name in HELM_PLACEHOLDERS if f"{{{name}}}" in text]
    # HELM also reads the prompt as a `string.Template`, in which `$` has a meaning.
    for match in string.Template.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if name in HELM_PLACEHOLDERS:
            names.append(name)
        elif match["escaped"] is None:
            line = text.count("\n", 0, match.start()) + 1
            findings.problems.append(f"{file}: line {line}: write $$ for a dollar sign")
    if "RESPONSE" not in names:
        findings.problems.append(f"{file}: must hold {{RESPONSE}}, the answer to judge")
    if "GOLD_RESPONSE" in names and header is not None and CORRECT not in header:
        findings.problems.append(
            f"{file}: holds {{GOLD_RESPONSE}}, but the data have no column {CORRECT}"
        )
    problems = [*_not_filled(text, header or (), form), *_form_problems(text, form)]
    findings.problems += [f"{file}: {problem}" for problem in problems]


def _not_filled(text: str, header: Sequence[str], form: JuryForm) -> Iterator[str]:
    """Yield a problem for each name in braces that looks like a placeholder but is not filled.

    `header`: the columns of the data, whose names a user may expect to be filled.
    """
    placeholders = (*HELM_PLACEHOLDERS, *form.placeholders)
    for name in re.findall(r"\{([^{}\n]+)\}", text):
        looks_like_placeholder = (
            name.upper() in HELM_PLACEHOLDERS or re.fullmatch("[A-Z_]+", name) or name in header
        )
        if looks_like_placeholder and name not in placeholders:
            reason = f"by HELM; a judge's prompt has {', '.join(placeholders)}"
            if name in (SCALE_PLACEHOLDER, CRITERIA_PLACEHOLDER):
                remedy = "add that key to benchmark.yaml, or write the text into the prompt"
                reason = f"if the jury's metric has no {name.lower()}; {remedy}"
            yield f"line {line_of(text, f'{{{name}}}')}: {{{name}}} is not filled in {reason}"


def _form_problems(text: str, form: JuryForm) -> Iterator[str]:
    """Yield the problems of the criteria in the prompt.

    HELM reads the criteria from the prompt, so criteria in benchmark.yaml must be the same.
    """
    place = f"{{{CRITERIA_PLACEHOLDER}}}"
    if form.criteria and place in text and _CRITERIA.search(text):
        yield (
            f"line {line_of(text, place)}: {place} is replaced by text with <rubric_criteria>, "
            "which the prompt has already; delete one of the two"
        )
        return
    block = '<rubric_criteria>{"accuracy": ["score", "explanation"]}</rubric_criteria>'
    filled = form.filled(text)
    match = _CRITERIA.search(filled)
    if match is None:
        yield f"names no criteria; it needs a block such as {block}"
        return
    # This is also the line in the user's file: the text for `{SCALE}` is on one line, and the block
    # that replaces `{CRITERIA}` has no problem.
    line = filled.count("\n", 0, match.start(1)) + 1
    try:
        criteria = json.loads(match[1])
    except ValueError as error:
        yield (
            f"line {line}: the text in <rubric_criteria> is not a JSON object ({error}); "
            f"write {block}"
        )
        return
    if not criteria:
        yield f"line {line}: <rubric_criteria> names no criterion; write {block}"
    wrong = [
        f"line {line}: the criterion {name!r} must have a list of fields, 'score' among them; "
        f"write {block}"
        for name, fields in criteria.items()
        if not (
            isinstance(fields, list)
            and all(isinstance(item, str) for item in fields)
            and "score" in fields
        )
    ]
    yield from wrong
    if criteria and not wrong and form.criteria and criteria.keys() != form.criteria.keys():
        yield (
            f"line {line_of(text, '<rubric_criteria>')}: <rubric_criteria> names "
            f"{', '.join(criteria)}, and the jury's metric has the criteria "
            f"{', '.join(form.criteria)}; name the same criteria, or write {place} in its "
            "place"
        )
