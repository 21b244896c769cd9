"""Rescores an imported result: adds scores of the reader and of judges to the source's values.

The new result is written to another folder. If the user names judges, the judges are asked in a
separate run in the subfolder `judged`. This run evaluates a custom benchmark that contains the
imported answers. The scores of the judges are then added to the imported result. The reader (the
package `reading`) finds the option that an answer states.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import (
    RunRequest,
    build_evaluation,
    find_benchmark,
    read_layers,
    strongest_value,
)
from eval_factory.config.resolved import Evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.importing.added_scores import with_added_scores, with_reader_score
from eval_factory.importing.answers_to_judge import (
    JUDGE_PROMPT_FILE,
    Judging,
    read_judging,
    write_judged_answers,
)
from eval_factory.importing.imported_folder import write_import
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.import_results import is_imported, refuse_foreign_folder
from eval_factory.workflows.options import Options

if TYPE_CHECKING:
    from eval_factory.workflows.evaluated import Evaluated

CUSTOM = "custom"  # the `config.type` of a run with the user's own benchmark
_BENCHMARK = ("config", "params", "extra", "benchmark")  # the path of a key in a run config
_NO_BENCHMARK = (
    "config.params.extra.benchmark: is missing; set it to the file that says how judges rate "
    "(docs/import.md)"
)
_NO_URL = (
    "config.params.extra.judges: give each judge its url, or give target.api_endpoint.url; "
    "an imported result has no endpoint"
)


def rescore_imported(
    folder: Path, request: RunRequest, output_dir: Path, *, env: Mapping[str, str], screen: TextIO
) -> Evaluated:
    """Write a copy of an imported result with additional scores to another folder.

    The values of the source are not changed.

    Args:
        folder: The folder of the imported result.
        request: The judges, and the benchmark that says how they rate; an empty request if only the
            reader adds scores.
        output_dir: The folder for the new result.
        env: The environment with the keys.
        screen: The stream for progress and warnings.

    Raises:
        ConfigError: No score would be added, the output folder contains other files, or the
            configuration is wrong.
        PrerequisiteError: The folder has no result, or a judge cannot be asked.
        BusyError: Another process has locked the output folder.
        HelmError: HELM failed in the run that asks the judges.
    """
    stored = load_result(folder)
    rundir = RunDir(output_dir)
    _refuse_folders(stored, rundir)
    judge_run = None
    if request != RunRequest():
        judge_run = _JudgeRun(stored, _judging_of(request, env), request, env)
        # A trial in a temporary folder finds a wrong configuration before the output folder exists.
        with tempfile.TemporaryDirectory(prefix="eval-factory-rescore-") as name:
            judge_run.evaluation_in(RunDir(Path(name)))
    elif with_reader_score(stored.result) is None:
        raise ConfigError(
            f"{folder}: no score would be added: the reader has already read the answers, "
            "or an answer has no options or no right option\n"
            "  name judges and a benchmark with --run_config"
        )
    rundir.create()
    with rundir.locked():
        judged_result = None
        if judge_run is not None:
            judged_result = judge_run.ask(rundir, screen)
        # The ratings of clinicians are in the folder of the original, so the copy has none.
        original = replace(stored.result, clinicians=None)
        result = with_added_scores(original, stored.folder, rundir, judged_result)
        return _write(result, stored, rundir, env)


def _refuse_folders(stored: StoredResult, rundir: RunDir) -> None:
    """Check that the result was not rescored before, and that the output folder may be written.

    Raises:
        ConfigError: The result is a rescored result, the folders overlap, or the output folder
            contains other files.
    """
    imported = stored.result.provenance.imported
    if imported is not None and imported.rescored_folder is not None:
        raise ConfigError(
            f"{stored.folder}: was rescored already; rescore {imported.rescored_folder}"
        )
    original = stored.folder.resolve()
    output = rundir.root.resolve()
    if original == output or original in output.parents or output in original.parents:
        raise ConfigError(
            f"--output_dir: {rundir.root} overlaps with the original {stored.folder}; "
            "choose another folder"
        )
    # An earlier rescored copy of the same result may be replaced.
    holds_earlier_rescore = is_imported(rundir) and _source_of(rundir) == original
    if not holds_earlier_rescore:
        refuse_foreign_folder(rundir.root, may_be_imported=False)


def _source_of(rundir: RunDir) -> Path | None:
    """Return the folder of the original result if the folder has a rescored result, else None."""
    imported = load_result(rundir.root).result.provenance.imported
    if imported is None or imported.rescored_folder is None:
        return None
    return Path(imported.rescored_folder).resolve()


def _judging_of(request: RunRequest, env: Mapping[str, str]) -> Judging:
    """Return the instructions for the judges, as the benchmark of the request states them.

    Raises:
        ConfigError: The benchmark is missing, or the run config has another type.
    """
    layers = read_layers(request, env)
    benchmark = strongest_value(layers, *_BENCHMARK)
    eval_type = strongest_value(layers, "config", "type")
    problems: list[str] = []
    if eval_type not in (None, CUSTOM):
        problems.append(f"config.type: must be {CUSTOM}: judges rate by a benchmark of your own")
    path = None
    if not isinstance(benchmark, str):
        problems.append(_NO_BENCHMARK)
    else:
        folder_of_config = None
        if request.run_config is not None:
            folder_of_config = request.run_config.parent
        path = find_benchmark(benchmark, folder_of_config, ".".join(_BENCHMARK), problems)
    if problems or path is None:
        raise ConfigError(problems)
    return read_judging(path)


@dataclass(frozen=True)
class _JudgeRun:
    """A run in which judges rate the answers of an imported result."""

    stored: StoredResult  # the imported result
    judging: Judging  # the instructions for the judges
    request: RunRequest  # the user's request, which names the judges
    env: Mapping[str, str]  # the environment with the keys

    def evaluation_in(self, judged_dir: RunDir) -> Evaluation:
        """Write the imported answers as a benchmark to the folder `judged_dir`.

        Returns the evaluation in which the judges rate these answers.

        Raises:
            ConfigError: The user's benchmark or configuration is wrong.
        """
        benchmark = write_judged_answers(self.stored, self.judging, judged_dir.root / "answers")
        layers = read_layers(self.request, self.env)
        url = strongest_value(layers, "target", "api_endpoint", "url")
        if url is None:
            url = _first_url(strongest_value(layers, "config", "params", "extra", "judges"))
        model = self.stored.result.provenance.target
        document = {
            "config": {"type": CUSTOM},
            # The configuration needs an endpoint, but this endpoint gets no request: the benchmark
            # already has the answers.
            "target": {"api_endpoint": {"url": url, "model_id": model, "type": "chat"}},
        }
        overrides = (
            *self.request.overrides,
            f"config.params.extra.benchmark={json.dumps(str(benchmark))}",
            f"config.output_dir={json.dumps(str(judged_dir.root))}",
        )
        judging_request = replace(self.request, document=document, overrides=overrides)
        try:
            return build_evaluation(judging_request, load_framework(), self.env)
        except ConfigError as error:
            problems = _with_users_paths(error.problems, benchmark, self.judging)
            raise ConfigError(problems) from None

    def ask(self, rundir: RunDir, screen: TextIO) -> StoredResult:
        """Ask the judges in an ordinary run, and return the result of this run.

        Args:
            rundir: The folder for the rescored result; the run is in its subfolder `judged`.
            screen: The stream for progress and warnings.
        """
        # imported late: this module imports the code that sends requests
        from eval_factory.workflows.evaluate import evaluate

        judged_dir = RunDir(rundir.judged)
        judged_dir.create()
        evaluation = self.evaluation_in(judged_dir)
        evaluate(self.request, Options(), env=self.env, screen=screen, evaluation=evaluation)
        return load_result(judged_dir.root)


def _with_users_paths(problems: Sequence[str], benchmark: Path, judging: Judging) -> list[str]:
    """Return the problems with the paths of copied files replaced by the paths of the originals."""
    shown = []
    for problem in problems:
        text = problem.replace(str(benchmark), str(judging.path))
        if judging.prompt_file is not None:
            copied_prompt = benchmark.parent / JUDGE_PROMPT_FILE
            text = text.replace(str(copied_prompt), str(judging.prompt_file))
        shown.append(text)
    return shown


def _first_url(judges: Any) -> str:
    """Return the URL of the first judge.

    Every judge must have a URL: a judge without one would be asked at the target's URL, and an
    imported result has no endpoint.

    Raises:
        ConfigError: The configuration has no judge, or a judge has no URL.
    """
    if isinstance(judges, list) and judges:
        urls = []
        for judge in judges:
            if isinstance(judge, dict) and isinstance(judge.get("url"), str):
                urls.append(judge["url"])
        if len(urls) == len(judges):
            return str(urls[0])
    raise ConfigError(_NO_URL)


def _write(
    result: TaskResult, stored: StoredResult, rundir: RunDir, env: Mapping[str, str]
) -> Evaluated:
    """Write the files of the result, and return the result with its summary."""
    from eval_factory.report.summary import result_summary
    from eval_factory.scoring.reportable import why_not_reportable
    from eval_factory.workflows.evaluated import Evaluated

    redactor = Redactor.from_environment(env)
    config = {**stored.config, "output_dir": str(rundir.root)}
    document = {"config": config, "target": stored.target}
    command = shlex.join(
        ["eval-factory", "rescore", str(stored.folder), "--output_dir", str(rundir.root)]
    )
    written = write_import(result, rundir, document, command, redactor)
    text = printable_lines(redactor.redact_text(result_summary(written, rundir)))
    # without the setting, every instance must have a score
    minimum = stored.extra.get("min_coverage", 1.0)
    return Evaluated(written, rundir, text, why_not_reportable(written, minimum))
