"""In a process of their own: what is mended stays mended."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

WITHOUT_WEIGHTS = """
from eval_factory.helm_plugin.patches import optional_deps
optional_deps.answer_for_torch()
optional_deps.answer_for_spacy_model()
optional_deps.do_without_weights()
from helm.benchmark.metrics.summarization_metrics import SummarizationMetric
metric = SummarizationMetric(task="x", device="cuda")
assert not metric.compute_bertscore and not metric.compute_faithfulness
assert set(metric.rouge_fns) == {"rouge_1", "rouge_2", "rouge_l"}
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="needs an environment without torch")
def test_a_gpu_without_weights_costs_their_metrics_only() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_WEIGHTS], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "warning: no BERTScore and no SummaC: ModuleNotFoundError" in finished.stderr
