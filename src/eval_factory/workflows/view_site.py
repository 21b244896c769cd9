"""Writes HELM's web pages as a folder of files: HELM's front end, its configuration, and the data
of the runs.

HELM's original page loads its icon and a list of leaderboards from crfm.stanford.edu each time that
a browser opens the page. The pages of this module send no request to other hosts: their
Content-Security-Policy allows a browser to contact only the server of the pages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

from eval_factory.core.errors import HelmError, PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import Lock, RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.command import helm_program, quiet_logging
from eval_factory.helm.environments import environment_of
from eval_factory.helm.metric_facts import is_score
from eval_factory.helm.output import read_json_file, read_run
from eval_factory.helm.page_schema import PageRun, is_safe_metric_name, page_models, safe_name
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import run_helm_summarize
from eval_factory.workflows.recollect import require_last_run_state

_REQUIRED_FILES = (
    names.RUN_SPEC_FILE,
    names.STATS_FILE,
    names.PER_INSTANCE_STATS_FILE,
    names.SCENARIO_STATE_FILE,
)
_OPTIONAL_FILES = (names.SCENARIO_FILE,)
# the end of the names of all adapter methods of HELM that use pictures or sounds
MULTIMODAL = "_multimodal"
# the name of the main metric of a run without scores: HELM requires a name for every run
NO_SCORE = "no_score"
VIEW_SUITE = "view"  # the name of HELM's suite that contains all runs of the pages
DATA_FOLDER = "benchmark_output"  # the folder with the data, inside the folder of the pages
_INDEX = "index.html"
CONFIG_SCRIPT = "config.js"  # the file with the settings of HELM's front end
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of the pages."""
_LONGEST_RUN_NAME = 150  # in characters; the name of a run becomes the name of a folder
_LONGEST_ARGUMENT = 40  # in characters; HELM joins several arguments in the name of a file
_ICON = re.compile(r'<link rel="icon"[^>]*>')  # '<link rel="icon" href="https://.../helm.ico" />'


_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # messages for the user are written to the screen


@dataclass(frozen=True)
class ViewedRun:
    """A HELM run, with the names that the pages use for it."""

    folder: Path  # the folder with HELM's files of the run
    name: str
    model: str  # the model's name in HELM's form; each model has a row in the tables
    shown_model: str  # the model's name as the pages show it
    spec: Mapping[str, Any]  # the content of run_spec.json, with the names above
    page: PageRun  # the metrics, the groups and the split of the run in the tables


@dataclass(frozen=True)
class _HelmRun:
    """A HELM run of a stored result."""

    stored: StoredResult
    folder: Path  # the folder with HELM's files of the run
    spec: Mapping[str, Any]  # the content of run_spec.json

    @property
    def helm_model(self) -> str:
        """HELM's name of the model."""
        return str(
            self.spec["adapter_spec"].get("model")
            or self.spec["adapter_spec"].get("model_deployment")
        )


def viewed_runs(folders: Sequence[Path]) -> list[ViewedRun]:
    """Return every HELM run of the results in these output folders.

    If a model has the same run in two folders, the tables have a row for each folder of the model.

    Raises:
        PrerequisiteError: a folder contains no result, or HELM's files were deleted.
        HelmError: a file of HELM does not have the expected form.
    """
    helm_runs: list[_HelmRun] = []
    for result_folder in folders:
        helm_runs += _runs_of(load_result(result_folder))
    # HELM's folder of a run is named after the scenario and the arguments of the scenario: two
    # results have the same run if these folders have the same name.
    run_counts = Counter((run.folder.name, run.helm_model) for run in helm_runs)
    models_with_several_rows = set()
    for run in helm_runs:
        if run_counts[run.folder.name, run.helm_model] > 1:
            models_with_several_rows.add(run.helm_model)
    # Dict from each row to its runs. The key of a row is the model, with the output folder if the
    # model has several rows, and otherwise with None.
    runs_by_row: dict[tuple[str, Path | None], list[_HelmRun]] = {}
    for run in helm_runs:
        row_folder = None
        if run.helm_model in models_with_several_rows:
            row_folder = run.stored.folder
        runs_by_row.setdefault((run.helm_model, row_folder), []).append(run)
    viewed = []
    rows_of_model = Counter[str]()  # the number of rows of each model so far
    for (model, folder), runs in runs_by_row.items():
        rows_of_model[model] += 1
        number = None if folder is None else rows_of_model[model]
        shown_model = _shown_model(runs, row=number)
        viewed += [_viewed(run, row=number, shown_model=shown_model) for run in runs]
    return viewed


