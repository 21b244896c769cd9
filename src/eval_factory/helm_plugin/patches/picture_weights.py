"""Changes how HELM's picture metrics load their models: from which folder, and in which thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings


def keep_weights_for_all_runs(_folder_of_one_run: Callable[[], str]) -> Callable[[], str]:
    """Return a function that returns one folder for the model weights of all runs.

    HELM's own function returns a folder in the output folder, so each run would download the
    weights again.
    """

    def get_cached_models_path() -> str:
        weights = HelmRunSettings.from_environment(os.environ).weights
        assert weights is not None  # noqa: S101 - the patch is only applied if `weights` is set
        folder = Path(weights)
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    return get_cached_models_path


def look_at_pictures_in_one_thread(
    in_threads: Callable[..., list[Any]],
) -> Callable[..., list[Any]]:
    """Return a replacement of HELM's `parallel_map` that uses a single thread.

    `in_threads` is HELM's `parallel_map`, which the replacement calls.

    HELM loads the model of a metric when the metric first needs the model. Several threads may load
    the model at the same time, and transformers then fails. torch starts its own threads, so a
    single thread is not slow.
    """

    def parallel_map(
        process: Callable[[Any], Any], items: list[Any], parallelism: int
    ) -> list[Any]:
        del parallelism  # HELM's number of threads is ignored.
        return in_threads(process, items, parallelism=1)

    return parallel_map
