"""Which runs a folder stands for: itself, those of a suite (a leaderboard is one), or those of a suite's target."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.safe_files import refuse_foreign

_RESULT = "evaluation_config.yaml"
MAX_NAMED = 8
"""Runs that a message names."""


def is_suite(folder: Path) -> bool:
    suite = SuiteDir(folder)
    return not _is_run(folder) and (suite.config.exists() or suite.results_yaml.exists())


def run_folders(folders: Iterable[Path | str]) -> list[Path]:
    """The output folders of runs that these folders stand for, each once, a suite's in the order of its table.

    What is neither a suite's folder nor a target's is returned as it is: whoever reads it says what is wrong.

    Raises:
        PrerequisiteError: no run of a suite has a result, or a file of it lies elsewhere.
    """
    found = [run for folder in folders for run in _runs_of(Path(folder))]
    return list({run.absolute(): run for run in found}.values())


def one_run(folder: Path | str, command: str) -> Path:
    """The one run that a folder stands for.

    Raises:
        ConfigError: it stands for several; the message names them.
        PrerequisiteError: what `run_folders` raises.
    """
    runs = run_folders([folder])
    if len(runs) > 1:
        named = [str(run) for run in runs[:MAX_NAMED]] + ["..."] * (len(runs) > MAX_NAMED)
        raise ConfigError(f"{command}: is about one run, and {folder} has {len(runs)}: give one of {', '.join(named)}")
    return runs[0]


def compared_runs(folders: Iterable[Path | str], command: str = "compare") -> list[Path]:
    """The runs to compare with each other: of folders of suites, those of the one benchmark that they have.

    Raises:
        ConfigError: a suite has several benchmarks; the message says how to choose.
        PrerequisiteError: what `run_folders` raises.
    """
    given = [Path(folder) for folder in folders]
    runs = run_folders(given)
    several = any(is_suite(folder) or is_suite(folder.parent) for folder in given)
    names = list(dict.fromkeys(run.name for run in runs))
    if several and len(names) > 1:
        one = " ".join(str(run) for run in runs if run.name == names[0])
        table = "; ".join(f"{SuiteDir(folder).results_md} has those of each" for folder in given if is_suite(folder))
        raise ConfigError(
            f"{command}: is of one benchmark, and there are {len(names)} ({', '.join(names[:MAX_NAMED])});"
            f" {f'{table}; ' if table else ''}for {names[0]} alone: eval-factory {command} {one}"
        )
    return runs


def _is_run(folder: Path) -> bool:
    """An output folder without a result holds at most results of another configuration, which were moved aside."""
    rundir = RunDir(folder)
    return rundir.evaluation_config.exists() or rundir.marker.exists()


def _runs_of(folder: Path) -> list[Path]:
    if (folder / "leaderboard.json").is_file() and not is_suite(folder):
        raise PrerequisiteError(
            f"{folder}: is a leaderboard's folder of an earlier version, whose runs are HELM's own and have no result"
            " of eval-factory; 'eval-factory leaderboard run' makes a suite now (docs/leaderboards.md)"
        )
    if _is_run(folder):
        return [folder]
    suite = SuiteDir(folder)
    of_suite = is_suite(folder)
    found = [path.parent for path in sorted(folder.glob(f"{'*/' * (1 + of_suite)}{_RESULT}"))]
    found = [run for run in found if not run.relative_to(folder).parts[0].startswith(".")]
    refuse_foreign(folder, [*(run / _RESULT for run in found), *([suite.results_yaml] if of_suite else [])])
    if not of_suite:
        return found or [folder]
    order = _table(suite.results_yaml)
    runs = {(run.parent.name, run.name): run for run in found}
    in_order = [runs[name] for name in order if name in runs] if order else found
    if not in_order:
        raise PrerequisiteError(
            f"{folder}: is the folder of a suite none of whose runs has a result; 'eval-factory suite status {folder}'"
            " says where it stands"
        )
    return in_order


def _table(path: Path) -> list[tuple[str, str]]:
    """(target, evaluation) of each run in the table; none where it is not there, or not whole."""
    try:
        cells = parse_own(path.read_text(encoding="utf-8"))["cells"]
        return [(str(cell["target"]), str(cell["evaluation"])) for cell in cells]
    except (OSError, ValueError, YamlError, KeyError, TypeError):
        return []
