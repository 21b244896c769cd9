"""Reads HELM's source for make_helm_index.py: what run specs execute, and what they import.

The first half finds what a run spec executes of a model's answer (`executed_code`). Beginning with
the run spec's function, it follows everything that may be called: helpers that make metric specs,
classes of metrics and annotators (which HELM names by texts), their methods, and so on. Every call
that can execute something counts, unless it is listed as harmless. If a new version of HELM adds
such a call, the index changes, and a test fails.

The second half finds the packages that a run spec needs (`packages_of`), without HELM's and our
own. A package is not needed if it is imported only under a condition, or if HELM goes on without
it: a run must not be refused because of a package that it would not use.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.helm.environments import installed_upstream

FOLLOWED = ("helm.benchmark.run_specs.", "helm.benchmark.metrics.", "helm.benchmark.annotation.")
"""The modules that are followed: those that read answers. Scenarios only make the prompts."""
SPEC_MODULE = re.compile(r"helm\.benchmark\.(run_specs\.\w+|metrics\.\w*metric_specs\w*)\Z")
CLASS_PATH = re.compile(r"helm\.benchmark\.(?:metrics|annotation)\.[\w.]+\.[A-Za-z]\w*\Z")
EXECUTING_BUILTINS = {"exec": "Python", "eval": "Python"}
"""A dict from a built-in function to the language of the code that it executes."""
EXECUTING_PACKAGES = {
    "subprocess": "a program",
    "multiprocessing": None,
    "pexpect": "a program",
    "docker": "a program",
    "sqlite3": "SQL",
    "sqlalchemy": "SQL",
    "duckdb": "SQL",
    "gradio_client": "a remote service",
    "unitxt": "any function that unitxt's card names",
}
"""A dict from a package to the language or kind of code that a call of the package executes.
None: the package executes functions of HELM, which are followed themselves.
"""
SYSTEM_CALLS = re.compile(r"os\.(system|popen|exec\w+|spawn\w+|posix_spawn\w*)\Z")
LANGUAGES = {
    "helm.benchmark.metrics.codeinsights_correct_code_metrics": "C++",
    "helm.benchmark.metrics.codeinsights_code_evaluation_metrics": "C++",
}
"""A dict from a module to the language of the programs that it starts."""
HARMLESS = {
    (
        "helm.benchmark.metrics.summac.utils_misc",
        "get_freer_gpu",
    ): "asks nvidia-smi for free memory",
    (
        "helm.benchmark.metrics.summac.utils_misc",
        "any_gpu_with_space",
    ): "asks nvidia-smi for free memory",
}
"""A dict from (module, function) to the reason why the function is not followed."""


@dataclass
class Module:
    """The top-level names of a module."""

    name: str
    # name -> the node of its class or function, or of its value
    defined: dict[str, ast.AST] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)  # local name -> dotted path


@cache
def source_file(module: str) -> Path | None:
    """Return the source file of one of HELM's modules; None if there is no such module.

    The module is not imported, because some modules of HELM need packages that are not installed.
    """
    helm = importlib.util.find_spec("helm")
    if helm is None:
        return None
    for folder in helm.submodule_search_locations or []:
        path = Path(folder, *module.split(".")[1:])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@cache
def source_tree(module: str) -> ast.Module | None:
    """Return the syntax tree of one of HELM's modules; None if there is no such module."""
    file = source_file(module)
    return None if file is None else ast.parse(file.read_text("utf-8"))


