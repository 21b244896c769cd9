"""A user's table as it was checked, and all of it: HELM's configurable benchmark guesses types and drops columns."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.tasks.custom.csv_table import read_rows
from eval_factory.tasks.custom.table_check import CLUSTER

ID = "id"
ANSWERS = frozenset({"correct_answer", "incorrect_answers"})


def read_cells_as_text() -> None:
    """Give HELM the cells that the check saw.

    pandas would make numbers of 007, 1.10 and TRUE, nothing of None and NA, and end a cell at a NUL. HELM then shows
    other prompts than the table holds, or fails on a reference that is no text.
    """
    import pandas as pd
    from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    def read_csv(file: str) -> pd.DataFrame:
        header, rows = read_rows(Path(file))
        return pd.DataFrame(rows, columns=header, dtype=object)

    scenario.pd = types.SimpleNamespace(read_csv=read_csv, Series=pd.Series)


def keep_other_columns() -> None:
    """What stands neither in the prompt nor in the answers stays with the instance; a column `id` names it.

    The result has scores by such columns where they sort the rows into a few groups.
    """
    from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    kind = scenario.MedHELMConfigurableScenario
    get_instances = kind.get_instances

    def with_columns(self: Any, output_path: str) -> list[Any]:
        instances = get_instances(self, output_path)
        table = scenario.pd.read_csv(self.benchmark_config.dataset_file)
        with open(self.benchmark_config.prompt_file, encoding="utf-8") as file:  # noqa: PTH123 - HELM's own text
            shown = set(self.get_columns_in_template(file.read()))
        # The check refuses other ids; a table that was run without it (by HELM's own name) may hold them.
        named = ID in table.columns and table[ID].is_unique and all(name.strip() for name in table[ID])
        ids = list(table[ID]) if named else [None] * len(instances)
        left_out = (shown - {CLUSTER}) | ANSWERS | ({ID} if named else set())
        kept = [name for name in table.columns if name not in left_out]
        rows = table[kept].to_dict("records") if kept else [{}] * len(instances)
        return [
            replace(instance, id=name, extra_data=row or None)
            for instance, name, row in zip(instances, ids, rows, strict=True)
        ]

    kind.get_instances = with_columns
