"""Lets HELM run without optional packages that are not installed, and makes helm-run faster.

The first half of this module replaces optional packages. One of them is summ-eval, which depends on
a package that no longer builds. HELM uses summ-eval to measure how much of a summary is copied from
its source: coverage, density and compression (Grusky et al. 2018, Newsroom; section 3 and figure 3
of https://aclanthology.org/N18-1065). The values of this module equal the values of summ-eval to
the last digit.

The second half makes helm-run faster. The requests do not change, and every output file stays equal
byte for byte. The patches are independent of each other, and the variable `EVAL_FACTORY_WITHOUT`
can turn off each of them.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from eval_factory.core import this_process
from eval_factory.helm.environments import installed_upstream
from eval_factory.helm.names import asked_run_specs
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import UPSTREAMS

SPACY_MODEL = "en_core_web_sm"
CLASSIFIER_PACKAGES = {"sklearn": None, "scipy": None}
"""Packages that nltk imports for classifiers, which HELM does not use. Their import takes 0.8 s and
140 MB. The value None makes Python report that a package is not installed.
"""


class DataStatsMetric:
    """A replacement of summ-eval's class of this name, with the part that HELM uses."""

    def __init__(self) -> None:
        import spacy

        self._tokenize = spacy.load(SPACY_MODEL).tokenizer  # splits into words and punctuation

    def evaluate_example(self, summary: str, input_text: str) -> dict[str, float]:
        """Return the statistics of a summary of `input_text`."""
        summary_tokens = [token.text for token in self._tokenize(summary)]
        source_tokens = [token.text for token in self._tokenize(input_text)]
        return extract_statistics(summary_tokens, source_tokens)


def extract_statistics(summary: Sequence[str], source: Sequence[str]) -> dict[str, float]:
    """Return three statistics of a summary, which are all 0 if the summary has no tokens.

    - coverage: the share of the summary's tokens that belong to a fragment copied from the source.
    - density: the mean length of the fragment that a token of the summary belongs to, in tokens.
    - compression: the number of tokens in the source for each token of the summary.
    """
    token_count = len(summary)
    if not token_count:
        return {"coverage": 0, "density": 0, "compression": 0}
    lower_summary = [token.lower() for token in summary]
    lower_source = [token.lower() for token in source]
    lengths = list(fragments(lower_summary, lower_source))
    return {
        "coverage": sum(lengths) / token_count,
        # Each of the `length` tokens of a fragment belongs to a fragment of `length` tokens.
        "density": sum(length**2 for length in lengths) / token_count,
        "compression": len(source) / token_count,
    }


