"""What makes helm-run quicker, with the same requests, and every file of its output the same byte for byte.

Each patch stands alone, and `EVAL_FACTORY_WITHOUT` leaves it out. The C parser is put in through the filter that
logging.yaml names, which is before HELM reads its configurations; the others by the plug-in. Where the input is not of
the plain kind that most runs have, HELM's own function does the work.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TextIO

from eval_factory.core import this_process
from eval_factory.helm.names import asked_run_specs
from eval_factory.helm_plugin.patches.slim_scoring import InstanceShape, PackedStats, add_all, runs_of, statistics_of
from eval_factory.tasks.run_specs import load_index

OF_A_CLASSIFIER = {"sklearn": None, "scipy": None}
"""None: not installed, as far as is seen. nltk imports them for classifiers, which HELM does not use: 0.8 s, 140 MB."""


def read_yaml_with_the_c_parser() -> None:
    """`yaml.safe_load` looks its loader up by this name at each call."""
    import yaml

    vars(yaml)["SafeLoader"] = yaml.CSafeLoader


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


def import_metrics_without_what_few_runs_use() -> None:
    """HELM's basic metrics import `calibration`, for log probabilities, and the scenario of MATH, for one function.

    With scikit-learn and pyarrow, which these two import, that would be 1.2 s and 220 MB.
    """
    calibration, datasets = ModuleType("calibration"), ModuleType("datasets")
    vars(calibration)["__getattr__"] = lambda name: getattr(importlib.import_module("calibration"), name)
    vars(datasets).update(load_dataset=None, DatasetDict=None)
    with in_place_of({"calibration": calibration, "datasets": datasets}):
        importlib.import_module("helm.benchmark.metrics.basic_metrics")


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


def import_only_the_run_specs_that_are_asked() -> None:
    """HELM imports every module of run specs to find one; the index says which holds it, and HELM looks itself where
    the index does not know it."""
    from helm.benchmark import run_spec

    discover_all = run_spec.discover_run_spec_functions
    asked = asked_run_specs(sys.argv)
    index = load_index().run_specs

    def discover() -> None:
        known = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
        for name in sorted(asked - known.keys()):
            if name in index:
                importlib.import_module(f"helm.benchmark.run_specs.{index[name].module}")
        if not asked or not asked <= known.keys():
            discover_all()

    run_spec.discover_run_spec_functions = discover


def look_for_garbage_less_often() -> None:
    """A run makes millions of records that live to its end; Python's collector goes through all of them again."""
    this_process.collect_rarely()


def requests_made_in_one_thread() -> None:
    """Where no tokenizer is asked, requests are put together in Python alone, which runs one thread at a time."""
    from helm.benchmark.adaptation.adapters.in_context_learning_adapter import InContextLearningAdapter
    from helm.benchmark.window_services.no_tokenizer_window_service import NoTokenizerWindowService

    helms_own = InContextLearningAdapter._adapt_trial_index

    def adapt(self: Any, train: Any, trial: int, evaluated: Any, parallelism: int) -> Any:
        without = isinstance(self.window_service, NoTokenizerWindowService)
        return helms_own(self, train, trial, evaluated, 1 if without else parallelism)

    InContextLearningAdapter._adapt_trial_index = adapt


def credentials_parsed_where_there_are_any() -> None:
    """HELM imports a parser for them in every run; eval-factory gives it none."""
    from helm.benchmark import annotation_executor
    from helm.common import general, local_context

    helms_own = general.get_credentials

    def get_credentials(base_path: str = "prod_env") -> Any:
        file = Path(base_path) / general._CREDENTIALS_FILE_NAME
        return helms_own(base_path) if os.getenv(general._CREDENTIALS_ENV_NAME) or file.exists() else {}

    local_context.get_credentials = annotation_executor.get_credentials = get_credentials


