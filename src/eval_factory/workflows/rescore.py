"""A finished run's answers scored again, by other judges, metrics or rules: a run whose model is not asked.

Its cache.db begins as a copy of the finished run's, so every step is that of any run; what a change would ask the model
again is not stored, and ends the run before a judge is asked.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import Provenance
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.secrets import variables_in
from eval_factory.endpoint.response_cache import read_origin, write_origin
from eval_factory.report.reader import load_result
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.evaluate import Evaluated, evaluate
from eval_factory.workflows.options import Options
from eval_factory.workflows.recollect import config_for


def rescore(folder: Path, request: Request, output_dir: Path, *, env: Mapping[str, str], screen: TextIO) -> Evaluated:
    """`request`: what is another now than in the finished run of `folder`, in which nothing is changed.

    Raises:
        PrerequisiteError: there is no result, its answers were altered, or the model would have to be asked.
        ConfigError: `output_dir` holds answers of another run; and as `evaluate`.
    """
    then, rundir = load_result(folder).result.provenance, RunDir(output_dir)
    document = config_for(folder, output_dir)
    flags = {**request.flags, "config.output_dir": str(output_dir)}
    request = Request(request.run_config, document, flags, request.overrides)
    not_sent = dict.fromkeys(variables_in(document["target"]), "not sent")
    evaluation = build_evaluation(request, load_framework(), {**not_sent, **env})
    options = Options(asks_model=False, on_launch=lambda _record: copy_answers(RunDir(folder), then, rundir))
    return evaluate(request, options, env=env, screen=screen, evaluation=evaluation)


def copy_answers(source: RunDir, then: Provenance, rundir: RunDir) -> None:
    """The answers of a finished run, of the model and of judges, into a folder without any; once.

    Args:
        then: of the finished run; its hash of cache.db says that nobody writes there, or wrote since.
    """
    origin = read_origin(rundir.cache_db)
    if rundir.cache_db.exists():
        if origin is None or origin.run_identity != then.run_identity:
            raise ConfigError(f"--output_dir: {rundir.root} has answers of another run; choose another folder")
        return
    if not source.cache_db.is_file() or sha256_of(source.cache_db) != then.run_files.get(source.cache_db.name):
        raise PrerequisiteError(f"{source.cache_db}: is not what the result was made of ('verify' says more)")
    with tempfile.TemporaryDirectory(dir=rundir.root, prefix=".rescore-") as name:  # SQLite writes beside what it reads
        copy = Path(shutil.copy(source.cache_db, Path(name) / rundir.cache_db.name))  # and its mode: it holds answers
        earlier = read_origin(copy)
        write_origin(copy, then.run_identity, earlier.started_at if earlier else then.started_at or "an unknown time")
        copy.replace(rundir.cache_db)
