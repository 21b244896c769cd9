"""Reads the result in an output folder back into a `TaskResult`.

The module also shows a result as pandas data frames, and finds the runs in a folder. The folder may
be the output folder of one run, of a suite (a leaderboard is a suite too), or of one target of a
suite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from eval_factory.core import results
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import YamlError, parse_own_text
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import parse_json, refuse_foreign
from eval_factory.report import documents

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT = "string"
NUMBER = "float64"
COUNT = "Int64"
FLAG = "boolean"
ANY = "object"
"""The pandas types of the columns. A missing value is NaN in a column of numbers, None in a column
of any values, and NA in all other columns.
"""

SCORE_COLUMNS: Mapping[str, str] = {
    "task": TEXT,
    "model": TEXT,
    "metric": TEXT,
    "main": FLAG,
    "value": NUMBER,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "n": COUNT,
    "stderr": NUMBER,
    "ci_method": TEXT,
    "split": TEXT,
    "perturbation": TEXT,
    "higher_is_better": FLAG,
    "unit": TEXT,
    "bound_low": NUMBER,
    "bound_high": NUMBER,
    "reportable": FLAG,
}
"""The columns of `scores_frame` -> their pandas types. `n` is the number of instances; `main` marks
the main score. docs/python.md describes all columns.
"""
INSTANCE_COLUMNS: Mapping[str, str] = {
    "id": TEXT,
    "split": TEXT,
    "sub_split": TEXT,
    "trial": COUNT,
    "perturbation": TEXT,
    "prompt": TEXT,
    "references": ANY,
    "completion": TEXT,
    "reasoning": TEXT,
    "finish_reason": TEXT,
    "prompt_tokens": COUNT,
    "completion_tokens": COUNT,
    "latency_s": NUMBER,
    "cached": FLAG,
    "error": TEXT,
    "unjudged": FLAG,
    "cluster": TEXT,
    "signs": ANY,
}
"""The fields of `InstanceRecord` that are columns -> their pandas types. The columns of metrics,
judges and categories follow them.
"""
JUDGE_PREFIX = "judge."  # begins the column of a judge's ratings
CATEGORY_PREFIX = "extra."  # begins the column of a category, and its field in instances.jsonl
_METRIC_PREFIX = "metric."  # begins the column of a metric if another column has the metric's name


def scores_frame(result: TaskResult) -> DataFrame:
    """Return a data frame with one row for each score and the columns of `SCORE_COLUMNS`.

    Raises PrerequisiteError if pandas is not installed.
    """
    rows = []
    for label, score in result.scores.items():
        # All fields of the score and its statistics. `frame` ignores those that are no columns.
        row = {**vars(score.stats), **vars(score)}
        row["task"] = result.task
        row["model"] = result.provenance.target
        row["reportable"] = result.reportable
        row["metric"] = label
        row["main"] = label == result.main_metric
        row["n"] = score.stats.count
        row["bound_low"], row["bound_high"] = result.validity.bounds.get(label, (None, None))
        rows.append(row)
    return data_frame(SCORE_COLUMNS, rows)


def instance_table(result: TaskResult) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return a dict from each column to its pandas type, and one row for each instance record.

    The records of different trials and perturbations of an instance have separate rows. The columns
    are `INSTANCE_COLUMNS`, then metrics, judges and categories. The main metric always has a
    column, even if no instance has a value for this metric. Raises PrerequisiteError if the
    instances cannot be read.
    """
    records = list(result.instances)
    # dicts from a column to the name of the judge, of the category or of the metric
    judges = _prefixed(JUDGE_PREFIX, _keys_of(record.judges for record in records))
    categories = _prefixed(CATEGORY_PREFIX, _keys_of(record.categories for record in records))
    metrics = {}
    metric_names = _keys_of(record.metrics for record in records)
    main = result.scores.get(result.main_metric)
    if main is not None and main.metric is not None:
        metric_names = list(dict.fromkeys([main.metric, *metric_names]))
    other_columns = {*INSTANCE_COLUMNS, *judges, *categories}
    for metric_name in metric_names:
        column = metric_name
        if column in other_columns:
            column = f"{_METRIC_PREFIX}{metric_name}"
        metrics[column] = metric_name
    rows = []
    for record in records:
        row = {name: getattr(record, name) for name in INSTANCE_COLUMNS}
        _add_columns(row, metrics, record.metrics)
        _add_columns(row, judges, record.judges)
        _add_columns(row, categories, record.categories)
        rows.append(row)
    types = dict(INSTANCE_COLUMNS)
    types |= dict.fromkeys([*metrics, *judges], NUMBER)
    types |= dict.fromkeys(categories, ANY)
    return types, rows


