"""Reads MedCaseReasoning's case reports as rubric cases (Wu et al. 2025, arXiv 2505.11733).

A row holds a case up to its differential diagnosis, and the diagnosis of the published report. The
rubric has one criterion: the answer names this diagnosis. The authors of the data set ask their
judge about the same criterion. Error messages name a column and never quote its cells.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.tasks.choice_question import DataRow, RowFaultError, cell_text, is_blank
from eval_factory.tasks.file_problems import ReadFile
from eval_factory.tasks.published_rows import (
    ERRORS_OF_ROWS,
    UNLIKE_PUBLISHED,
    published_rows,
    unique_ids,
)
from eval_factory.tasks.rubric_case import USER_ROLE, Criterion, RubricCase

CASE_REPORTS_FORM = "medcasereasoning"
"""The name of the published file format in `framework.yml`."""
COLUMNS = ("case_prompt", "final_diagnosis")
"""The required columns. The optional column `pmcid` (the report's id in PubMed Central) becomes the
id of the case.
"""

_QUESTION = (
    "Read the following case presentation and give the most likely diagnosis. End with a line "
    '"Diagnosis: ..." that names one disease or condition.\n\n{case}'
)
_CRITERION = (
    "The diagnosis that the answer ends with is the same disease or condition as this one, in "
    "whatever words: {diagnosis}"
)


def read_case_reports(path: Path) -> ReadFile[RubricCase]:
    """Return all cases of a Parquet, CSV or JSON file, and the first mistake of each row.

    Each mistake names its row and column. Reading stops at a row without a required column. Raises
    OSError if the file cannot be read.
    """
    content: ReadFile[RubricCase] = ReadFile()
    with content.reading(
        path, empty="has no case", wrong_form=UNLIKE_PUBLISHED, form_errors=ERRORS_OF_ROWS
    ):
        for label, row in published_rows(path):
            missing = [name for name in COLUMNS if name not in row]
            if missing:
                content.problems.append(f"{label}: has no column {', '.join(missing)}")
                break
            try:
                content.rows.append(_case(row, label))
            except RowFaultError as fault:
                content.problems.append(f"{label}, {fault}")
    # Several rows may come from one report, and then have the same `pmcid`.
    for index, unique_id in enumerate(unique_ids([case.id for case in content.rows])):
        content.rows[index] = replace(content.rows[index], id=unique_id)
    return content


def _case(row: DataRow, label: str) -> RubricCase:
    """Return the rubric case of a row. Raises RowFaultError if the row has a mistake.

    `label`: the position of the row, such as `row 3`.
    """
    case_id = label.replace(" ", "-")  # for a row without `pmcid`
    if not is_blank(row.get("pmcid")):
        case_id = cell_text(row, "pmcid")
    question = _QUESTION.format(case=cell_text(row, "case_prompt"))
    criterion = _CRITERION.format(diagnosis=cell_text(row, "final_diagnosis"))
    messages = ({"role": USER_ROLE, "content": question},)
    return RubricCase(case_id, messages, (Criterion(criterion, points=1.0),))