@cache
def read_module(name: str) -> Module | None:
    """Return the top-level names of one of HELM's modules; None if there is no such module."""
    tree = source_tree(name)
    if tree is None:
        return None
    module = Module(name)
    for node in _top_level(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            module.defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    module.defined[target.id] = node.value
        else:
            module.imported |= _imports(node)
    return module


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those within its top-level `try:` and `if:`."""
    for node in tree.body:
        if isinstance(node, ast.Try | ast.If):
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.stmt):
                    yield inner
        else:
            yield node


def _imports(node: ast.AST) -> dict[str, str]:
    """Return the dotted path of each name that an import statement binds."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {}


def executed_code(module: str, function: str) -> dict[str, str]:
    """Return what a run spec executes of an answer, such as `Python`, with HELM's functions that
    execute it; empty if the run spec executes nothing.

    Args:
        module: the module of the run spec's function.
        function: the name of this function.
    """
    walk = _Walk()
    walk.visit(module, function)
    return {kind: ", ".join(sorted(functions)) for kind, functions in sorted(walk.executed.items())}


@dataclass
class Facts:
    """The names that a function, a constant or a method uses."""

    module: str
    names: list[str] = field(default_factory=list)  # names of the same module
    paths: list[str] = field(default_factory=list)
    """Dotted paths into other modules, and paths of classes, which HELM writes as texts."""
    texts: list[str] = field(default_factory=list)  # all other texts
    executes: list[str] = field(default_factory=list)  # the kinds of code that are executed
    by_key: list[tuple[str, Facts]] = field(default_factory=list)
    """The entries of dictionaries whose keys are texts, such as a dictionary from the name of a
    metric to its function. Only the entries whose keys a run spec names are followed.
    """


@cache
def facts_of(module_name: str, name: str) -> tuple[Facts, ...]:
    """Return the facts of a function or constant, or of each method of a class."""
    module = read_module(module_name)
    if module is None or name not in module.defined:
        return ()
    node = module.defined[name]
    parts = _methods(module, node) if isinstance(node, ast.ClassDef) else [(module, node)]
    return tuple(_read(owner, part) for owner, part in parts)


def _read(module: Module, node: ast.AST) -> Facts:
    """Return the facts of a node of a module's syntax tree."""
    imported = dict(module.imported)
    for inner in ast.walk(node):
        imported |= _imports(inner)
    entries = [] if SPEC_MODULE.match(module.name) else list(_dictionary_entries(node))
    facts = Facts(module.name, by_key=[(key, _read(module, value)) for key, value in entries])
    for inner in _nodes_without(node, {id(value) for _, value in entries}):
        if isinstance(inner, ast.Call):
            executed = _executed(module, inner, imported)
            if executed is not None:
                facts.executes.append(executed)
        if isinstance(inner, ast.Name):
            path = imported.get(inner.id)
            (facts.names if path is None else facts.paths).append(path or inner.id)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            facts.paths.append(f"{imported.get(inner.value.id, '')}.{inner.attr}")
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            (facts.paths if CLASS_PATH.match(inner.value) else facts.texts).append(inner.value)
    facts.paths = [path for path in dict.fromkeys(facts.paths) if path.startswith(FOLLOWED)]
    return facts


def _executed(module: Module, call: ast.Call, imported: dict[str, str]) -> str | None:
    """Return the language or kind of the code that a call executes; None if it executes none."""
    name = ast.unparse(call.func)
    root, _, rest = name.partition(".")
    path = imported.get(root, root) + (f".{rest}" if rest else "")
    executed = None
    if name not in module.defined:
        executed = EXECUTING_BUILTINS.get(name)
    package = path.partition(".")[0]
    if root in imported and package in EXECUTING_PACKAGES:
        executed = EXECUTING_PACKAGES[package]
    elif SYSTEM_CALLS.match(path):
        executed = "a program"
    if not module.name.startswith(FOLLOWED):
        return None
    if executed == "a program":
        return LANGUAGES.get(module.name, executed)
    return executed


class _Walk:
    """A walk through everything that one run spec uses."""

    def __init__(self) -> None:
        self.executed: dict[str, set[str]] = {}
        """A dict from a kind of executed code to HELM's functions that execute it."""
        self._seen: set[tuple[str, str]] = set()  # the visited (module, name)
        self._spec_texts: set[str] = set()
        """The texts in functions that make specs; names of metrics are among them."""
        self._unnamed_entries: list[tuple[str, str, Facts]] = []
        """The entries of dictionaries (`Facts.by_key`) whose keys are not in `_spec_texts` so far:
        the key, the name of the function with the dictionary, and the facts of the value.
        """

    def visit(self, module_name: str, name: str) -> None:
        """Visit a name of a module, and everything that it uses."""
        if (module_name, name) in self._seen or (module_name, name) in HARMLESS:
            return
        self._seen.add((module_name, name))
        module = read_module(module_name)
        if module is None:
            return
        if name in module.defined:
            for facts in facts_of(module_name, name):
                self._follow_all(facts, name)
        elif module.imported.get(name, "").startswith(FOLLOWED):
            self._follow(module.imported[name])

    def _follow(self, path: str) -> None:
        """Visit the class or function with a dotted path; a module itself is not visited."""
        module, _, name = path.rpartition(".")
        if source_file(path) is None:
            self.visit(module, name)

    def _follow_all(self, facts: Facts, owner: str) -> None:
        """Visit everything that is used in the function or class `owner`."""
        function = f"{facts.module.rpartition('.')[2]}.{owner}"
        for kind in facts.executes:
            self.executed.setdefault(kind, set()).add(function)
        for name in facts.names:
            self.visit(facts.module, name)
        for path in facts.paths:
            self._follow(path)
        if SPEC_MODULE.match(facts.module):
            self._add_spec_texts(set(facts.texts))
        for key, value in facts.by_key:
            if key in self._spec_texts:
                self._follow_all(value, owner)
            else:
                self._unnamed_entries.append((key, owner, value))

    def _add_spec_texts(self, texts: set[str]) -> None:
        """Add texts of a function that makes specs, and follow the entries that they name."""
        self._spec_texts |= texts
        named = []
        unnamed = []
        for entry in self._unnamed_entries:
            key = entry[0]
            if key in self._spec_texts:
                named.append(entry)
            else:
                unnamed.append(entry)
        self._unnamed_entries = unnamed
        for _, owner, value in named:
            self._follow_all(value, owner)


def _dictionary_entries(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (key, value) of the dictionaries in `node` whose keys are all texts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict) and inner.keys:
            keys = [
                key.value
                for key in inner.keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
            if len(keys) == len(inner.keys):
                yield from zip(keys, inner.values, strict=True)


def _nodes_without(node: ast.AST, left_out: set[int]) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it, except the nodes with these ids and what is below."""
    yield node
    for child in ast.iter_child_nodes(node):
        if id(child) not in left_out:
            yield from _nodes_without(child, left_out)


def _methods(
    module: Module, node: ast.ClassDef, overridden: frozenset[str] = frozenset()
) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the methods and attributes of a class, each with the module in which it is defined.

    Methods and attributes of base classes are included, unless a method of the class overrides
    them and does not call them by `super()`.

    Args:
        module: the module of the class.
        node: the class.
        overridden: the names of methods that are left out, because a subclass overrides them.
    """
    names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    used_parts = [part for part in node.body if getattr(part, "name", None) not in overridden]
    yield from ((module, part) for part in used_parts)
    called = set()  # the names of methods that are called by `super()`
    for call in chain.from_iterable(map(ast.walk, used_parts)):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and ast.unparse(call.func.value).startswith("super(")
        ):
            called.add(call.func.attr)
    for base in node.bases:
        name = ast.unparse(base)
        owner = module
        base_class = module.defined.get(name)
        path = module.imported.get(name, "")
        if base_class is None and path.startswith(FOLLOWED):
            owner = read_module(path.rpartition(".")[0]) or module
            base_class = owner.defined.get(path.rpartition(".")[2])
        if isinstance(base_class, ast.ClassDef):
            yield from _methods(owner, base_class, (overridden | names) - called)


PART_CLASS = re.compile(r"helm\.benchmark\.(?:scenarios|metrics|annotation)\.[\w.]+\.[A-Z]\w*\Z")
REPORTS_MISSING_PACKAGE = "handle_module_not_found_error"
"""HELM's function that raises an error about a package that cannot be imported."""
ALWAYS_INSTALLED = frozenset(
    {
        # by crfm-helm itself
        "absl",
        "calibration",
        "cattr",
        "cattrs",
        "colorlog",
        "dacite",
        "datasets",
        "huggingface_hub",
        "mako",
        "nltk",
        "numpy",
        "pandas",
        "pyarrow",
        "pyhocon",
        "requests",
        "retrying",
        "rouge_score",
        "scipy",
        "sklearn",
        "spacy",
        "sqlitedict",
        "tqdm",
        "ubelt",
        "yaml",
        "zstandard",
        # by eval-factory
        "docx",
        "filelock",
        "lxml",
        "openpyxl",
        "PIL",
        "tiktoken",
    }
)
REPLACED_IN_EVERY_RUN = frozenset(
    {"bert_score", "helm.common.gpu_utils", "helm.benchmark.metrics.summac.model_summac"}
)
"""The modules that `patches/lighter.py` replaces in every run if they cannot be imported."""
REPLACED_IN_RUN_SPEC = {"medalign": frozenset({"transformers"})}
"""A dict from a run spec to the modules that `patches/lighter.py` replaces in its runs only."""
DISTRIBUTIONS = {
    "Levenshtein": "Levenshtein",
    "PIL": "pillow",
    "clang": "libclang",
    "clip": "clip-anytorch",
    "cv2": "opencv-python-headless",
    "ffmpeg": "ffmpeg-python",
    "google": "google-api-python-client",
    "googleapiclient": "google-api-python-client",
    "httplib2": "google-api-python-client",
    "imagehash": "imagehash",
    "skimage": "scikit-image",
    # HELM's own choice, pytrec-eval, downloads sources while it is built
    "pytrec_eval": "pytrec-eval-terrier",
}
"""A dict from a module to the package that contains it, if their names differ by more than - and _.
"""
PICTURE_METRICS = "helm.benchmark.metrics.image_generation."
"""The package of metrics that look at pictures. They import much only when they compute, which is
after the last answer.
"""
SOUND_SCENARIOS = "helm.benchmark.scenarios.audio_language."
SOUND_DECODERS = ("librosa", "soundfile")  # `datasets` imports them to read a row with a sound
ONLY_WHEN_USED = {
    "cider": ("pycocoevalcap",),
    "chinese_wer_score": ("jieba", "jiwer"),
    "wer_score": ("jiwer",),
    f"{PICTURE_METRICS}clip_score_metrics.CLIPScoreMetric": ("torchmetrics", "transformers"),
    f"{PICTURE_METRICS}nudity_metrics.NudityMetric": ("nudenet",),
    f"{SOUND_SCENARIOS}common_voice_15_scenario.CommonVoice15Scenario": SOUND_DECODERS,
    f"{SOUND_SCENARIOS}covost2_scenario.CoVoST2Scenario": SOUND_DECODERS,
    f"{SOUND_SCENARIOS}fleurs_fairness_scenario.FLEURSFairnessScenario": SOUND_DECODERS,
    f"{SOUND_SCENARIOS}fleurs_scenario.FLEURSScenario": SOUND_DECODERS,
}
"""A dict from a metric or a scenario to the packages that are imported only when the metric is
computed or the scenario is read. The source of the metric or scenario does not show these imports.
"""
MAY_BE_NEEDED = frozenset(
    {"gdown", "jieba", "opencc", "pypinyin", "torch", "torchvision", "transformers", "unidecode"}
)
"""The modules that some run specs import under a condition."""


def packages_of(name: str, function: Callable[..., Any]) -> list[str]:
    """Return the top-level modules without which a run of a run spec fails.

    Args:
        name: the name of the run spec.
        function: the function of the run spec.
    """
    needed: set[str] = set()
    seen: set[str] = set()
    for called_function in _functions(function, {}).values():
        tree = _source_of(called_function)
        needed |= {
            module
            for module in _modules_imported_by(tree.body, local=True)
            if not _is_helms(module)
        }
        for text in _texts(tree):
            if PART_CLASS.match(text):
                needed |= _imported_by(text.rpartition(".")[0], seen)
            needed |= set(ONLY_WHEN_USED.get(text, ()))
        needed |= _needed_in_both_branches(called_function, tree)
    available = (
        ALWAYS_INSTALLED
        | sys.stdlib_module_names
        | REPLACED_IN_EVERY_RUN
        | REPLACED_IN_RUN_SPEC.get(name, frozenset())
    )
    return sorted({module.partition(".")[0] for module in needed} - available)


def _needed_in_both_branches(function: Callable[..., Any], tree: ast.AST) -> set[str]:
    """Return the modules that metrics need in both branches of a condition of the function.

    The metrics are named by helpers that the branches call. `tree` is the function's source.
    """
    needed: set[str] = set()
    for node in _unconditional(tree):
        if isinstance(node, ast.If) and node.orelse:
            in_body = _needed_in_branch(function, node.body)
            in_else = _needed_in_branch(function, node.orelse)
            needed |= in_body & in_else
    return needed


def _needed_in_branch(function: Callable[..., Any], branch: list[ast.stmt]) -> set[str]:
    called: dict[str, Callable[..., Any]] = {}
    for helper in _helpers(function, {name.id for name in _names_in(branch)}):
        _functions(helper, called)
    texts = chain.from_iterable(_texts(_source_of(helper)) for helper in called.values())
    return set(chain.from_iterable(ONLY_WHEN_USED.get(text, ()) for text in texts))


def _names_in(statements: list[ast.stmt]) -> Iterator[ast.Name]:
    for statement in statements:
        for node in _unconditional(statement):
            if isinstance(node, ast.Name):
                yield node


def requirements(needed: set[str]) -> dict[str, str]:
    """Return the package to install for each module that run specs need or may need."""
    return {
        module: requirement_of(module)
        for module in sorted({*needed, *DISTRIBUTIONS, *MAY_BE_NEEDED})
    }


def requirement_of(module: str) -> str:
    """Return the package to install for a module, with the versions that HELM requires, if any."""
    name = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    for line in metadata.requires(installed_upstream().package) or ():
        # "Pillow[extra]>=10.2; extra == ...": the name, and the versions
        requirement = re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", line)
        if requirement and requirement[1].replace("_", "-").lower() == name.lower():
            return name + requirement[2].strip()
    return name


def _functions(
    function: Callable[..., Any], by_name: dict[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Add a function to `by_name`, with the helpers of HELM that it always calls, and so on.

    Returns `by_name`, a dict from the qualified name of each function to the function.
    """
    if function.__qualname__ not in by_name:
        by_name[function.__qualname__] = function
        nodes = _unconditional(_source_of(function))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        for helper in _helpers(function, names):
            _functions(helper, by_name)
    return by_name


def _helpers(function: Callable[..., Any], names: Iterable[str]) -> Iterator[Callable[..., Any]]:
    """Yield HELM's functions with these names in the function's module."""
    module_names = inspect.unwrap(function).__globals__
    for name in sorted(names):
        helper = module_names.get(name)
        if inspect.isfunction(helper) and helper.__module__.startswith("helm.benchmark"):
            yield helper


def _source_of(function: Callable[..., Any]) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _unconditional(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are executed whatever the arguments are: no branches of conditions."""
    yield tree
    if isinstance(tree, (ast.If, ast.IfExp)):
        yield from _unconditional(tree.test)
        return
    for node in ast.iter_child_nodes(tree):
        yield from _unconditional(node)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in _unconditional(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _modules_imported_by(body: list[ast.stmt], *, local: bool = False) -> Iterator[str]:
    """Yield the modules that these statements import.

    Imports in branches of conditions are left out, and so are imports whose failure is handled.
    With `local`, the imports within functions are included.
    """
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if _is_helms(node.module)
            )
        elif isinstance(node, ast.Try):
            # If a handler raises no error, HELM goes on without the module.
            if all(_raises(handler) for handler in node.handlers):
                yield from _modules_imported_by(node.body, local=local)
        elif isinstance(node, (ast.ClassDef, ast.With)) or (
            local and isinstance(node, ast.FunctionDef)
        ):
            yield from _modules_imported_by(node.body, local=local)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Name) and node.id == REPORTS_MISSING_PACKAGE)
        for node in ast.walk(handler)
    )


def _imported_by(module: str, seen: set[str]) -> set[str]:
    """Return the modules of other packages that the import of one of HELM's modules imports.

    Modules of HELM in `seen` are skipped; the others are added to `seen`.
    """
    imported: set[str] = set()
    if module in seen or module in REPLACED_IN_EVERY_RUN:
        return imported
    seen.add(module)
    for name in _imports_of(module):
        imported |= _imported_by(name, seen) if _is_helms(name) else {name}
    return imported


@cache
def _imports_of(module: str) -> tuple[str, ...]:
    """Return the modules that one of HELM's modules imports."""
    tree = source_tree(module)
    if tree is None:  # `module` is the path of a class or function in a module.
        return ()
    return tuple(_modules_imported_by(tree.body, local=module.startswith(PICTURE_METRICS)))


def _is_helms(module: str) -> bool:
    return module.partition(".")[0] == "helm"
