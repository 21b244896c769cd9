"""What HELM names and an endpoint's evaluation does not need: answered for where it is not installed.

Each patch steps aside where the real thing is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from eval_factory.helm_plugin.patches import extractive_measures

SPACY_MODEL = "en_core_web_sm"


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _stand_in(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _NeedsWeights:
    """Takes the place of a metric that loads model weights."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise ModuleNotFoundError("this metric needs torch")


def replace_missing_torch() -> bool:
    """HELM's jury run specs import torch only to name a device, and their metrics name classes that they never use."""
    missing = [package for package in ("torch", "bert_score") if not _is_installed(package)]
    if "torch" in missing:
        _stand_in("helm.common.gpu_utils", get_torch_device_name=lambda: "cpu", is_cuda_available=lambda: False)
        _stand_in("helm.benchmark.metrics.summac.model_summac", SummaCZS=_NeedsWeights)
    if "bert_score" in missing:
        _stand_in("bert_score", BERTScorer=_NeedsWeights)
    return bool(missing)


def replace_missing_transformers() -> bool:
    """MedAlign's module names a tokenizer of transformers, and uses tiktoken's."""
    if _is_installed("transformers"):
        return False
    _stand_in("transformers", AutoTokenizer=_NeedsWeights)
    importlib.import_module("helm.benchmark.scenarios.medalign_scenario_helper")
    del sys.modules["transformers"]  # others ask whether it is there
    return True


def replace_missing_spacy_model() -> bool:
    """The data statistics of summaries use spaCy's English tokenizer only, which needs no trained model."""
    if _is_installed(SPACY_MODEL):
        return False
    import spacy

    load, is_package = spacy.load, spacy.util.is_package

    def load_or_blank(name: Any, *args: Any, **kwargs: Any) -> Any:
        return spacy.blank("en") if name == SPACY_MODEL else load(name, *args, **kwargs)

    spacy.load = load_or_blank
    spacy.util.is_package = lambda name: name == SPACY_MODEL or is_package(name)
    return True


def replace_missing_summ_eval() -> bool:
    """The data statistics of summaries: their package asks for one that no longer builds, and for torch."""
    if _is_installed("summ_eval") and _is_installed("gin"):
        return False
    _stand_in("summ_eval", __path__=[])
    _stand_in("summ_eval.data_stats_metric", DataStatsMetric=extractive_measures.DataStatsMetric)
    return True


def leave_out_qafacteval() -> None:
    """The table of QAFactEval scores holds no medical task: it is not downloaded, and there is no such score."""
    from helm.benchmark.metrics import summarization_metrics

    def no_table(self: Any, _eval_cache_path: str) -> None:
        self.qa_fact_eval = {}

    summarization_metrics.SummarizationMetric._load_qafacteval = no_table


def leave_out_missing_weights() -> None:
    """BERTScore and SummaC need weights; where these are unavailable, the other metrics are computed all the same."""
    from helm.benchmark.metrics.summarization_metrics import SummarizationMetric

    with_weights = SummarizationMetric.__init__

    def with_weights_or_without(self: Any, *args: Any, device: str = "cpu", **kwargs: Any) -> None:
        try:
            with_weights(self, *args, device=device, **kwargs)
        except Exception as error:
            if device == "cpu":
                raise
            print(f"warning: no BERTScore and no SummaC: {type(error).__name__}", file=sys.stderr, flush=True)
            with_weights(self, *args, device="cpu", **kwargs)

    SummarizationMetric.__init__ = with_weights_or_without
