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

from eval_factory.tasks.custom_table import CORRECT_ANSWER_FIELD
from eval_factory.tasks.file_problems import Findings, line_number_of, read_text

JURY_METRIC = "jury_score"
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
_DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBER_WORDS = (*_DIGIT_WORDS, "ten")


@dataclass(frozen=True)
class JuryForm:
    """The form of a jury's ratings."""

    values: tuple[int, ...]  # all valid ratings, in ascending order (see `is_continuous`)
    labels: Mapping[str, int] = field(default_factory=dict)
    """Dict from the word for a rating to the rating, in ascending order; empty if judges answer
    with numbers.
    """
    criteria: Mapping[str, str] = field(default_factory=dict)
    """Dict from the name of a criterion to its description, which may be "". Empty if only the
    judges' prompt defines the criteria.
    """
    # True if benchmark.yaml states the scale, even if this scale equals HELM's
    states_scale: bool = False
    # True if every number between the lowest and the highest rating is a rating; `values` then
    # has only the lowest and the highest
    is_continuous: bool = False

    @property
    def lowest(self) -> float:
        """The lowest rating, which an empty answer gets."""
        return float(self.values[0])

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest rating."""
        return self.lowest, float(self.values[-1])

    @property
    def rating_description(self) -> str:
        """The description of a valid rating, for prompts and messages."""
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
        # `bool` is a subclass of `int`, but true and false are not ratings.
        is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if is_number and score in self.values:
            return int(score)
        return None

    def spellings(self, rating: int) -> set[str]:
        """Return the ways to write a rating: digits, an English number word, its label."""
        spellings = {str(rating), f"{rating}.0"}
        if 0 <= rating < len(_NUMBER_WORDS):
            spellings.add(_NUMBER_WORDS[rating])
        for label, rating_of_label in self.labels.items():
            if rating_of_label == rating:
                spellings.add(label)
        return spellings

    def filled(self, prompt: str) -> str:
        """Return a judges' prompt with the scale and criteria filled in.

        A placeholder stays if the benchmark does not state the scale or the criteria.
        """
        if self.states_scale:
            scale = f"{self.rating_description} (from the worst to the best)"
            prompt = prompt.replace(f"{{{SCALE_PLACEHOLDER}}}", scale)
        if self.criteria:
            prompt = prompt.replace(f"{{{CRITERIA_PLACEHOLDER}}}", self._request_for_ratings())
        return prompt

    def _request_for_ratings(self) -> str:
        """Return the text that replaces `{CRITERIA}`.

        The text has three parts: a list of the criteria, the block in which HELM looks for the
        criteria, and an example of an answer.
        """
        lines = []
        for name, description in self.criteria.items():
            lines.append(f"- {name}: {description}" if description else f"- {name}")
        criteria_list = "\n".join(lines)
        block = json.dumps(dict.fromkeys(self.criteria, FIELDS), ensure_ascii=False)
        # The example shows the rating in the middle of the scale.
        middle = self.values[len(self.values) // 2]
        score: str | int = middle
        for label, rating in self.labels.items():
            if rating == middle:
                score = label
        rating_example = {"score": score, "explanation": "why this score"}
        example = json.dumps(dict.fromkeys(self.criteria, rating_example), ensure_ascii=False)
        return (
            f"{criteria_list}\n\n<rubric_criteria>\n{block}\n</rubric_criteria>\n\n"
            "Give one JSON object with every criterion and nothing else. Output Format:\n\n"
            f"{example}"
        )

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names of the placeholders that `filled` fills."""
        placeholders = []
        if self.states_scale:
            placeholders.append(SCALE_PLACEHOLDER)
        if self.criteria:
            placeholders.append(CRITERIA_PLACEHOLDER)
        return tuple(placeholders)

    def as_dict(self) -> dict[str, Any]:
        """Return the scale and the criteria, in the form of benchmark.yaml, if the benchmark states
        them.
        """
        document: dict[str, Any] = {}
        if self.states_scale:
            document[SCALE] = dict(self.labels) or {MIN: self.values[0], MAX: self.values[-1]}
        if self.criteria:
            document[CRITERIA] = []
            for name, text in self.criteria.items():
                document[CRITERIA].append({"name": name, "description": text})
        return document


HELMS_JURY_FORM = JuryForm((1, 2, 3, 4, 5))
"""The default form: HELM's juries rate with whole numbers from 1 to 5."""
SHARES_FORM = JuryForm((0, 1), is_continuous=True)
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
        return JuryForm(HELMS_JURY_FORM.values, criteria=criteria)
    if scale.keys() == {MIN, MAX}:
        ratings = tuple(range(scale[MIN], scale[MAX] + 1))
        return JuryForm(ratings, criteria=criteria, states_scale=True)
    labels = dict(sorted(scale.items(), key=lambda label_and_rating: label_and_rating[1]))
    return JuryForm(tuple(labels.values()), labels, criteria, states_scale=True)


# the names of the placeholders that HELM fills in a judge's prompt
HELM_PLACEHOLDERS = ("QUESTION", "RESPONSE", "GOLD_RESPONSE")

