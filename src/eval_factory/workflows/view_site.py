"""HELM's web pages as a folder of files: the front end, its configuration, and the runs as the
pages look for them. HELM's page asks crfm.stanford.edu for its icon and for a list of leaderboards
each time that it is opened. These ask nobody: a Content-Security-Policy lets a browser contact
their server alone.
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
from eval_factory.helm.output import read_record, read_run
from eval_factory.helm.page_schema import PageRun, is_plain, page_models, plain_name
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import summarize
from eval_factory.workflows.recollect import last_state

_NEEDED = (
    names.RUN_SPEC_FILE,
    names.STATS_FILE,
    names.PER_INSTANCE_STATS_FILE,
    names.SCENARIO_STATE_FILE,
)
OTHER = (names.SCENARIO_FILE,)
# what the name of every method of HELM's holds that shows pictures or plays sounds
MULTIMODAL = "_multimodal"
NO_SCORE = "no_score"  # a metric that no run has: HELM wants a name of each run's main metric
SUITE = "view"
DATA_FOLDER = "benchmark_output"
_INDEX = "index.html"
CONFIG = "config.js"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'"
)
_ICON = re.compile(r'<link rel="icon"[^>]*>')


_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # messages for the user are written to the screen


@dataclass(frozen=True)
class ViewedRun:
    """One of HELM's runs, and what the pages call it."""

    folder: Path  # HELM's
    name: str
    model: str  # HELM's name of the model; each has a row in the tables
    shown_model: str
    spec: Mapping[str, Any]  # run_spec.json, with these names
    page: PageRun


@dataclass(frozen=True)
class _Found:
    stored: StoredResult
    folder: Path
    spec: Mapping[str, Any]

    @property
    def helm_model(self) -> str:
        return str(
            self.spec["adapter_spec"].get("model")
            or self.spec["adapter_spec"].get("model_deployment")
        )


def viewed_runs(folders: Sequence[Path]) -> list[ViewedRun]:
    """Return every run of the results in output folders. If a model has the same run in two
    folders, it has a row for each of its folders. Raises PrerequisiteError: a folder holds no
    result, or HELM's files are not there any more; HelmError: a file of HELM's has another form.
    """
    runs_of_results: list[_Found] = []
    for result_folder in folders:
        runs_of_results += _runs_of(load_result(result_folder))
    same = Counter((run.folder.name, run.helm_model) for run in runs_of_results)
    apart = set()
    for run in runs_of_results:
        if same[run.folder.name, run.helm_model] > 1:
            apart.add(run.helm_model)
    rows: dict[tuple[str, Path | None], list[_Found]] = {}
    for run in runs_of_results:
        rows.setdefault(
            (run.helm_model, run.stored.folder if run.helm_model in apart else None), []
        ).append(run)
    viewed = []
    numbers = Counter[str]()
    for (model, folder), runs in rows.items():
        numbers[model] += 1
        number = None if folder is None else numbers[model]
        viewed += [_viewed(run, number, _shown(runs, number)) for run in runs]
    return viewed


def viewed_as(folder: Path, name: str, groups: Sequence[str]) -> ViewedRun:
    """Return the one run of an output folder, as the entry `name` of a leaderboard, behind which
    the model's name is put. `groups`: of HELM's tables, that the run belongs to beside its own.
    """
    (only_run,) = _runs_of(load_result(folder))
    run = _viewed(only_run, None, _shown([only_run], None))
    whole = _run_name(f"{name.replace(':', ',', 1)},model={run.model.rpartition('/')[2]}")
    spec = {**run.spec, "name": whole, "groups": [*run.spec["groups"], *map(plain_name, groups)]}
    return replace(run, name=whole, spec=spec)


def _runs_of(stored: StoredResult) -> list[_Found]:
    rundir = RunDir(stored.folder)
    runs = []
    for folder in (rundir.root / name for name in last_state(rundir).runs):
        missing = []
        for name in _NEEDED:
            if not (folder / name).is_file():
                missing.append(name)
        if missing:
            raise PrerequisiteError(
                f"{folder}: HELM's files are not there ({', '.join(missing)}), "
                "and its pages are made of them\n"
                "  run the same evaluation again; "
                f"what was answered is kept in {rundir.cache_db.name}"
            )
        path = folder / names.RUN_SPEC_FILE
        spec = read_record(path, dict[str, Any])
        groups = spec.get("groups")
        parts = (spec.get("adapter_spec"), spec.get("scenario_spec"))
        is_one = isinstance(groups, list) and all(isinstance(group, str) for group in groups)
        if not is_one or not all(isinstance(part, dict) for part in parts):
            raise HelmError(f"HELM's output {path} cannot be read: it is not a run spec")
        runs.append(_Found(stored, folder, spec))
    return runs


