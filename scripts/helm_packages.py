"""Which packages beside HELM's and our own a run spec imports, read from HELM's source.

Part of make_helm_index.py. What is imported under a condition, or where its absence is borne, is no need: a run must
not be refused for what it would not have missed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from eval_factory.helm.environments import installed_upstream

PART_CLASS = re.compile(r"helm\.benchmark\.(?:scenarios|metrics|annotation)\.[\w.]+\.[A-Z]\w*\Z")
WHERE_ABSENCE_IS_AN_ERROR = "handle_module_not_found_error"
INSTALLED = frozenset(
    {
        # by crfm-helm itself
        "absl", "calibration", "cattr", "cattrs", "colorlog", "dacite", "datasets", "huggingface_hub", "mako", "nltk",
        "numpy", "pandas", "pyarrow", "pyhocon", "requests", "retrying", "rouge_score", "scipy", "sklearn", "spacy",
        "sqlitedict", "tqdm", "ubelt", "yaml", "zstandard",
        # by us
        "docx", "filelock", "lxml", "openpyxl", "PIL", "tiktoken",
    }
)  # fmt: skip
ANSWERED_FOR = frozenset({"bert_score", "helm.common.gpu_utils", "helm.benchmark.metrics.summac.model_summac"})
"""Modules that `patches/lighter.py` answers for where they cannot be imported, in every run."""
ANSWERED_FOR_THERE = {"medalign": frozenset({"transformers"})}
DISTRIBUTIONS = {
    "Levenshtein": "Levenshtein", "PIL": "pillow", "clang": "libclang", "clip": "clip-anytorch",
    "cv2": "opencv-python-headless",
    "ffmpeg": "ffmpeg-python", "google": "google-api-python-client", "googleapiclient": "google-api-python-client",
    "httplib2": "google-api-python-client", "imagehash": "imagehash", "skimage": "scikit-image",
    "pytrec_eval": "pytrec-eval-terrier",  # HELM's own choice, pytrec-eval, downloads sources while it is built
}  # fmt: skip
"""Module -> what installs it, where the names differ by more than - and _."""
OF_PICTURES = "helm.benchmark.metrics.image_generation."
"""Metrics that look at pictures: they import much only when they compute, after all answers came."""
OF_METRICS = {
    "cider": ("pycocoevalcap",), "wer_score": ("jiwer",),
    f"{OF_PICTURES}clip_score_metrics.CLIPScoreMetric": ("torchmetrics", "transformers"),
    f"{OF_PICTURES}nudity_metrics.NudityMetric": ("nudenet",),
}  # fmt: skip
"""Metric -> what HELM imports only when it computes it, in modules that it names nowhere."""
MAY_BE_NEEDED = frozenset({"gdown", "jieba", "opencc", "pypinyin", "torch", "torchvision", "transformers", "unidecode"})
"""What some run spec imports under a condition."""


def packages_of(name: str, function: Callable[..., Any]) -> list[str]:
    """Modules, by their first name, that a run of this run spec cannot do without."""
    needed: set[str] = set()
    seen: set[str] = set()
    for one in _functions(function, {}).values():
        tree = _source_of(one)
        needed |= {module for module in _imports(tree.body, local=True) if not _is_helms(module)}
        for text in _texts(tree):
            if PART_CLASS.match(text):
                needed |= _imported_by(text.rpartition(".")[0], seen)
            needed |= set(OF_METRICS.get(text, ()))
    known = INSTALLED | sys.stdlib_module_names | ANSWERED_FOR | ANSWERED_FOR_THERE.get(name, frozenset())
    return sorted({module.partition(".")[0] for module in needed} - known)


def requirements(needed: set[str]) -> dict[str, str]:
    """Module -> what to install for it; of what run specs need and of what they may need."""
    return {module: requirement_of(module) for module in sorted({*needed, *DISTRIBUTIONS, *MAY_BE_NEEDED})}


def requirement_of(module: str) -> str:
    """What to install for a module: in the versions that HELM asks for, where it says so."""
    name = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    for line in metadata.requires(installed_upstream().package) or ():
        asked = re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", line)
        if asked and asked[1].replace("_", "-").lower() == name.lower():
            return name + asked[2].strip()
    return name


def _functions(function: Callable[..., Any], found: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The function and HELM's helpers that it calls in any case, and theirs."""
    if function.__qualname__ not in found:
        found[function.__qualname__] = function
        beside = inspect.unwrap(function).__globals__
        for name in sorted(node.id for node in _certain(_source_of(function)) if isinstance(node, ast.Name)):
            helper = beside.get(name)
            if inspect.isfunction(helper) and helper.__module__.startswith("helm.benchmark"):
                _functions(helper, found)
    return found


def _source_of(function: Callable[..., Any]) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _certain(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are reached with any arguments."""
    yield tree
    if isinstance(tree, (ast.If, ast.IfExp)):
        yield from _certain(tree.test)
        return
    for node in ast.iter_child_nodes(tree):
        yield from _certain(node)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in _certain(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imports(body: list[ast.stmt], *, local: bool = False) -> Iterator[str]:
    """Modules imported when these statements are executed; with `local`, when the functions in them are called too."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if _is_helms(node.module))
        elif isinstance(node, ast.Try):
            if all(_raises(handler) for handler in node.handlers):
                yield from _imports(node.body, local=local)
        elif isinstance(node, (ast.ClassDef, ast.With)) or (local and isinstance(node, ast.FunctionDef)):
            yield from _imports(node.body, local=local)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Name) and node.id == WHERE_ABSENCE_IS_AN_ERROR)
        for node in ast.walk(handler)
    )


def _imported_by(module: str, seen: set[str]) -> set[str]:
    """What importing a module of HELM's imports that is not HELM's."""
    found: set[str] = set()
    if module in seen or module in ANSWERED_FOR:
        return found
    seen.add(module)
    for name in _imports_of(module):
        found |= _imported_by(name, seen) if _is_helms(name) else {name}
    return found


@cache
def _imports_of(module: str) -> tuple[str, ...]:
    (root,) = (util.find_spec("helm") or _no_helm()).submodule_search_locations or _no_helm()
    place = Path(root).parent.joinpath(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return tuple(_imports(ast.parse(file.read_text("utf-8")).body, local=module.startswith(OF_PICTURES)))
    return ()  # a class or function of its module


def _no_helm() -> Any:
    raise SystemExit("HELM is not installed here")


def _is_helms(module: str) -> bool:
    return module.partition(".")[0] == "helm"