def fragments(summary: Sequence[str], source: Sequence[str]) -> Iterator[int]:
    """Yield the length of each fragment that the summary shares with its source, in the order of
    the summary.

    The algorithm is greedy, as in the paper. At a token of the summary, it searches the source for
    the longest run of equal tokens. It goes on after this run. The search skips positions of the
    source inside a run that was already found.
    """
    positions = defaultdict(list)  # the positions of each token in the source
    for position, token in enumerate(source):
        positions[token].append(position)
    start = 0
    while start < len(summary):
        longest = 0
        search_from = 0
        for position in positions.get(summary[start], ()):
            if position >= search_from:
                max_length = min(len(summary) - start, len(source) - position)
                length = 0
                while length < max_length and summary[start + length] == source[position + length]:
                    length += 1
                longest = max(longest, length)
                search_from = position + length
        if longest:
            yield longest
            start += longest
        else:
            start += 1


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _put_placeholder(name: str, **members: Any) -> None:
    """Register a placeholder module that later imports of this name get."""
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _NeedsTorch:
    """A placeholder for a class that HELM only imports; creating an instance raises an error."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise ModuleNotFoundError("this metric needs torch")


def replace_missing_torch() -> bool:
    """Replace modules that need torch or bert_score, if these packages are not installed.

    HELM's jury run specs import torch only to name a device. The metrics of these run specs import
    classes that they never use. Returns False if both packages are installed.
    """
    missing = [package for package in ("torch", "bert_score") if not _is_installed(package)]
    if "torch" in missing:
        _put_placeholder(
            "helm.common.gpu_utils",
            get_torch_device_name=lambda: "cpu",
            is_cuda_available=lambda: False,
        )
        _put_placeholder("helm.benchmark.metrics.summac.model_summac", SummaCZS=_NeedsTorch)
    if "bert_score" in missing:
        # torchmetrics, which HEIM's metrics import, reads the module's `__spec__`.
        _put_placeholder(
            "bert_score", BERTScorer=_NeedsTorch, __spec__=ModuleSpec("bert_score", None)
        )
    return bool(missing)


def replace_missing_transformers() -> bool:
    """Import MedAlign's module with a placeholder for transformers, if transformers is missing.

    The module imports a tokenizer class of transformers, but uses tiktoken. Returns False if
    transformers is installed.
    """
    if _is_installed("transformers"):
        return False
    _put_placeholder("transformers", AutoTokenizer=_NeedsTorch)
    importlib.import_module("helm.benchmark.scenarios.medalign_scenario_helper")
    del sys.modules["transformers"]  # Other code checks whether transformers is installed.
    return True


def replace_missing_spacy_model() -> bool:
    """Load spaCy's English tokenizer in place of its trained model, if the model is not installed.

    The data statistics of summaries only use the tokenizer. Returns False if the model is
    installed.
    """
    if _is_installed(SPACY_MODEL):
        return False
    import spacy

    load = spacy.load
    is_package = spacy.util.is_package

    def load_or_blank(name: Any, *args: Any, **kwargs: Any) -> Any:
        return spacy.blank("en") if name == SPACY_MODEL else load(name, *args, **kwargs)

    spacy.load = load_or_blank
    spacy.util.is_package = lambda name: name == SPACY_MODEL or is_package(name)
    return True


def replace_missing_summ_eval() -> bool:
    """Replace summ-eval, which computes the data statistics of summaries, if it is not installed.

    summ-eval depends on torch and on a package that no longer builds. Returns False if summ-eval is
    installed and can be imported.
    """
    if _is_installed("summ_eval") and _is_installed("gin"):  # summ-eval imports gin.
        return False
    _put_placeholder("summ_eval", __path__=[])  # Python takes a module with `__path__` as a package
    _put_placeholder("summ_eval.data_stats_metric", DataStatsMetric=DataStatsMetric)
    return True


def leave_out_qafacteval(self: Any, _eval_cache_path: str) -> None:
    """Skip the download of QAFactEval scores, because their table covers no medical task.

    The metric then computes no QAFactEval score.
    """
    self.qa_fact_eval = {}


def leave_out_missing_weights(with_weights: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that leaves out BERTScore and SummaC if their weights are unavailable.

    The other scores of the metric are still computed.
    """

    def init_with_or_without(self: Any, *args: Any, device: str = "cpu", **kwargs: Any) -> None:
        try:
            with_weights(self, *args, device=device, **kwargs)
        except Exception as error:
            # On the CPU, HELM's metric does not load these weights.
            if device == "cpu":
                raise
            print(
                f"warning: no BERTScore and no SummaC: {type(error).__name__}",
                file=sys.stderr,
                flush=True,
            )
            with_weights(self, *args, device="cpu", **kwargs)

    return init_with_or_without


def read_yaml_with_the_c_parser(python_loader: type) -> type:
    """Return PyYAML's loader in C, or the passed loader if PyYAML was built without libyaml.

    `yaml.safe_load` looks up the name `SafeLoader` at each call, so it uses the returned loader.
    """
    import yaml

    return getattr(yaml, "CSafeLoader", python_loader)


