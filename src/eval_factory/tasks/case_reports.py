"""Reads MedCaseReasoning's case reports as rubric cases (Wu et al. 2025, arXiv 2505.11733).

A row holds a case up to its differential diagnosis, and the diagnosis of the published report. The
rubric has one criterion: the answer names this diagnosis. The data set's authors ask their judge
for the same criterion. Error messages name a column and never quote its cells.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.tasks.choice_question import DataRow, RowFaultError, cell_text, is_blank
from eval_factory.tasks.file_problems import ReadFile
from eval_factory.tasks.published_choices import (
    ERRORS_OF_ROWS,
    UNLIKE_PUBLISHED,
    published_rows,
    unique_ids,
)
from eval_factory.tasks.rubric_case import USER, Criterion, RubricCase

CASE_REPORTS = "medcasereasoning"
"""The name of the published file format in `framework.yml`."""
COLUMNS = ("case_prompt", "final_diagnosis")

_QUESTION = (
    "Read the following case presentation and give the most likely diagnosis. End with a line "
    '"Diagnosis: ..." that names one disease or condition.\n\n{case}'
)
_CRITERION = (
    "The diagnosis that the answer ends with is the same disease or condition as this one, in "
    "whatever words: {diagnosis}"
)


def read_case_reports(path: Path) -> ReadFile[RubricCase]:
    """Return all cases of a Parquet, CSV or JSON file, and each mistake with its row and column.

    Raises OSError if the file cannot be read.
    """
    content: ReadFile[RubricCase] = ReadFile()
    with content.reading(path, "has no case", UNLIKE_PUBLISHED, ERRORS_OF_ROWS):
        for label, row in published_rows(path):
            missing = [name for name in COLUMNS if name not in row]
            if missing:
                content.problems.append(f"{label}: has no column {', '.join(missing)}")
                break
            try:
                content.rows.append(_case(row, label))
            except RowFaultError as fault:
                content.problems.append(f"{label}, {fault}")
    for number, name in enumerate(unique_ids([case.id for case in content.rows])):
        content.rows[number] = replace(content.rows[number], id=name)
    return content


def _case(row: DataRow, label: str) -> RubricCase:
    """Return the rubric case of a row. Raises RowFaultError if the row has a mistake."""
    name = label.replace(" ", "-")
    if not is_blank(row.get("pmcid")):
        name = cell_text(row, "pmcid")
    question = _QUESTION.format(case=cell_text(row, "case_prompt"))
    criterion = _CRITERION.format(diagnosis=cell_text(row, "final_diagnosis"))
    return RubricCase(name, ({"role": USER, "content": question},), (Criterion(criterion, 1.0),))