# the pattern with which HELM finds the criteria in a judge's prompt
_CRITERIA_BLOCK = re.compile(r"<rubric_criteria>\s*(\{.*?\})\s*</rubric_criteria>", re.DOTALL)


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
    placeholders = [name for name in HELM_PLACEHOLDERS if f"{{{name}}}" in text]
    # HELM also reads the prompt as a `string.Template`, which has placeholders such as `$RESPONSE`.
    for match in string.Template.pattern.finditer(text):
        name = match["named"] or match["braced"]  # `$RESPONSE` or `${RESPONSE}`
        is_dollar_sign = match["escaped"] is not None  # `$$`
        if name in HELM_PLACEHOLDERS:
            placeholders.append(name)
        elif not is_dollar_sign:
            line = text.count("\n", 0, match.start()) + 1
            findings.problems.append(f"{file}: line {line}: write $$ for a dollar sign")
    if "RESPONSE" not in placeholders:
        findings.problems.append(f"{file}: must hold {{RESPONSE}}, the answer to judge")
    if (
        "GOLD_RESPONSE" in placeholders
        and header is not None
        and CORRECT_ANSWER_FIELD not in header
    ):
        findings.problems.append(
            f"{file}: holds {{GOLD_RESPONSE}}, but the data have no column {CORRECT_ANSWER_FIELD}"
        )
    problems = [
        *_placeholder_problems(text, header or (), form),
        *_criteria_problems(text, form),
    ]
    findings.problems += [f"{file}: {problem}" for problem in problems]


def _placeholder_problems(text: str, header: Sequence[str], form: JuryForm) -> Iterator[str]:
    """Yield a problem for each name in braces that looks like a placeholder but is not filled.

    `header`: the columns of the data. A user may expect that `{COLUMN}` is filled.
    """
    placeholders = (*HELM_PLACEHOLDERS, *form.placeholders)
    for name in re.findall(r"\{([^{}\n]+)\}", text):  # each text in braces, such as `{RESPONSE}`
        is_in_capitals = re.fullmatch("[A-Z_]+", name) is not None
        looks_like_placeholder = (
            is_in_capitals or name.upper() in HELM_PLACEHOLDERS or name in header
        )
        if not looks_like_placeholder or name in placeholders:
            continue
        problem = f"line {line_number_of(text, f'{{{name}}}')}: {{{name}}} is not filled in"
        if name in (SCALE_PLACEHOLDER, CRITERIA_PLACEHOLDER):
            yield (
                f"{problem} if the jury's metric has no {name.lower()}; add that key to "
                "benchmark.yaml, or write the text into the prompt"
            )
        else:
            yield f"{problem} by HELM; a judge's prompt has {', '.join(placeholders)}"


def _criteria_problems(text: str, form: JuryForm) -> Iterator[str]:
    """Yield the problems of the criteria in the prompt.

    HELM reads the criteria from the prompt, so criteria in benchmark.yaml must be the same.
    """
    placeholder = f"{{{CRITERIA_PLACEHOLDER}}}"
    is_placeholder_filled = bool(form.criteria) and placeholder in text
    if is_placeholder_filled and _CRITERIA_BLOCK.search(text):
        yield (
            f"line {line_number_of(text, placeholder)}: {placeholder} is replaced by text with "
            "<rubric_criteria>, which the prompt has already; delete one of the two"
        )
        return
    example = '<rubric_criteria>{"accuracy": ["score", "explanation"]}</rubric_criteria>'
    filled = form.filled(text)
    match = _CRITERIA_BLOCK.search(filled)
    if match is None:
        yield f"names no criteria; it needs a block such as {example}"
        return
    # This is also the line in the user's file, because the text for `{SCALE}` has no line break. (A
    # block that replaced `{CRITERIA}` has no problem.)
    line = filled.count("\n", 0, match.start(1)) + 1
    try:
        criteria = json.loads(match[1])
    except ValueError as error:
        yield (
            f"line {line}: the text in <rubric_criteria> is not a JSON object ({error}); "
            f"write {example}"
        )
        return
    if not criteria:
        yield f"line {line}: <rubric_criteria> names no criterion; write {example}"
        return
    wrong_criteria = [name for name, fields in criteria.items() if not _are_fields(fields)]
    for name in wrong_criteria:
        yield (
            f"line {line}: the criterion {name!r} must have a list of fields, 'score' among them; "
            f"write {example}"
        )
    has_other_criteria = bool(form.criteria) and criteria.keys() != form.criteria.keys()
    if has_other_criteria and not wrong_criteria:
        yield (
            f"line {line_number_of(text, '<rubric_criteria>')}: <rubric_criteria> names "
            f"{', '.join(criteria)}, and the jury's metric has the criteria "
            f"{', '.join(form.criteria)}; name the same criteria, or write {placeholder} in its "
            "place"
        )


def _are_fields(value: Any) -> bool:
    """Return True if a value is a list of names of fields, with `score` among them."""
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and "score" in value
    )