def _prefixed(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """Return a dict from columns to names; a column is the prefix followed by the name."""
    return {f"{prefix}{name}": name for name in names}


def _add_columns(
    row: dict[str, Any], columns: Mapping[str, str], values: Mapping[str, Any]
) -> None:
    """Add a value for each column to a row. The value is None if `values` has no such name.

    Args:
        row: a row of an instance.
        columns: dict from a column to a name in `values`.
        values: dict from a name to the instance's value.
    """
    for column, name in columns.items():
        row[column] = values.get(name)


def _keys_of(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all mappings, each once, in the order of their first occurrence."""
    return list(dict.fromkeys(chain.from_iterable(mappings)))


def data_frame(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a data frame with these rows, columns and pandas types. `rows` may be empty.

    Raises PrerequisiteError if pandas is not installed.
    """
    try:
        import pandas  # Imported here, because the import is slow. HELM installs pandas.
    except ImportError:
        raise PrerequisiteError(
            "a data frame needs pandas, which is not installed here: pip install pandas"
        ) from None
    series = {}
    for name, kind in columns.items():
        series[name] = pandas.Series([row.get(name) for row in rows], dtype=kind)
    # Without a type, pandas 2 and pandas 3 choose different types for the names of the columns.
    names = pandas.Index(list(columns), dtype=ANY)
    return pandas.DataFrame(series, columns=names)


class ResultViews:
    """A mixin for objects that have a result: it adds data frames and a repr of one line."""

    if TYPE_CHECKING:  # The classes that use the mixin define these attributes.

        @property
        def result(self) -> TaskResult: ...
        @property
        def folder(self) -> Path: ...

    def to_frame(self, *, instances: bool = False) -> DataFrame:
        """Return the scores, one row each. `docs/python.md` lists the columns.

        With `instances`, return `instances_frame()` instead. Raises PrerequisiteError if pandas is
        not installed, or if the instances cannot be read.
        """
        if instances:
            return self.instances_frame()
        return scores_frame(self.result)

    def instances_frame(self) -> DataFrame:
        """Return the instances, one row each: prompt, answer, tokens, seconds, error and metrics.

        Each metric has a column of its own. Raises PrerequisiteError if pandas is not installed, or
        if the instances cannot be read.
        """
        column_types, rows = instance_table(self.result)
        return data_frame(column_types, rows)

    def __repr__(self) -> str:
        # Imported here because `summary` loads the index of HELM's benchmarks.
        from eval_factory.report.summary import headline

        parts = [headline(self.result), str(self.folder)]
        return f"<{type(self).__name__} {one_line('; '.join(parts))}>"


_RecordType = TypeVar("_RecordType")


@cache
def _adapter(record_type: Any) -> TypeAdapter[Any]:
    """Return pydantic's validator of a type.

    The validators are built at the first use, because every run imports this module and not every
    run reads a result.
    """
    return TypeAdapter(record_type)


def _to_record(record_type: type[_RecordType], document: Any) -> _RecordType:
    """Return the record of this type that a document describes, with all nested records."""
    key: Any = record_type  # `Any`, because mypy does not know that every class is hashable
    record: _RecordType = _adapter(key).validate_python(document)
    return record


def _to_optional_record(record_type: type[_RecordType], document: Any) -> _RecordType | None:
    """Return the record that a document describes; None if there is no document."""
    if document is None:
        return None
    return _to_record(record_type, document)


_MISSING_STATS = dict.fromkeys(("stddev", "stderr", "ci_low", "ci_high", "ci_method"))
"""Statistics that a document omits if they are None."""
_RESULT_FILE = "evaluation_config.yaml"
_MAX_NAMED = 8  # the maximum number of runs, or of benchmarks, that a message names


@dataclass(frozen=True, repr=False)
class StoredResult(ResultViews):
    """The result in one output folder, with the configuration of its run."""

    result: TaskResult
    folder: Path
    command: str
    config: Mapping[str, Any]
    """The section `config` of the run with its defaults, if the folder has a run_config.yml;
    otherwise only the values that the user set.
    """
    target: Mapping[str, Any]  # the section `target`, with defaults like `config`

    @property
    def extra(self) -> dict[str, Any]:
        """The values in `config.params.extra` that are not None."""
        extra = (self.config.get("params") or {}).get("extra") or {}
        return {name: value for name, value in extra.items() if value is not None}


def load_result(folder: Path | str) -> StoredResult:
    """Read an output folder; `folder` may also be the path of its evaluation_config.yaml.

    The instances are read from disk each time a caller iterates over them. Raises PrerequisiteError
    if there is no result, if this version cannot read the file, or if a file of the result lies
    outside of the folder.
    """
    path = Path(folder)
    if path.name == _RESULT_FILE:
        path = path.parent
    rundir = RunDir(path)
    refuse_foreign(rundir.root, rundir.all_paths)
    document = _document_in(rundir.evaluation_config)
    # evaluation_config.yaml has the values that the user set; run_config.yml has all values.
    defaults = _defaults_of(rundir)
    return StoredResult(
        result_of_document(document, StoredInstances(rundir)),
        folder=rundir.root,
        command=document["command"],
        config=_merged(weaker=defaults["config"], stronger=document["config"]),
        target=_merged(weaker=defaults["target"], stronger=document["target"]),
    )


def _document_in(file: Path) -> dict[str, Any]:
    """Return the document in evaluation_config.yaml.

    Raises PrerequisiteError if the file is missing or does not match the schema.
    """
    import jsonschema  # Imported here: the import is slow, and `--help` needs no schema.

    try:
        document: dict[str, Any] = parse_own_text(file.read_text(encoding="utf-8"))
        documents.check_document(document, documents.EVALUATION_CONFIG_SCHEMA)
    except FileNotFoundError:
        raise PrerequisiteError(
            f"{file}: there is no result; it is written when a run ends"
        ) from None
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise PrerequisiteError(f"{file}: cannot be read: {error}") from None
    except jsonschema.ValidationError as error:
        field = ".".join(map(str, error.absolute_path)) or "the file"
        raise PrerequisiteError(
            f"{file}: this version cannot read the result: {field}: {error.message}"
        ) from None
    return document


def _defaults_of(rundir: RunDir) -> dict[str, dict[str, Any]]:
    """Return `config` and `target` from run_config.yml, where they have their defaults.

    Both are empty if the file is missing or unreadable.
    """
    try:
        stored = parse_own_text(rundir.run_config.read_text(encoding="utf-8"))
        return {"config": dict(stored["config"]), "target": dict(stored["target"])}
    except (OSError, ValueError, TypeError, KeyError):
        return {"config": {}, "target": {}}


def _merged(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged mappings; values in `stronger` win. Nested mappings are merged too."""
    merged = {**weaker, **stronger}
    for name in weaker.keys() & stronger.keys():
        if isinstance(weaker[name], dict) and isinstance(stronger[name], dict):
            merged[name] = _merged(weaker[name], stronger[name])
    return merged


def result_of_document(
    document: Mapping[str, Any], instances: Iterable[results.InstanceRecord]
) -> TaskResult:
    """Return the result that the document of evaluation_config.yaml describes.

    `instances` become the instances of the result, because the document does not have them.
    """
    validity = document["validity"]
    (task,) = document["results"]["tasks"]  # a result has one task
    metrics = document["results"]["tasks"][task]["metrics"]
    scores = _scores(metrics, task_scores={}, main_split=validity.get("main_split"))
    groups: dict[str, dict[str, dict[str, results.Score]]] = {}
    group_documents = document["results"]["groups"].get(task, {}).get("groups", {})
    for field, by_value in group_documents.items():
        groups[field] = {}
        for value, group in by_value["groups"].items():
            groups[field][value] = _scores(group["metrics"], task_scores=scores, main_split=None)
    # A document omits fields that are None. The records have no default for `jury`, `helm` and
    # `git_hash`, so None is added here.
    return TaskResult(
        task=task,
        main_metric=document["main_metric"],
        scores=scores,
        groups=groups,
        validity=_to_record(
            results.Validity, {"jury": None, **_without(validity, "reportable", "coverage")}
        ),
        usage=_usage(document["usage"]),
        provenance=_to_record(
            results.Provenance, {"helm": None, "git_hash": None, **document["provenance"]}
        ),
        instances=instances,
        reportable=validity["reportable"],
        status=RunStatus(document["status"]),
        # Not stored. In a partial result, answers are missing that can be asked for.
        something_to_ask=document["status"] == RunStatus.PARTIAL,
        comparability=_to_optional_record(results.Comparability, document.get("comparability")),
        clinicians=_to_optional_record(results.Clinicians, document.get("clinicians")),
    )


_IDENTIFYING_FIELDS = ("id", "split", "trial", "perturbation")
"""The fields that an instance has in instances.jsonl and in results.jsonl."""


@dataclass(frozen=True)
class StoredInstances:
    """The instances of an output folder. Each iteration reads the files again."""

    rundir: RunDir

    def __iter__(self) -> Iterator[results.InstanceRecord]:
        """Yield the instances in the order of the files.

        Raises PrerequisiteError if instances.jsonl or results.jsonl is missing or unreadable, or if
        the two files do not list the same instances.
        """
        try:
            with (
                self.rundir.instances.open(encoding="utf-8") as instances,
                self.rundir.results_jsonl.open(encoding="utf-8") as outcomes,
            ):
                for instance, outcome in zip(instances, outcomes, strict=True):
                    yield instance_record(parse_json(instance), parse_json(outcome))
        except (OSError, ValueError, KeyError) as error:
            raise PrerequisiteError(
                f"{self.rundir.root}: its instances cannot be read: {error}"
            ) from error


def instance_record(
    instance: Mapping[str, Any], outcome: Mapping[str, Any]
) -> results.InstanceRecord:
    """Return the record of one line of instances.jsonl and the same line of results.jsonl.

    Raises ValueError if the lines are about different instances, and KeyError if a field is
    missing.
    """
    for name in _IDENTIFYING_FIELDS:
        if instance[name] != outcome[name]:
            raise ValueError(
                f"instances.jsonl and results.jsonl differ at instance {instance['id']}"
            )
    # A line may lack these fields, and `InstanceRecord` has no defaults for them.
    fields: dict[str, Any] = {"judges": {}, "unjudged": False, "injection": ()}
    for name in documents.INSTANCE_FIELDS:
        fields[name] = instance[name]
    for name in documents.RESULT_FIELDS:
        fields[name] = outcome[name]
    for name in documents.OPTIONAL_RESULT_FIELDS:
        if name in outcome:
            fields[name] = outcome[name]
    fields["references"] = instance["references"]
    fields["turns"] = instance.get("turns", ())
    fields["media"] = instance.get("media", ())
    fields["question"] = instance.get("question")
    for name, value in fields.items():
        if isinstance(value, list):  # JSON has no tuples.
            fields[name] = tuple(value)
    categories = {}
    for name, value in instance.items():
        if name.startswith(CATEGORY_PREFIX):
            categories[name.removeprefix(CATEGORY_PREFIX)] = value
    return results.InstanceRecord(**fields, categories=categories)


def _scores(
    metrics: Mapping[str, Any], *, task_scores: Mapping[str, results.Score], main_split: str | None
) -> dict[str, results.Score]:
    """Return the scores of a task or of a group.

    Args:
        metrics: the section `metrics` of the task or of the group. It omits defaults.
        task_scores: for a group, the scores of the task. A group's score takes each omitted field
            from the task's score of the same name. Empty for the scores of the task itself.
        main_split: the split of a score that states none, if `task_scores` has no score of the same
            name. The metric of such a score, if it states none, is its name.
    """
    scores = {}
    for name, document in metrics["score"]["scores"].items():
        defaults: dict[str, Any] = {"metric": name, "split": main_split}
        if name in task_scores:
            defaults = vars(task_scores[name])
        stats = {**_MISSING_STATS, **document["stats"]}
        scores[name] = _to_record(results.Score, {**defaults, **document, "stats": stats})
    return scores


def _without(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the document without the fields of these names."""
    return {name: value for name, value in document.items() if name not in names}


def _usage(document: Mapping[str, Any]) -> results.Usage:
    """Return the record of the section `usage` of a result.

    The figures at the top level of the section are the total of this run. If the section has no
    figures by role, all figures are the model's. `all_runs` sums every invocation that wrote into
    the folder; without it, this run was the only invocation.
    """
    total = _without(document, "this_run", "all_runs", "wall_s", "cost_unknown")
    this_run = _spent_by_role({**total, **document.get("this_run", {})})
    all_runs = this_run
    runs = 1
    if document.get("all_runs") is not None:
        all_runs = _spent_by_role(document["all_runs"])
        runs = document["all_runs"]["runs"]
    return results.Usage(
        this_run=this_run,
        all_runs=all_runs,
        runs=runs,
        wall_s=document["wall_s"],
        cost_unknown=document.get("cost_unknown"),
    )


def _spent_by_role(document: Mapping[str, Any]) -> results.SpentByRole:
    """Return the total and the figures by role. Without `roles`, all figures are the model's."""
    total = _to_record(results.Spent, _without(document, "roles", "runs"))
    if document.get("roles") is None:
        return results.SpentByRole(total, {results.MODEL_ROLE: total})
    by_role = {role: _to_record(results.Spent, spent) for role, spent in document["roles"].items()}
    return results.SpentByRole(total, by_role)


def is_suite_folder(folder: Path) -> bool:
    """Return True if a folder is the output folder of a suite."""
    suite = SuiteDir(folder)
    return not _is_run(folder) and (suite.config.exists() or suite.results_yaml.exists())


_OWN_BENCHMARK = "benchmark.yaml"  # the file in `model_configs` that helm-run reads
_MAX_DESCRIPTION = 1000  # the maximum number of characters of a benchmark's description


def own_benchmark_description(folder: Path) -> str:
    """Return the description of the user's own benchmark, in one line.

    The text is empty if the run was not one of the user's own benchmark, or if the benchmark has no
    description.
    """
    file = RunDir(folder).model_configs / _OWN_BENCHMARK
    try:
        document = parse_own_text(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, YamlError):
        return ""
    if not isinstance(document, Mapping):
        return ""
    description = document.get("description")
    if not description:
        return ""
    return one_line(str(description), _MAX_DESCRIPTION)


def run_folders(folders: Iterable[Path | str]) -> list[Path]:
    """Return the output folders of all runs in these folders, each once.

    The runs of a suite come in the order of the suite's table. A folder without a run is returned
    unchanged: the function that reads the folder later reports what is wrong. Raises
    PrerequisiteError if no run of a suite has a result, or if a file of the suite lies outside of
    the suite's folder.
    """
    runs: dict[Path, Path] = {}
    for folder in folders:
        for run in _runs_of(Path(folder)):
            runs[run.resolve()] = run
    return list(runs.values())


def find_only_run(folder: Path | str, command: str) -> Path:
    """Return the output folder of the only run in a folder.

    Return the folder itself if it has no run. Raises ConfigError if there are several runs; the
    message lists these runs. `command` is the command that the message mentions.
    """
    runs = run_folders([folder])
    if len(runs) > 1:
        paths = list(map(str, runs[:_MAX_NAMED]))
        if len(runs) > _MAX_NAMED:
            paths.append("...")
        raise ConfigError(
            f"{command}: needs the folder of one run, and {folder} has {len(runs)} runs: "
            f"give one of {', '.join(paths)}"
        )
    return runs[0]


def compared_runs(folders: Iterable[Path | str], command: str = "compare") -> list[Path]:
    """Return the runs in these folders that are compared with each other.

    Raises ConfigError if a folder belongs to a suite and the runs are of several benchmarks; the
    message explains how to choose a benchmark. `command` is the command that the message mentions.
    """
    paths = list(map(Path, folders))
    runs = run_folders(paths)
    # In a suite, the name of a run's folder is the name of the evaluation.
    names = list(dict.fromkeys(run.name for run in runs))
    if len(names) <= 1 or not any(map(_belongs_to_suite, paths)):
        return runs
    tables = ""
    for path in paths:
        if is_suite_folder(path):
            tables += f"{SuiteDir(path).results_md} lists the results of each benchmark; "
    runs_of_first = " ".join(str(run) for run in runs if run.name == names[0])
    raise ConfigError(
        f"{command}: needs results of one benchmark, and these folders have results of "
        f"{len(names)} ({', '.join(names[:_MAX_NAMED])});"
        f" {tables}for {names[0]} alone: eval-factory {command} {runs_of_first}"
    )


def _belongs_to_suite(folder: Path) -> bool:
    """Return True if a folder is the folder of a suite or of one target of a suite."""
    return is_suite_folder(folder) or is_suite_folder(folder.parent)


def _is_run(folder: Path) -> bool:
    """Return True if a folder is the output folder of a run, even of a run without a result yet."""
    rundir = RunDir(folder)
    return rundir.evaluation_config.exists() or rundir.marker.exists()


def _runs_of(folder: Path) -> list[Path]:
    """Return the output folders of the runs in one folder; the folder itself if there are none.

    Raises PrerequisiteError if the folder is that of a suite without any result.
    """
    if _is_run(folder):
        return [folder]
    if not is_suite_folder(folder):
        return _results_below(folder, f"*/{_RESULT_FILE}") or [folder]
    table = SuiteDir(folder).results_yaml
    refuse_foreign(folder, [table])
    runs = _results_below(folder, f"*/*/{_RESULT_FILE}")
    # The folder of a run is TARGET/EVALUATION.
    by_cell = {(run.parent.name, run.name): run for run in runs}
    try:
        cells = parse_own_text(table.read_text(encoding="utf-8"))["cells"]
        order = [(str(cell["target"]), str(cell["evaluation"])) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError):  # The table is missing or incomplete.
        order = []
    if order:
        runs = [by_cell[cell] for cell in order if cell in by_cell]
    if not runs:
        raise PrerequisiteError(
            f"{folder}: is the folder of a suite in which no run has a result yet; "
            f"'eval-factory suite status {folder}' shows the state of its runs"
        )
    return runs


def _results_below(folder: Path, pattern: str) -> list[Path]:
    """Return the folders below `folder` that have a result, without hidden folders.

    `pattern` is the glob pattern of the result files. Raises PrerequisiteError if a result file
    lies outside of `folder`, behind a symbolic link.
    """
    runs = []
    for path in sorted(folder.glob(pattern)):
        if not path.relative_to(folder).parts[0].startswith("."):
            runs.append(path.parent)
    refuse_foreign(folder, [run / _RESULT_FILE for run in runs])
    return runs