def viewed_as_entry(folder: Path, name: str, groups: Sequence[str]) -> ViewedRun:
    """Return the only HELM run of an output folder, named as an entry of a leaderboard.

    Args:
        folder: the output folder.
        name: the name of the leaderboard's entry; the name of the model is appended.
        groups: further groups of HELM's tables to which the run belongs.
    """
    (only_run,) = _runs_of(load_result(folder))
    run = _viewed(only_run, row=None, shown_model=_shown_model([only_run], row=None))
    # HELM names a run `scenario:arguments,model=...`. This name becomes the name of a folder, which
    # must not contain a colon: a comma replaces the colon.
    entry_name = name.replace(":", ",", 1)
    full_name = _run_name(f"{entry_name},model={run.model.rpartition('/')[2]}")
    all_groups = [*run.spec["groups"], *map(safe_name, groups)]
    spec = {**run.spec, "name": full_name, "groups": all_groups}
    return replace(run, name=full_name, spec=spec)


def _runs_of(stored: StoredResult) -> list[_HelmRun]:
    """Return the HELM runs of a result.

    Raises:
        PrerequisiteError: files of HELM were deleted.
        HelmError: run_spec.json does not have the expected form.
    """
    rundir = RunDir(stored.folder)
    runs = []
    for folder in (rundir.root / name for name in require_last_run_state(rundir).runs):
        missing = []
        for name in _REQUIRED_FILES:
            if not (folder / name).is_file():
                missing.append(name)
        if missing:
            raise PrerequisiteError(
                f"{folder}: HELM's files are missing ({', '.join(missing)}), "
                "and HELM's pages are made from these files\n"
                "  run the same evaluation again; "
                f"all answers so far are stored in {rundir.cache_db.name}"
            )
        path = folder / names.RUN_SPEC_FILE
        spec = read_json_file(path, dict[str, Any])
        groups = spec.get("groups")
        parts = (spec.get("adapter_spec"), spec.get("scenario_spec"))
        has_groups = isinstance(groups, list) and all(isinstance(group, str) for group in groups)
        if not has_groups or not all(isinstance(part, dict) for part in parts):
            raise HelmError(f"HELM's output {path} cannot be read: it is not a run spec")
        runs.append(_HelmRun(stored, folder, spec))
    return runs


def _shown_model(runs: Sequence[_HelmRun], *, row: int | None) -> str:
    """Return the name of the model for the pages.

    The name ends with the tasks whose results are not reportable, and with the other tasks whose
    results are partial.

    Args:
        runs: the runs of the model in one row of the tables.
        row: the number of the row, from 1, if the model has several rows: the name then contains
            this number and the name of the output folder. None: the model has one row.
    """
    stored = runs[0].stored
    # With the demo endpoint, the configured model id differs from the model that has answered
    # (`target_model`).
    target_model = stored.result.provenance.target
    model_id = stored.target.get("api_endpoint", {}).get("model_id") or target_model
    text = printable(model_id if model_id == target_model else f"{model_id} ({target_model})")
    if row is not None:
        text += f" ({row}: {printable(stored.folder.absolute().name)})"
    partial = []
    for run in runs:
        if run.stored.result.status != "complete":
            partial.append(run.stored.result.task)
    not_reportable = []
    for run in runs:
        if not run.stored.result.reportable:
            not_reportable.append(run.stored.result.task)
    if not_reportable:
        text += f" [NOT REPORTABLE: {', '.join(not_reportable)}]"
    only_partial = []
    for task in partial:
        if task not in not_reportable:
            only_partial.append(task)
    if only_partial:
        text += f" [partial: {', '.join(only_partial)}]"
    return text


def _viewed(helm_run: _HelmRun, *, row: int | None, shown_model: str) -> ViewedRun:
    """Return the run with the names that the pages use.

    Args:
        helm_run: the run.
        row: the number of the model's row, from 1; None if the model has one row.
        shown_model: the name of the model for the pages.
    """
    ending = ""
    if row is not None:
        ending = f"-{row}"
    name = _run_name(helm_run.folder.name) + ending
    model_without_creator = helm_run.helm_model.rpartition("/")[2]
    model = names.deployment_name(safe_name(model_without_creator) + ending)
    groups = tuple(safe_name(group) for group in helm_run.spec["groups"])
    scenario = dict(helm_run.spec["scenario_spec"])
    spec = {
        **helm_run.spec,
        "name": name,
        "groups": list(groups),
        "scenario_spec": {**scenario, "args": _plain_arguments(scenario.get("args") or {})},
        "adapter_spec": {
            **helm_run.spec["adapter_spec"],
            "model": model,
            "model_deployment": model,
        },
    }
    page = _page_run(helm_run, groups)
    return ViewedRun(
        helm_run.folder, name, model=model, shown_model=shown_model, spec=spec, page=page
    )