@contextmanager
def patched_modules(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Replace modules for imports within this context. Later imports get the real packages.

    Modules that are already loaded are not replaced.
    """
    loaded: dict[str, Any] = sys.modules
    replacements = {name: module for name, module in modules.items() if name not in loaded}
    loaded.update(replacements)
    try:
        yield
    finally:
        for name in replacements:
            loaded.pop(name, None)


def import_metrics_without_what_few_runs_use() -> bool:
    """Import HELM's basic metrics without scikit-learn and pyarrow.

    HELM's basic metrics import `calibration` for log probabilities, and the scenario of MATH for a
    single function. These two import scikit-learn and pyarrow, which takes 1.2 s and 220 MB.
    Returns False if the run may ask MATH.
    """
    # If the run specs are not known, MATH may be among them.
    run_specs = asked_run_specs(sys.argv)
    if not run_specs or "math" in run_specs:
        return False
    calibration = ModuleType("calibration")
    datasets = ModuleType("datasets")
    # If a metric reads an attribute of this placeholder, import the real package.
    vars(calibration)["__getattr__"] = lambda name: getattr(
        importlib.import_module("calibration"), name
    )
    # The scenario of MATH imports these two names, and uses them only when it loads its data.
    vars(datasets).update(load_dataset=None, DatasetDict=None)
    with patched_modules({"calibration": calibration, "datasets": datasets}):
        importlib.import_module("helm.benchmark.metrics.basic_metrics")
    return True


def download_nltk_data_only_when_needed() -> None:
    """Download NLTK's data only if a metric splits a text into words.

    HELM itself tries the download at import, in every run, though few metrics need the data.
    """
    with patched_modules(CLASSIFIER_PACKAGES):
        import nltk
    from helm.benchmark.metrics import nltk_helper

    install = nltk_helper.install_nltk_resources
    word_tokenize = nltk.tokenize.word_tokenize

    def word_tokenize_or_download(*args: object, **kwargs: object) -> object:
        try:
            return word_tokenize(*args, **kwargs)
        except LookupError:
            install()
            return word_tokenize(*args, **kwargs)

    nltk_helper.install_nltk_resources = lambda: None
    nltk.tokenize.word_tokenize = word_tokenize_or_download


def import_only_the_run_specs_that_are_asked(
    discover_all: Callable[[], None],
) -> Callable[[], None]:
    """Return a replacement of HELM's function that finds run specs.

    HELM imports every module of run specs to find a single run spec. The replacement reads the
    module's name from eval-factory's index. If the index does not know a run spec, the replacement
    calls HELM's function.
    """
    from helm.benchmark import run_spec

    run_specs = asked_run_specs(sys.argv)
    index = load_index(UPSTREAMS[installed_upstream().name]).run_specs

    def discover() -> None:
        registered = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
        for name in sorted(run_specs - registered.keys()):
            if name in index:
                importlib.import_module(f"helm.benchmark.run_specs.{index[name].module}")
        # `run_specs` is empty if the arguments of helm-run do not show the run specs.
        are_all_registered = run_specs <= registered.keys()
        if not (run_specs and are_all_registered):
            discover_all()

    return discover


def look_for_garbage_less_often() -> None:
    """Make Python's garbage collector run less often.

    A run makes millions of records that live until its end, and each collection visits all of them.
    """
    this_process.collect_garbage_rarely()


def files_that_are_there_need_no_lock(download: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of HELM's download function that takes no lock for an existing file.

    HELM gives a downloaded file its name only when the file is complete, so an existing file needs
    no lock. Without this patch, a lock file that every user can read would appear next to each
    existing file.
    """
    from helm.common import general

    def ensure_file_downloaded(source_url: str, target_path: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.exists(target_path):  # noqa: PTH110 - HELM's own condition
            general.hlog(f"Not downloading {source_url} because {target_path} already exists")
            return None
        return download(source_url, target_path, *args, **kwargs)

    return ensure_file_downloaded


def asked_in_one_thread(in_threads: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return a replacement of HELM's `parallel_map` that sends all requests from one thread.

    HELM uses a thread for each parallel request, and switching between threads takes time.
    """
    from helm.common.hierarchical_logger import htrack_block

    from eval_factory.endpoint.bridge import map_at_once

    def parallel_map(
        process: Callable[[Any], Any], items: list[Any], parallelism: int
    ) -> list[Any]:
        if parallelism == 1:  # HELM's function then uses no further thread.
            return in_threads(process, items, parallelism)
        # Exclude the loaded modules from garbage collection. A collection would visit them for
        # 20 ms while requests wait.
        gc.freeze()
        with htrack_block(f"Asking {len(items)} requests, at most {parallelism} at once"):
            return map_at_once(process, items, parallelism)

    return parallel_map


def one_window_service(build: Callable[..., Any]) -> Any:
    """Return a cached version of HELM's factory for window services.

    HELM's metrics ask the factory for an equal window service at every request.
    """
    cached_build = lru_cache(maxsize=32)(build)
    return staticmethod(cached_build)  # the factory is a static method of HELM's class