def _shown(runs: Sequence[_Found], number: int | None) -> str:
    """Return a model as the pages call it: with its folder if it has several, and which of its
    results are not whole.
    """
    stored = runs[0].stored
    # the demo endpoint has the model ids of whoever tries it
    target_model = stored.result.provenance.target
    named = stored.target.get("api_endpoint", {}).get("model_id") or target_model
    text = printable(named if named == target_model else f"{named} ({target_model})")
    if number is not None:
        text += f" ({number}: {printable(stored.folder.absolute().name)})"
    partial = []
    for run in runs:
        if run.stored.result.status != "complete":
            partial.append(run.stored.result.task)
    refused = []
    for run in runs:
        if not run.stored.result.reportable:
            refused.append(run.stored.result.task)
    text += f" [NOT REPORTABLE: {', '.join(refused)}]" if refused else ""
    only_partial = []
    for task in partial:
        if task not in refused:
            only_partial.append(task)
    return text + (f" [partial: {', '.join(only_partial)}]" if only_partial else "")


def _viewed(run_of_result: _Found, number: int | None, shown_model: str) -> ViewedRun:
    ending = ""
    if number is not None:
        ending = f"-{number}"
    name = _run_name(run_of_result.folder.name) + ending
    model = names.deployment_name(plain_name(run_of_result.helm_model.rpartition("/")[2]) + ending)
    groups = tuple(plain_name(group) for group in run_of_result.spec["groups"])
    scenario = dict(run_of_result.spec["scenario_spec"])
    # a path among the scenario's arguments is cut to its last part, a text to what a file can be
    # named by: HELM makes names of files of all of them together
    arguments = {}
    for key, value in (scenario.get("args") or {}).items():
        arguments[plain_name(key)] = (
            value
            if isinstance(value, (int, float))
            else plain_name(str(value).rstrip("/").rpartition("/")[2], 40)
        )
    spec = {
        **run_of_result.spec,
        "name": name,
        "groups": list(groups),
        "scenario_spec": {**scenario, "args": arguments},
        "adapter_spec": {
            **run_of_result.spec["adapter_spec"],
            "model": model,
            "model_deployment": model,
        },
    }
    result = run_of_result.stored.result
    run = read_run(run_of_result.folder)
    score = result.scores.get(result.main_metric)
    split = (score.split if score else None) or run.main_split() or "test"
    stats = (
        stat.name for stat in run.stats if stat.mean is not None and stat.name.perturbation is None
    )
    scores = dict.fromkeys(
        stat.name for stat in stats if stat.split == split and is_score(stat.name)
    )
    first = [score.metric] if score and score.metric in scores else []
    metrics = tuple(metric for metric in dict.fromkeys([*first, *scores]) if is_plain(metric))
    page = PageRun(
        result.task, groups, metrics, metrics[0] if metrics else NO_SCORE, plain_name(split)
    )
    return ViewedRun(run_of_result.folder, name, model, shown_model, spec, page)


def _run_name(name: str) -> str:
    """Return the name of a run for HELM's pages. A name that is cut keeps a hash of the whole: what
    tells two runs apart may stand at the end.
    """
    plain = plain_name(name, 150)
    if plain == name:
        return name
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def lay_out(runs: Iterable[ViewedRun], suite: Path, *, copies: bool) -> None:
    """Write each run's folder into a suite's. `copies`: copy HELM's files; else a relative link
    leads to each, and helm-summarize only reads them.
    """
    for run in runs:
        folder = suite / run.name
        folder.mkdir(parents=True)
        (folder / names.RUN_SPEC_FILE).write_text(json.dumps(run.spec, indent=2), encoding="utf-8")
        for name in (*_NEEDED, *OTHER):
            original = run.folder / name
            if name == names.RUN_SPEC_FILE or not original.is_file():
                continue
            if name == names.SCENARIO_STATE_FILE and MULTIMODAL in str(
                run.spec["adapter_spec"].get("method")
            ):
                (folder / name).write_text(
                    without_media(original.read_text(encoding="utf-8")), encoding="utf-8"
                )
            elif copies:
                shutil.copyfile(original, folder / name)
            else:
                (folder / name).symlink_to(os.path.relpath(original.resolve(), folder.resolve()))