def _plain_arguments(arguments: Mapping[str, Any]) -> dict[str, str | float]:
    """Return the arguments of a scenario in a form from which HELM can build file names.

    A path is cut to its last part. Characters that file names may not contain are replaced in
    texts.
    """
    plain: dict[str, str | float] = {}
    for key, value in arguments.items():
        if isinstance(value, (int, float)):
            plain[safe_name(key)] = value
        else:
            last_part = str(value).rstrip("/").rpartition("/")[2]
            plain[safe_name(key)] = safe_name(last_part, _LONGEST_ARGUMENT)
    return plain


def _page_run(helm_run: _HelmRun, groups: tuple[str, ...]) -> PageRun:
    """Return the metrics and the split that the tables show of a run in these groups."""
    result = helm_run.stored.result
    run = read_run(helm_run.folder)
    main_score = result.scores.get(result.main_metric)
    main_split = None if main_score is None else main_score.split
    split = main_split or run.main_split() or "test"  # HELM's usual split, for a run without scores
    # the metrics that measure the quality of the answers, for the split and without perturbation
    scored = []
    for stat in run.stats:
        is_original = stat.mean is not None and stat.name.perturbation is None
        if is_original and stat.name.split == split and is_score(stat.name.name):
            scored.append(stat.name.name)
    # The main metric comes first; `dict.fromkeys` removes repeated names.
    if main_score is not None and main_score.metric in scored:
        scored.insert(0, main_score.metric)
    # Names that are not plain are left out: HELM would not render them safely.
    metrics = tuple(metric for metric in dict.fromkeys(scored) if is_safe_metric_name(metric))
    main_metric = metrics[0] if metrics else NO_SCORE
    return PageRun(
        result.task, groups, metrics, main_metric=main_metric, main_split=safe_name(split)
    )


def _run_name(name: str) -> str:
    """Return the name of a run for HELM's pages.

    If characters are replaced or cut, a hash of the complete name is appended: two names may differ
    only in the lost characters.
    """
    plain = safe_name(name, _LONGEST_RUN_NAME)
    if plain == name:
        return name
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def write_run_folders(runs: Iterable[ViewedRun], suite: Path, *, copies: bool) -> None:
    """Write a folder for each run into the folder of HELM's suite.

    run_spec.json is always written, because it contains the names for the pages. In a run with
    pictures or sounds, scenario_state.json is also written (see `without_media`).

    Args:
        runs: the runs.
        suite: the folder of HELM's suite.
        copies: True to copy the other files of HELM, False to create relative links to these files.
            Links suffice if the pages are temporary, because helm-summarize only reads the files.
    """
    for run in runs:
        folder = suite / run.name
        folder.mkdir(parents=True)
        (folder / names.RUN_SPEC_FILE).write_text(json.dumps(run.spec, indent=2), encoding="utf-8")
        is_multimodal = MULTIMODAL in str(run.spec["adapter_spec"].get("method"))
        for name in (*_REQUIRED_FILES, *_OPTIONAL_FILES):
            original = run.folder / name
            if name == names.RUN_SPEC_FILE or not original.is_file():
                continue
            if name == names.SCENARIO_STATE_FILE and is_multimodal:
                (folder / name).write_text(
                    without_media(original.read_text(encoding="utf-8")), encoding="utf-8"
                )
            elif copies:
                shutil.copyfile(original, folder / name)
            else:
                (folder / name).symlink_to(os.path.relpath(original.resolve(), folder.resolve()))


def without_media(state: str) -> str:
    """Return the text of a scenario_state.json in which file names replace pictures and sounds.

    HELM stores the path of each picture and sound. If such a file is missing, for example because
    the folder was moved, HELM cannot read scenario_state.json.
    """

    def replace_media(record: dict[str, Any]) -> dict[str, Any]:
        if "content_type" not in record or "location" not in record:
            return record
        file_name = Path(record["location"]).name
        return {"content_type": "text/plain", "text": f"[{file_name}]\n"}

    return json.dumps(json.loads(state, object_hook=replace_media))


def write_site(site: Path, runs: Sequence[ViewedRun]) -> Path:
    """Write the front end of the installed HELM into a new folder.

    HELM's landing page is about Stanford's leaderboards. A browser therefore opens the page of the
    run instead, or the tables if there are several runs.

    Returns:
        The folder of HELM's suite, into which helm-summarize writes.

    Raises:
        PrerequisiteError: the installed HELM has no front end.
    """
    index = environment_of(HELM).helm_path("benchmark", "static_build", _INDEX)
    if index is None:
        raise PrerequisiteError(
            "the installed HELM has no web pages (helm/benchmark/static_build)\n"
            "  pip install --force-reinstall --no-deps crfm-helm==0.5.16"
        )
    first_page = "/leaderboard"
    if len(runs) == 1:
        first_page = f"/runs/{quote(runs[0].name, safe='')}"
    # PROJECT_ID chooses one of HELM's landing pages, which a browser does not open here. `lite` is
    # the default of HELM's front end.
    values = {"BENCHMARK_OUTPUT_BASE_URL": DATA_FOLDER, "SUITE": VIEW_SUITE, "PROJECT_ID": "lite"}
    config = [f"window.{name} = {json.dumps(value)};" for name, value in values.items()]
    # a URL without a hash would open the landing page
    config.append(
        'if (["", "#", "#/"].includes(window.location.hash)) window.location.hash = '
        f"{json.dumps(first_page)};"
    )
    shutil.copytree(index.parent, site, copy_function=shutil.copyfile)
    (site / _INDEX).write_text(
        without_external_hosts(index.read_text(encoding="utf-8")), encoding="utf-8"
    )
    (site / CONFIG_SCRIPT).write_text("\n".join(config) + "\n", encoding="utf-8")
    suite = suite_folder(site)
    suite.mkdir(parents=True)
    return suite


