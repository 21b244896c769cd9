"""A user's table as it was written, and all of it: HELM's configurable benchmark guesses types and drops columns."""

from __future__ import annotations

import functools
import types
from dataclasses import replace
from typing import Any

ID = "id"
ANSWERS = frozenset({"correct_answer", "incorrect_answers"})


def read_cells_as_text() -> None:
    """pandas would make numbers of 007, 1.10 and TRUE, and nothing of None and NA.

    HELM then shows other prompts than the table holds, or fails on a reference that is no text.
    """
    import pandas as pd
    from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    read_csv = functools.partial(pd.read_csv, dtype=str, keep_default_na=False, encoding="utf-8")
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
        kept = [name for name in table.columns if name not in shown | ANSWERS | {ID}]
        ids = list(table[ID]) if ID in table.columns and table[ID].is_unique else [None] * len(instances)
        rows = table[kept].to_dict("records") if kept else [{}] * len(instances)
        return [
            replace(instance, id=name or None, extra_data=row or None)
            for instance, name, row in zip(instances, ids, rows, strict=True)
        ]

    kind.get_instances = with_columns
