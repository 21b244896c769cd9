"""A user's table as it was checked, and all of it: HELM's configurable benchmark guesses types and drops columns."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.helm_plugin.patches.fast_startup import in_place_of
from eval_factory.tasks.custom_table import CLUSTER
from eval_factory.tasks.file_problems import columns_of, rows_below

ID = "id"
ANSWERS = frozenset({"correct_answer", "incorrect_answers"})


def read_cells_as_text() -> None:
    """Give HELM the cells that the check saw.

    pandas would make numbers of 007, 1.10 and TRUE, nothing of None and NA, and end a cell at a NUL. HELM then shows
    other prompts than the table holds, or fails on a reference that is no text.
    """
    pandas = types.ModuleType("pandas")  # the package itself is 70 MB, with pyarrow
    vars(pandas)["Series"] = dict[str, Any]
    with in_place_of({"pandas": pandas}):
        from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    scenario.pd = types.SimpleNamespace(read_csv=lambda file: Table(Path(file)))


class Table:
    """As much of a pandas table as HELM's scenario uses: read row by row, each time anew, and never held as a whole."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: dict[str, Callable[[str], Any]] = {}
        self.columns = columns_of(file)

    def __getitem__(self, column: str) -> Column:
        return Column(column)

    def __setitem__(self, column: str, read: Callable[[str], Any]) -> None:
        self._read[column] = read

    def iterrows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and cells of each row, by column. Raises TableError, OSError, UnicodeDecodeError."""
        for number, cells in enumerate(rows_below(self._file)):
            row: dict[str, Any] = dict(zip(self.columns, cells, strict=True))
            for column, read in self._read.items():
                row[column] = read(row[column])
            yield number, row


@dataclass(frozen=True)
class Column:
    name: str

    def apply(self, read: Callable[[str], Any]) -> Callable[[str], Any]:
        """For `Table.__setitem__`: each cell is read when its row is."""
        return read


def keep_other_columns() -> None:
    """What stands neither in the prompt nor in the answers stays with the instance; a column `id` names it.

    The result has scores by such columns where they sort the rows into a few groups.
    """
    from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    kind = scenario.MedHELMConfigurableScenario
    get_instances = kind.get_instances

    def with_columns(self: Any, output_path: str) -> list[Any]:
        instances = get_instances(self, output_path)
        with open(self.benchmark_config.prompt_file, encoding="utf-8") as file:  # noqa: PTH123 - HELM's own text
            shown = set(self.get_columns_in_template(file.read()))
        ids, rows = _beside(Table(Path(self.benchmark_config.dataset_file)), shown)
        return [
            replace(instance, id=name, extra_data=row or None)
            for instance, name, row in zip(instances, ids, rows, strict=True)
        ]

    kind.get_instances = with_columns


def _beside(table: Table, shown: set[str]) -> tuple[list[str | None], list[dict[str, str]]]:
    """Of each row the id, and the cells of the columns that stand in neither prompt nor answers."""
    found = [row[ID] for _, row in table.iterrows()] if ID in table.columns else []
    # The check refuses other ids; a table that was run without it (by HELM's own name) may hold them.
    named = ID in table.columns and len(set(found)) == len(found) and all(name.strip() for name in found)
    left_out = (shown - {CLUSTER}) | ANSWERS | ({ID} if named else set())
    kept = [name for name in table.columns if name not in left_out]
    rows = [{name: row[name] for name in kept} for _, row in table.iterrows()]
    return (found if named else [None] * len(rows)), rows