def suite_folder(site: Path) -> Path:
    """Return the folder of HELM's suite in the folder of the pages."""
    return site / DATA_FOLDER / "runs" / VIEW_SUITE


def without_external_hosts(html: str) -> str:
    """Return the page with an empty icon, and with a policy that forbids external hosts.

    The page also forbids referrers.
    """
    icon = '<link rel="icon" href="data:," />'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}" />'
    head = f'<head>\n    {policy}\n    <meta name="referrer" content="no-referrer" />'
    return _ICON.sub(icon, html).replace("<head>", head, 1)


def make_links_relative(site: Path) -> None:
    """Remove the path of the folder from the files that helm-summarize has written.

    Links in the tables contain this path; without the path, the links are relative.
    """
    path_text = _inside_json_string(f"{site}/")
    suite = suite_folder(site)
    for file in (
        *suite.glob("*.json"),
        *suite.glob("groups/*.json"),
        *suite.glob("groups/json/*.json"),
    ):
        text = file.read_text(encoding="utf-8")
        if path_text in text:
            file.write_text(text.replace(path_text, ""), encoding="utf-8")


def rename_files_with_colons(suite: Path) -> None:
    """Replace colons by underscores in the names of the tables' files, and in links to these files.

    helm-summarize names files after the arguments of a scenario, such as `mode:easy`.
    """
    files_by_name = {}
    for file in (*suite.glob("groups/latex/*:*"), *suite.glob("groups/json/*:*")):
        files_by_name[file.name] = file
    for file in files_by_name.values():
        file.rename(file.with_name(file.name.replace(":", "_")))
    if not files_by_name:
        return
    for table in suite.glob("groups/*.json"):
        text = table.read_text(encoding="utf-8")
        for name in files_by_name:
            new_name = name.replace(":", "_")
            text = text.replace(_inside_json_string(name), _inside_json_string(new_name))
        table.write_text(text, encoding="utf-8")


def _inside_json_string(text: str) -> str:
    """Return a text as it is written inside a JSON string, without the quotes."""
    return json.dumps(text)[1:-1]


def summarize_command(work: RunDir, suite: str, schema: Path, output: Path) -> list[str]:
    """Return the command line of helm-summarize.

    Args:
        work: the folder for the configuration files of helm-summarize.
        suite: the name of HELM's suite.
        schema: the file with the metrics and groups of the tables. Because the file states the
            groups, helm-summarize does not import the scenario classes that runs name.
        output: the folder of HELM's output, which contains `runs/SUITE`.
    """
    # HELM's documentation names the option `--schema`, but HELM 0.5.16 rejects it as ambiguous.
    return [
        *helm_program("helm-summarize"),
        "--schema-path",
        str(schema),
        "--suite",
        suite,
        "--output-path",
        str(output),
        "--local-path",
        str(work.model_configs),
        "--log-config",
        str(work.model_configs / names.LOGGING_FILE),
    ]


def make_tables(
    work: RunDir,
    lock: Lock,
    *,
    models: Mapping[str, str],
    argv: Sequence[str],
    env: Mapping[str, str],
    screen: TextIO,
    keeps_log: bool = True,
) -> None:
    """Run helm-summarize for runs whose folders were written.

    Args:
        work: the folder for the files of helm-summarize.
        lock: the lock of this folder.
        models: dict from HELM's name of each model to the model's name in the tables.
        argv: the command line of helm-summarize.
        env: the environment variables.
        screen: shows messages to the user.
        keeps_log: True if the folder `work` still exists after the command, so that an error can
            name the path of the log.

    Raises:
        HelmError: helm-summarize failed; the message contains the last lines of the log.
    """
    write_atomic(work.model_configs / names.MODEL_METADATA_FILE, to_yaml(page_models(models)))
    write_atomic(work.model_configs / names.LOGGING_FILE, quiet_logging())
    redactor = Redactor.from_environment(env)
    context = RunContext(work, lock, env=env, redactor=redactor, log=_LOG, screen=screen)
    run_helm_summarize(context, argv, keeps_log=keeps_log)
