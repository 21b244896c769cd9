"""A user's table as it was written: HELM's configurable benchmark guesses types where texts are meant."""

from __future__ import annotations

import functools
import types


def read_cells_as_text() -> None:
    """pandas would make numbers of 007, 1.10 and TRUE, and nothing of None and NA.

    HELM then shows other prompts than the table holds, or fails on a reference that is no text.
    """
    import pandas as pd
    from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

    read_csv = functools.partial(pd.read_csv, dtype=str, keep_default_na=False, encoding="utf-8")
    scenario.pd = types.SimpleNamespace(read_csv=read_csv, Series=pd.Series)
