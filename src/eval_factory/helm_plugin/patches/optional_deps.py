"""What HELM names and an endpoint's evaluation does not need: answered for where it is not installed.

Of the package summ-eval, which asks for one that no longer builds, HELM uses how far a summary is copied from its
source: coverage, density and compression (Grusky et al. 2018, Newsroom; section 3 and figure 3 of
https://aclanthology.org/N18-1065). The values here are the same to the last digit.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SPACY_MODEL = "en_core_web_sm"


class DataStatsMetric:
    """Replaces summ-eval's class of this name, as far as HELM uses it."""

    def __init__(self) -> None:
        import spacy

        self._cut = spacy.load(SPACY_MODEL).tokenizer  # into words and punctuation

    def evaluate_example(self, summary: str, input_text: str) -> dict[str, float]:
        return extract_statistics(*([token.text for token in self._cut(text)] for text in (summary, input_text)))


def extract_statistics(summary: Sequence[str], source: Sequence[str]) -> dict[str, float]:
    """The three statistics of a summary; 0 where it has no token.

    coverage: the share of its tokens that stand in a fragment of the source; density: the mean length of the fragment
    that a token stands in; compression: tokens of the source for each of the summary.
    """
    tokens = len(summary)
    if not tokens:
        return {"coverage": 0, "density": 0, "compression": 0}
    lengths = list(fragments([token.lower() for token in summary], [token.lower() for token in source]))
    return {
        "coverage": sum(lengths) / tokens,
        "density": sum(length**2 for length in lengths) / tokens,
        "compression": len(source) / tokens,
    }


def fragments(summary: Sequence[str], source: Sequence[str]) -> Iterator[int]:
    """Lengths of the fragments that the summary shares with its source, in the order of the summary.

    Greedy, as in the paper: at each token the longest common run is taken and stepped over. A search goes on behind a
    run that it has found, so that one which begins inside another is not seen.
    """
    positions = defaultdict(list)
    for at, token in enumerate(source):
        positions[token].append(at)
    start = 0
    while start < len(summary):
        longest = searched = 0
        for at in positions.get(summary[start], ()):
            if at >= searched:
                most = min(len(summary) - start, len(source) - at)
                length = next((n for n in range(most) if summary[start + n] != source[at + n]), most)
                longest = max(longest, length)
                searched = at + length
        if longest:
            yield longest
        start += longest or 1


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _put_placeholder(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _NeedsWeights:
    """Replaces a metric that loads model weights."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise ModuleNotFoundError("this metric needs torch")


def replace_missing_torch() -> bool:
    """HELM's jury run specs import torch only to name a device, and their metrics name classes that they never use."""
    missing = [package for package in ("torch", "bert_score") if not _is_installed(package)]
    if "torch" in missing:
        _put_placeholder("helm.common.gpu_utils", get_torch_device_name=lambda: "cpu", is_cuda_available=lambda: False)
        _put_placeholder("helm.benchmark.metrics.summac.model_summac", SummaCZS=_NeedsWeights)
    if "bert_score" in missing:
        _put_placeholder("bert_score", BERTScorer=_NeedsWeights)
    return bool(missing)


def replace_missing_transformers() -> bool:
    """MedAlign's module names a tokenizer of transformers, and uses tiktoken's."""
    if _is_installed("transformers"):
        return False
    _put_placeholder("transformers", AutoTokenizer=_NeedsWeights)
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
    _put_placeholder("summ_eval", __path__=[])
    _put_placeholder("summ_eval.data_stats_metric", DataStatsMetric=DataStatsMetric)
    return True


def leave_out_qafacteval(_load: object) -> Callable[..., None]:
    """The table of QAFactEval scores holds no medical task: it is not downloaded, and there is no such score."""

    def no_table(self: Any, _eval_cache_path: str) -> None:
        self.qa_fact_eval = {}

    return no_table


def leave_out_missing_weights(with_weights: Callable[..., None]) -> Callable[..., None]:
    """BERTScore and SummaC need weights; where these are unavailable, the other metrics are computed all the same."""

    def with_weights_or_without(self: Any, *args: Any, device: str = "cpu", **kwargs: Any) -> None:
        try:
            with_weights(self, *args, device=device, **kwargs)
        except Exception as error:
            if device == "cpu":
                raise
            print(f"warning: no BERTScore and no SummaC: {type(error).__name__}", file=sys.stderr, flush=True)
            with_weights(self, *args, device="cpu", **kwargs)

    return with_weights_or_without
