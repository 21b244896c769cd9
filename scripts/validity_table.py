#!/usr/bin/env python3
"""Writes docs/validity.md: the scores of known answers, from run_eval and from bare helm-run.

Every benchmark is asked whose data are on this machine. The data are read from HELM's own places:
--scenarios is a folder with one folder for each scenario, as helm-run leaves it under
<output-path>/scenarios; data sets of the Hugging Face Hub are read from HF_HOME, best with
HF_HUB_OFFLINE=1; texts need NLTK_DATA. Both programs get the environment variables of this script,
without keys and proxies.

Fails (exit 1) if a score differs from that of bare HELM in any digit. It also fails if a cell of
the table is not what a reader expects, and scripts/validity/explanations.yml does not explain it.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.validity.bare_helm import BareHelm, environment  # noqa: E402
from scripts.validity.our_runs import Result, place, result_in, run_ours, why_not  # noqa: E402
from scripts.validity.questions import (  # noqa: E402
    EMPTY,
    GOLD,
    KINDS,
    REFUSAL,
    KindEndpoint,
    KnownQuestions,
    Question,
    answer_of,
    kinds_of,
    questions_in,
)
from scripts.validity.validity_page import Explanation, Row, metrics_of, page, parity, unexplained  # noqa: E402

from eval_factory.tasks.framework import Task, load_framework  # noqa: E402
from eval_factory.tasks.run_entry import task_of_upstream  # noqa: E402
from eval_factory.tasks.upstreams import HELM, UPSTREAMS, Upstream  # noqa: E402

PAGE = ROOT / "docs" / "validity.md"
EXPLANATIONS = Path(__file__).parent / "validity" / "explanations.yml"
THREADS = 8  # the number of requests at the same time in a run_eval
JOBS = 2  # the number of run_eval at the same time
CONSTANT_KINDS = (EMPTY, REFUSAL)
"""The kinds of answers that do not depend on the question, and need not know it."""


@dataclass(frozen=True)
class Table:
    """The runs of the table, and their folders."""

    folder: Path  # the folder of all runs
    scenarios: Path | None  # the folder with the data of scenarios; None if there is none
    tasks: Mapping[str, Task]  # task's name -> task
    runs: Mapping[str, Sequence[str]]  # task's name -> the kinds of answers that are given
    limit: int | None  # the maximum number of instances of a task; None: all
    env: Mapping[str, str]
    upstream: Upstream
    reuse: bool = False  # True if the folder holds the runs already

    def rows(self) -> list[Row]:
        """Make all runs, by bare helm-run and by run_eval, and return the rows of the table.

        One endpoint gives the same answers to both programs.
        """
        known_questions = KnownQuestions(lambda: bare.written())

        def answer(task: str, kind: str, prompt: str) -> str:
            if kind in CONSTANT_KINDS:
                question = Question(prompt, gold="", labels=())
            else:
                question = known_questions.of(prompt)
            return answer_of(kind, self.tasks[task], question)

        with KindEndpoint(answer) as endpoint:
            url = endpoint.base_url
            upstream = self.upstream
            bare = BareHelm(
                self.folder / "bare",
                url,
                self.tasks,
                self.runs,
                limit=self.limit,
                upstream=upstream,
            )
            if not self.reuse:
                self._run_bare(bare)
            pairs: list[tuple[str, str]] = []
            for task, kinds in self.runs.items():
                pairs += [(task, kind) for kind in kinds]
            with timed("run_eval"), ThreadPoolExecutor(JOBS) as pool:
                results = pool.map(
                    lambda pair: self._ours(pair[0], pair[1], endpoint.base_url), pairs
                )
                our_results = dict(zip(pairs, results, strict=True))
        rows: list[Row] = []
        for task in self.runs:
            rows += self._rows(task, bare, our_results)
        return rows

    def _run_bare(self, bare: BareHelm) -> None:
        """Make all runs by bare helm-run."""
        for task in self.tasks.values():
            place(self.scenarios, task, bare.scenarios)
        with timed("bare helm-run"):
            bare.run(self.env)

    def _ours(self, name: str, kind: str, url: str) -> Result:
        """Return the result of run_eval for a task and a kind of answers."""
        folder = self.folder / "ours" / f"{name}.{kind}"
        task = self.tasks[name]
        if self.reuse:
            return result_in(folder)
        place(self.scenarios, task, folder / "helm" / "scenarios")
        return run_ours(
            folder, task, kind, url=url, limit=self.limit, threads=THREADS, env=self.env
        )

    def _rows(
        self, task: str, bare: BareHelm, our_results: Mapping[tuple[str, str], Result]
    ) -> Iterator[Row]:
        """Yield a row for each metric of a task that the table shows."""
        results = {kind: our_results[task, kind] for kind in self.runs[task]}
        parities = {
            kind: parity(result.scores, bare.stats(task, kind), result.main_metric)
            for kind, result in results.items()
        }
        questions = questions_in(bare.instances(task))
        for metric in metrics_of(results.get(GOLD, results[EMPTY])):
            yield Row(self.tasks[task], metric, questions, results, parities)
            parities = {}  # Only the first row of a task shows the parities of all its metrics.


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Print how many seconds the code within this context takes."""
    started = time.monotonic()
    yield
    click.echo(f"{name}: {time.monotonic() - started:.0f} s", err=True)


