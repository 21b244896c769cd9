"""Exports the instances of a result as a Parquet file."""

from __future__ import annotations

import json
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import atomic_file
from eval_factory.report.exports.stored_facts import reasons_against_reporting
from eval_factory.report.reader import ANY, TEXT, StoredResult, data_frame, instance_table


def write_parquet(stored: StoredResult, path: Path) -> int:
    """Write the instances into a Parquet file, and return the number of rows.

    The columns are those of `StoredResult.instances_frame`. Values that are neither texts nor
    numbers are written as JSON. The attributes of the data frame say whether the score may be
    reported. Raises PrerequisiteError if pandas or pyarrow is not installed.
    """
    column_types, rows = instance_table(stored.result)
    written_types = dict(column_types)
    for name, column_type in column_types.items():
        if column_type == ANY:
            written_types[name] = TEXT
            for row in rows:
                if row[name] is not None:
                    row[name] = json.dumps(row[name], ensure_ascii=False)
    table = data_frame(written_types, rows)
    table.attrs = {
        "eval_factory_reportable": stored.result.reportable,
        "eval_factory_not_reportable": reasons_against_reporting(stored),
    }
    try:
        with atomic_file(path, mode=PRIVATE) as file:
            # `file` takes texts. Parquet is binary, so its bytes go into the buffer of `file`.
            table.to_parquet(file.buffer, index=False)
    except ImportError as error:
        raise PrerequisiteError(f"Parquet needs pyarrow ({error})\n  pip install pyarrow") from None
    return len(rows)
