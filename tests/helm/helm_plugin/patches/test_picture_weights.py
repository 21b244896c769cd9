"""Where weights of metrics lie, and who loads them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from helm.benchmark import runner
from helm.common.general import parallel_map

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.helm_plugin.patches.picture_weights import (
    keep_weights_for_all_runs,
    look_at_pictures_in_one_thread,
)
from eval_factory.helm_plugin.runner import without_uncomputed_metrics


def test_weights_of_all_runs_lie_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HELM's own lie in the folder of one run."""
    runner.set_benchmark_output_path(str(tmp_path / "run"))
    assert runner.get_cached_models_path() == str(tmp_path / "run" / "models")
    settings = HelmRunSettings(weights=str(tmp_path / "all")).environment()
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    folder = keep_weights_for_all_runs(runner.get_cached_models_path)
    assert folder() == str(tmp_path / "all")
    assert (tmp_path / "all").is_dir()


def test_one_thread_loads_the_models() -> None:
    seen: set[int] = set()

    def process(item: int) -> int:
        seen.add(threading.get_ident())
        return item * 2

    items = list(range(8))
    one_by_one = look_at_pictures_in_one_thread(parallel_map)
    assert one_by_one(process, items, parallelism=4) == [item * 2 for item in items]
    assert seen == {threading.get_ident()}


def test_metrics_that_cannot_be_computed_are_left_out_and_no_other(monkeypatch: Any) -> None:
    from helm.benchmark.run_specs.heim_run_specs import get_radiology_spec

    spec = get_radiology_spec()
    (clip,) = [one.class_name for one in spec.metric_specs if "clip_score" in one.class_name]
    kept = without_uncomputed_metrics(spec, HelmRunSettings(uncomputed=(clip,))).metric_specs
    assert [one for one in spec.metric_specs if one not in kept] == [
        one for one in spec.metric_specs if one.class_name == clip
    ]
    assert without_uncomputed_metrics(spec, HelmRunSettings()) == spec
    generated = without_uncomputed_metrics(spec, HelmRunSettings(only_generate=True)).metric_specs
    names = [one.class_name.rpartition(".")[2] for one in generated]
    assert "EfficiencyMetric" in names
    assert "FractalDimensionMetric" not in names