def explanations() -> list[Explanation]:
    """Return the explanations in explanations.yml."""
    entries = yaml.safe_load(EXPLANATIONS.read_text("utf-8")) or []
    return [
        Explanation(
            task=entry.get("task"),
            metric=entry.get("metric"),
            cells=entry.get("cells"),
            because=entry.get("because"),
            upstream=entry.get("upstream"),
        )
        for entry in entries
    ]


def versions(upstream: Upstream) -> dict[str, str]:
    return {
        "eval-factory": metadata.version("eval-factory-helm"),
        upstream.package: upstream.version,
    }


@click.command(help=__doc__)
@click.argument("tasks", nargs=-1)
@click.option(
    "--scenarios",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data's folder.",
)
@click.option("--limit", type=int, help="Instances of each task; all where it is not given.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Of answers; all if none is given.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="A new folder for all runs; else they are deleted.",
)
@click.option(
    "--reuse",
    is_flag=True,
    help="Make the page anew of the runs that --keep left, and run nothing.",
)
@click.option(
    "--upstream",
    "name",
    type=click.Choice(list(UPSTREAMS)),
    default=HELM.name,
    help="Which HELM is run.",
)
@click.option(
    "--page",
    "target",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Where the page is written.",
)
def main(  # noqa: PLR0913 - one for each option
    tasks: tuple[str, ...],
    scenarios: Path | None,
    limit: int | None,
    kinds: tuple[str, ...],
    keep: Path | None,
    reuse: bool,
    name: str,
    target: Path,
) -> None:
    env = environment()
    upstream = UPSTREAMS[name]
    not_run: dict[str, str] = {}  # task's name -> the reason why the task cannot be run
    asked_tasks: dict[str, Task] = {}
    for task in load_framework().evaluations:
        if tasks and task.name not in tasks:
            continue
        task_in_upstream = task_of_upstream(upstream, task, [])
        if task_in_upstream is None:  # The upstream does not have this task.
            continue
        reason = why_not(task_in_upstream, scenarios, env)
        if reason:
            not_run[task_in_upstream.name] = reason
        else:
            asked_tasks[task_in_upstream.name] = task_in_upstream
    runs = {name: kinds_of(task, kinds or KINDS) for name, task in asked_tasks.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)).absolute()
        rows = Table(folder, scenarios, asked_tasks, runs, limit, env, upstream, reuse).rows()
    known_explanations = explanations()
    text = page(rows, not_run, known_explanations, versions(upstream))
    target.write_text(text, encoding="utf-8")
    problems = [
        *itertools.chain.from_iterable(row.problems() for row in rows),
        *unexplained(rows, known_explanations),
    ]
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
