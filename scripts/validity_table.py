#!/usr/bin/env python3
"""Writes docs/validity.md: known answers to every benchmark whose data are here, through run_eval
and bare helm-run.

The data are looked for where HELM keeps them: --scenarios is a folder with one folder for each
scenario, as helm-run leaves it under <output-path>/scenarios; data sets of the Hugging Face Hub are
read from HF_HOME, best with HF_HUB_OFFLINE=1; texts need NLTK_DATA. The environment is given to
both programs, without keys and proxies.

Fails (exit 1) where a score is not bare HELM's to the last digit, or a cell of the table is neither
what a reader expects nor explained in scripts/validity/explanations.yml.
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
THREADS = 8
JOBS = 2
"""The number of run_eval at a time."""
UNTAUGHT = (EMPTY, REFUSAL)
"""Kinds of answers that do not depend on the question."""


@dataclass(frozen=True)
class Table:
    """The runs that are to be made, and their folders."""

    folder: Path
    scenarios: Path | None
    tasks: Mapping[str, Task]
    runs: Mapping[str, Sequence[str]]
    """The kinds of answers of each task."""
    limit: int | None
    env: Mapping[str, str]
    upstream: Upstream
    reuse: bool = False
    """True if the folder holds the runs already."""

    def rows(self) -> list[Row]:
        """Every run, bare and ours, on the same answers."""
        known = KnownQuestions(lambda: bare.written())

        def answer(task: str, kind: str, prompt: str) -> str:
            question = Question(prompt, "", ()) if kind in UNTAUGHT else known.of(prompt)
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
                found = dict(zip(pairs, results, strict=True))
        rows: list[Row] = []
        for task in self.runs:
            rows += self._rows(task, bare, found)
        return rows

    def _run_bare(self, bare: BareHelm) -> None:
        for task in self.tasks.values():
            place(self.scenarios, task, bare.scenarios)
        with timed("bare helm-run"):
            bare.run(self.env)

    def _ours(self, name: str, kind: str, url: str) -> Result:
        folder = self.folder / "ours" / f"{name}.{kind}"
        task = self.tasks[name]
        if self.reuse:
            return result_in(folder)
        place(self.scenarios, task, folder / "helm" / "scenarios")
        return run_ours(
            folder, task, kind, url=url, limit=self.limit, threads=THREADS, env=self.env
        )

    def _rows(
        self, task: str, bare: BareHelm, found: Mapping[tuple[str, str], Result]
    ) -> Iterator[Row]:
        results = {kind: found[task, kind] for kind in self.runs[task]}
        parities = {
            kind: parity(result.scores, bare.stats(task, kind), result.main_metric)
            for kind, result in results.items()
        }
        questions = questions_in(bare.instances(task))
        for metric in metrics_of(results.get(GOLD, results[EMPTY])):
            yield Row(self.tasks[task], metric, questions, results, parities)
            parities = {}


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    click.echo(f"{what}: {time.monotonic() - began:.0f} s", err=True)


def explanations() -> list[Explanation]:
    """Return the explanations in explanations.yml."""
    written = yaml.safe_load(EXPLANATIONS.read_text("utf-8")) or []
    keys = ("task", "metric", "cells", "because", "upstream")
    return [Explanation(*(told.get(key) for key in keys)) for told in written]


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
    wanted = [task for task in load_framework().evaluations if not tasks or task.name in tasks]
    chosen = {
        task.name: task
        for one in wanted
        if (task := task_of_upstream(upstream, one, [])) is not None
    }
    not_run = {name: why for name, task in chosen.items() if (why := why_not(task, scenarios, env))}
    there = {name: task for name, task in chosen.items() if name not in not_run}
    runs = {name: kinds_of(task, kinds or KINDS) for name, task in there.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)).absolute()
        rows = Table(folder, scenarios, there, runs, limit, env, upstream, reuse).rows()
    told = explanations()
    target.write_text(page(rows, not_run, told, versions(upstream)), encoding="utf-8")
    problems = [
        *itertools.chain.from_iterable(row.problems() for row in rows),
        *unexplained(rows, told),
    ]
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