def files_that_are_there_need_no_lock() -> None:
    """A file that HELM has downloaded gets its name when it is whole; the lock is for those who download."""
    from helm.common import general

    download = general.ensure_file_downloaded

    def ensure_file_downloaded(source_url: str, target_path: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.exists(target_path):  # noqa: PTH110 - HELM's own condition
            general.hlog(f"Not downloading {source_url} because {target_path} already exists")
            return None
        return download(source_url, target_path, *args, **kwargs)

    general.ensure_file_downloaded = ensure_file_downloaded


def asked_in_one_thread() -> None:
    """HELM has a thread for each request that goes on at once; they hand over at every wait."""
    from helm.benchmark import executor
    from helm.common.hierarchical_logger import htrack_block

    from eval_factory.core.bridge import map_at_once

    in_threads = executor.parallel_map

    def parallel_map(process: Callable[[Any], Any], items: list[Any], parallelism: int) -> list[Any]:
        if parallelism == 1:
            return in_threads(process, items, parallelism)  # type: ignore[no-any-return]
        this_process.keep_what_there_is()  # or Python looks for 20 ms at what was loaded, while requests wait
        with htrack_block(f"Asking {len(items)} requests, at most {parallelism} at once"):
            return map_at_once(process, items, parallelism)

    executor.parallel_map = parallel_map


CHARACTERS_HELD = 200_000
"""Of JSON text, kept before they are written."""

NORMAL_TEXTS_KEPT = 64
"""References and answers of the instances that are scored at the same time."""

TEXTS_KEPT = 2_000
"""Of statistics, for each sort of instance: half a megabyte."""


def one_window_service() -> None:
    """HELM's metrics ask the factory for the same window service at every request."""
    from helm.benchmark.window_services.window_service_factory import WindowServiceFactory

    build = WindowServiceFactory.get_window_service
    WindowServiceFactory.get_window_service = staticmethod(lru_cache(maxsize=32)(build))


def rouge_scorers_when_used() -> None:
    """HELM builds five of them for every instance, whichever metrics are asked for; building one imports nltk."""
    from helm.benchmark.metrics import evaluate_reference_metrics

    for name in ("get_rouge_function", "get_chinese_rouge_function"):
        setattr(evaluate_reference_metrics, name, _built_at_first_use(getattr(evaluate_reference_metrics, name)))


def _built_at_first_use(build: Callable[[str], Callable[[str, str], float]]) -> Callable[[str], Any]:
    built = lru_cache(maxsize=None)(build)

    def scorer(rouge_type: str) -> Callable[[str, str], float]:
        return lambda gold, predicted: built(rouge_type)(gold, predicted)

    return scorer


def normal_texts_kept() -> None:
    """HELM normalizes the reference and the answer anew for each of its metrics, twice."""
    from helm.benchmark.metrics import evaluate_reference_metrics

    keep = lru_cache(maxsize=NORMAL_TEXTS_KEPT)
    evaluate_reference_metrics.normalize_text = keep(evaluate_reference_metrics.normalize_text)


def worst_case_without_perturbations() -> None:
    """Where no input was perturbed, an instance's worst case is its only case."""
    from helm.benchmark.metrics import metric

    helms_own = metric.compute_worst_case_metrics

    def compute(per_instance_stats: Mapping[Any, Sequence[Any]]) -> list[Any]:
        derived = _worst_cases(per_instance_stats)
        return helms_own(per_instance_stats) if derived is None else derived

    metric.compute_worst_case_metrics = compute


def _worst_cases(per_instance_stats: Mapping[Any, Sequence[Any]]) -> list[Any] | None:
    """The same sums in the same order as HELM's loop; None where its general case is needed."""
    from helm.benchmark.augmentations.perturbation_description import PERTURBATION_WORST, PerturbationDescription
    from helm.benchmark.metrics.statistic import Stat

    kinds = [
        PerturbationDescription(name="robustness", robustness=True, computed_on=PERTURBATION_WORST),
        PerturbationDescription(name="fairness", fairness=True, computed_on=PERTURBATION_WORST),
    ]
    ids = {instance.id for instance in per_instance_stats}
    if None in ids or len(ids) < len(per_instance_stats):
        return None
    derived: dict[Any, Any] = {}
    for run in runs_of(per_instance_stats.values()):
        if not _are_plain(run[0]):
            return None
        for name, values in _lowest(run):
            add_all(derived.setdefault(name, Stat(name)), values)
    for total in derived.values():
        total._update_mean_variance_stddev()
    return [
        dataclasses.replace(total, name=dataclasses.replace(name, perturbation=kind))
        for name, total in derived.items()
        for kind in kinds
    ]


def _are_plain(stats: Sequence[Any]) -> bool:
    """Each name once, nothing perturbed."""
    packed = isinstance(stats, PackedStats)
    names = stats.shape.names if isinstance(stats, PackedStats) else [stat.name for stat in stats]
    once = len(set(names)) == len(names) and all(name.perturbation is None for name in names)
    return once and (packed or all(stat.count == 0 or stat.min is not None for stat in stats))


def _lowest(run: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
    """Name and least values of each statistic that was taken of something."""
    if isinstance(run[0], PackedStats):
        return statistics_of(run)
    return ((stat.name, [stat.min]) for stat in run[0] if stat.count > 0)


def output_files_in_one_pass() -> None:
    """HELM copies all records to dictionaries and indents them with json's Python encoder, all text in memory.

    The records are written straight to the file instead, and the file takes its name when it is whole.
    """
    from helm.benchmark import runner

    helms_write, to_dict = runner.write, runner.asdict_without_nones

    def dumps(tree: Any, indent: int) -> Any:
        return _Unwritten(tree) if indent == 2 else json.dumps(_as_dicts(tree, to_dict), indent=indent)

    def write(path: str, content: Any) -> None:
        if not isinstance(content, _Unwritten):
            helms_write(path, content)
            return
        temporary = Path(f"{path}.{os.getpid()}.tmp")
        try:
            with temporary.open("w") as file:
                write_json(content.tree, file)
            temporary.replace(path)
        except UnknownValueError:
            temporary.unlink()
            helms_write(path, json.dumps(_as_dicts(content.tree, to_dict), indent=2))

    runner.json = SimpleNamespace(dumps=dumps, load=json.load)
    runner.asdict_without_nones = lambda record: record
    runner.write = write


@dataclasses.dataclass(frozen=True)
class _Unwritten:
    """What `json.dumps` would have returned, not made yet."""

    tree: Any


def _as_dicts(tree: Any, to_dict: Callable[[Any], Any]) -> Any:
    return [to_dict(record) for record in tree] if isinstance(tree, list) else to_dict(tree)


class UnknownValueError(Exception):
    """A value of a kind that is not written here."""


def write_json(tree: Any, file: TextIO) -> None:
    """`json.dumps(asdict(tree without fields that are None), indent=2)`, written piece by piece.

    Raises:
        UnknownValueError: it holds something else than records, dictionaries with text keys, lists, numbers, text.
    """
    parts, held = [], 0
    for part in _pieces(tree, "\n"):
        parts.append(part)
        held += len(part)
        if held >= CHARACTERS_HELD:
            file.write("".join(parts))
            parts, held = [], 0
    file.write("".join(parts))


def _pieces(tree: Any, newline: str) -> Iterator[str]:
    """The text of long lists entry by entry, of everything else at once."""
    if isinstance(tree, list) and tree:
        inner = newline + "  "
        lead = "["
        for entry in tree:
            yield lead + inner + _text(entry, inner)
            lead = ","
        yield newline + "]"
    elif (fields := _fields(type(tree))) is not None:
        inner = newline + "  "
        lead = "{"
        for name, key in fields:
            value = getattr(tree, name)
            if value is not None:
                yield lead + inner + key
                yield from _pieces(value, inner)
                lead = ","
        yield "{}" if lead == "{" else newline + "}"
    else:
        yield _text(tree, newline)


def _text(value: Any, newline: str) -> str:
    kind = type(value)
    if (plain := _PLAIN.get(kind)) is not None:
        return plain(value)
    inner = newline + "  "
    if (fields := _fields(kind)) is not None:
        members = []
        for name, key in fields:
            member = getattr(value, name)
            if member is not None:
                plain = _PLAIN.get(type(member))
                members.append(key + (_text(member, inner) if plain is None else plain(member)))
        return _enclosed("{", members, "}", inner, newline)
    if kind is list or kind is tuple:
        return _enclosed("[", [_of_entry(entry, inner) for entry in value], "]", inner, newline)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise UnknownValueError("a key that is not text")
        members = [f"{quoted(key)}: {_of_entry(member, inner)}" for key, member in value.items()]
        return _enclosed("{", members, "}", inner, newline)
    if kind is PackedStats:
        return _enclosed("[", _packed_texts(value, inner), "]", inner, newline)
    if isinstance(value, str | int | float):  # an enumeration's member, or numpy's float
        return json.dumps(value)
    raise UnknownValueError(kind.__name__)


def _of_entry(value: Any, newline: str) -> str:
    """`_text`, sooner for what most entries are."""
    plain = _PLAIN.get(type(value))
    return _text(value, newline) if plain is None else plain(value)


_PLAIN: dict[type, Callable[[Any], str]] = {
    str: quoted,
    int: int.__repr__,
    float: lambda value: repr(value) if isfinite(value) else json.dumps(value),
    bool: lambda value: "true" if value else "false",
    type(None): lambda _value: "null",
}


def _packed_texts(stats: PackedStats, newline: str) -> list[str]:
    """Of each statistic. The values of most are the same few numbers, and so is what follows from them."""
    known = _texts_by_shape.setdefault((stats.shape, newline), {})
    texts = []
    for place, value in enumerate(stats.values()):
        text = known.get((place, value))
        if text is None:
            if len(known) >= TEXTS_KEPT:
                known.clear()
            text = known[place, value] = _text(stats.shape.stat(place, value), newline)
        texts.append(text)
    return texts


def _enclosed(opening: str, members: list[str], closing: str, inner: str, newline: str) -> str:
    if not members:
        return opening + closing
    return opening + inner + ("," + inner).join(members) + newline + closing


_texts_by_shape: dict[tuple[InstanceShape, str], dict[tuple[int, Any], str]] = {}

_fields_by_kind: dict[type, tuple[tuple[str, str], ...] | None] = {}


def _fields(kind: type) -> tuple[tuple[str, str], ...] | None:
    """Name and quoted key of each field of a record; None of what is no record."""
    if kind not in _fields_by_kind:
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else None
        _fields_by_kind[kind] = (
            None if fields is None else tuple((field.name, f"{quoted(field.name)}: ") for field in fields)
        )
    return _fields_by_kind[kind]