def without_media(state: str) -> str:
    """Return a scenario_state.json with the name of each picture or sound in its place.

    HELM stores where the file lay in the run, and reads no state whose files are not there: the
    folder may have moved.
    """

    def named(record: dict[str, Any]) -> dict[str, Any]:
        if "content_type" not in record or "location" not in record:
            return record
        return {"content_type": "text/plain", "text": f"[{Path(record['location']).name}]\n"}

    return json.dumps(json.loads(state, object_hook=named))


def write_site(site: Path, runs: Sequence[ViewedRun]) -> Path:
    """Write the front end of the installed HELM into a folder that is not there yet.

    HELM's landing page is about Stanford's leaderboards: the run is shown first, or the tables
    if there are several. Returns the folder of the suite, for helm-summarize to write to. Raises
    PrerequisiteError: there is no front end.
    """
    index = environment_of(HELM).helm_path("benchmark", "static_build", _INDEX)
    if index is None:
        raise PrerequisiteError(
            "the installed HELM has no web pages (helm/benchmark/static_build)\n"
            "  pip install --force-reinstall --no-deps crfm-helm==0.5.16"
        )
    first_page = f"/runs/{quote(runs[0].name, safe='')}" if len(runs) == 1 else "/leaderboard"
    values = {"BENCHMARK_OUTPUT_BASE_URL": DATA_FOLDER, "SUITE": SUITE, "PROJECT_ID": "lite"}
    config = [f"window.{name} = {json.dumps(value)};" for name, value in values.items()]
    config.append(
        'if (["", "#", "#/"].includes(window.location.hash)) window.location.hash = '
        f"{json.dumps(first_page)};"
    )
    shutil.copytree(index.parent, site, copy_function=shutil.copyfile)
    (site / _INDEX).write_text(without_others(index.read_text(encoding="utf-8")), encoding="utf-8")
    (site / CONFIG).write_text("\n".join(config) + "\n", encoding="utf-8")
    suite = suite_folder(site)
    suite.mkdir(parents=True)
    return suite


def suite_folder(site: Path) -> Path:
    return site / DATA_FOLDER / "runs" / SUITE


def without_others(html: str) -> str:
    """Return the page with a policy that forbids other hosts, and without its icon, which is on
    one.
    """
    icon = '<link rel="icon" href="data:," />'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    head = f'<head>\n    {policy}\n    <meta name="referrer" content="no-referrer" />'
    return _ICON.sub(icon, html).replace("<head>", head, 1)


def forget_place(site: Path) -> None:
    """Take the folder's own path out of the files that helm-summarize wrote: links in tables
    lead to it.
    """
    place = json.dumps(f"{site}/")[1:-1]
    suite = suite_folder(site)
    for file in (
        *suite.glob("*.json"),
        *suite.glob("groups/*.json"),
        *suite.glob("groups/json/*.json"),
    ):
        text = file.read_text(encoding="utf-8")
        if place in text:
            file.write_text(text.replace(place, ""), encoding="utf-8")


def without_colons(suite: Path) -> None:
    """Rename what helm-summarize named by a scenario's arguments (`mode:easy`), and what leads
    to it.
    """
    files_by_name = {}
    for file in (*suite.glob("groups/latex/*:*"), *suite.glob("groups/json/*:*")):
        files_by_name[file.name] = file
    for file in files_by_name.values():
        file.rename(file.with_name(file.name.replace(":", "_")))
    for table in suite.glob("groups/*.json") if files_by_name else ():
        text = table.read_text(encoding="utf-8")
        for name in files_by_name:
            text = text.replace(json.dumps(name)[1:-1], json.dumps(name.replace(":", "_"))[1:-1])
        table.write_text(text, encoding="utf-8")


def summarize_command(work: RunDir, suite: str, schema: Path, output: Path) -> list[str]:
    """Return the command of helm-summarize, which loads no class that a run names: the schema
    leaves nothing to look up.

    HELM's page says `--schema`, which 0.5.16 refuses as ambiguous.
    """
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
        str(work.model_configs / names.LOGGING),
    ]


def make_tables(
    work: RunDir,
    lock: Lock,
    models: Mapping[str, str],
    argv: Sequence[str],
    env: Mapping[str, str],
    screen: TextIO,
    *,
    keeps_log: bool = True,
) -> None:
    """Run helm-summarize over runs whose files are in place. `models`: the name that the tables
    show, by HELM's name. Raises HelmError: it failed; with its last lines.
    """
    write_atomic(work.model_configs / names.MODEL_METADATA, to_yaml(page_models(models)))
    write_atomic(work.model_configs / names.LOGGING, quiet_logging())
    redactor = Redactor.from_environment(env)
    summarize(RunContext(work, lock, env, redactor, _LOG, screen), argv, keeps_log=keeps_log)
