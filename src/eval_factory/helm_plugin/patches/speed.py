"""What makes helm-run quicker, with the same requests, and every file of its output the same byte for byte.

Each patch stands alone, and `EVAL_FACTORY_WITHOUT` leaves it out.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

from eval_factory.core import this_process
from eval_factory.helm.environments import installed_upstream
from eval_factory.helm.names import asked_run_specs
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import UPSTREAMS

OF_A_CLASSIFIER = {"sklearn": None, "scipy": None}
"""None: not installed, as far as is seen. nltk imports them for classifiers, which HELM does not use: 0.8 s, 140 MB."""


def read_yaml_with_the_c_parser(_loader: type) -> type:
    """`yaml.safe_load` looks its loader up by this name at each call."""
    import yaml

    return getattr(yaml, "CSafeLoader", _loader)  # a PyYAML without libyaml has none


@contextmanager
def in_place_of(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """What is imported meanwhile gets these; who imports the packages later gets the packages."""
    loaded: dict[str, Any] = sys.modules
    put = {name: module for name, module in modules.items() if name not in loaded}
    loaded.update(put)
    try:
        yield
    finally:
        for name in put:
            loaded.pop(name, None)


def import_metrics_without_what_few_runs_use() -> bool:
    """HELM's basic metrics import `calibration`, for log probabilities, and the scenario of MATH, for one function.

    With scikit-learn and pyarrow, which these two import, that would be 1.2 s and 220 MB.
    """
    if "math" in (asked_run_specs(sys.argv) or {"math"}):  # so may it be where nobody knows what is asked
        return False
    calibration, datasets = ModuleType("calibration"), ModuleType("datasets")
    vars(calibration)["__getattr__"] = lambda name: getattr(importlib.import_module("calibration"), name)
    vars(datasets).update(load_dataset=None, DatasetDict=None)
    with in_place_of({"calibration": calibration, "datasets": datasets}):
        importlib.import_module("helm.benchmark.metrics.basic_metrics")
    return True


def download_nltk_data_only_when_needed() -> None:
    """HELM tries a download at import, in every run; few metrics cut text into words with these data."""
    with in_place_of(OF_A_CLASSIFIER):
        import nltk
    from helm.benchmark.metrics import nltk_helper

    install, word_tokenize = nltk_helper.install_nltk_resources, nltk.tokenize.word_tokenize

    def word_tokenize_or_download(*args: object, **kwargs: object) -> object:
        try:
            return word_tokenize(*args, **kwargs)
        except LookupError:
            install()
            return word_tokenize(*args, **kwargs)

    nltk_helper.install_nltk_resources = lambda: None
    nltk.tokenize.word_tokenize = word_tokenize_or_download


def import_only_the_run_specs_that_are_asked(discover_all: Callable[[], None]) -> Callable[[], None]:
    """HELM imports every module of run specs to find one; the index says which holds it, and HELM looks itself where
    the index does not know it."""
    from helm.benchmark import run_spec

    asked = asked_run_specs(sys.argv)
    index = load_index(UPSTREAMS[installed_upstream().name]).run_specs

    def discover() -> None:
        known = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
        for name in sorted(asked - known.keys()):
            if name in index:
                importlib.import_module(f"helm.benchmark.run_specs.{index[name].module}")
        if not asked or not asked <= known.keys():
            discover_all()

    return discover


def look_for_garbage_less_often() -> None:
    """A run makes millions of records that live to its end; Python's collector goes through all of them again."""
    this_process.collect_rarely()


def files_that_are_there_need_no_lock(download: Callable[..., Any]) -> Callable[..., Any]:
    """A file that HELM has downloaded gets its name when it is complete; the lock is for those who download, and a lock
    beside each file that is there would be readable by all.
    """
    from helm.common import general

    def ensure_file_downloaded(source_url: str, target_path: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.exists(target_path):  # noqa: PTH110 - HELM's own condition
            general.hlog(f"Not downloading {source_url} because {target_path} already exists")
            return None
        return download(source_url, target_path, *args, **kwargs)

    return ensure_file_downloaded


def asked_in_one_thread(in_threads: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """HELM has a thread for each request that goes on at once; they hand over at every wait."""
    from helm.common.hierarchical_logger import htrack_block

    from eval_factory.endpoint.bridge import map_at_once

    def parallel_map(process: Callable[[Any], Any], items: list[Any], parallelism: int) -> list[Any]:
        if parallelism == 1:
            return in_threads(process, items, parallelism)
        gc.freeze()  # or Python looks for 20 ms at what was loaded, while requests wait
        with htrack_block(f"Asking {len(items)} requests, at most {parallelism} at once"):
            return map_at_once(process, items, parallelism)

    return parallel_map


def one_window_service(build: Callable[..., Any]) -> Any:
    """HELM's metrics ask the factory for the same window service at every request."""
    return staticmethod(lru_cache(maxsize=32)(build))
