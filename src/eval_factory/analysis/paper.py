"""Texts for papers and auditors about one run, a suite, or several runs: `report --for`.

Of several runs, what holds for all is written once; what holds for some, once with their names.
Tables have an interval with each score, and the ranks that a model may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from eval_factory.analysis import suite_messages as messages
from eval_factory.analysis.suite_files import suite_page
from eval_factory.analysis.suite_results import FinishedCell, SuiteResults, suite_results
from eval_factory.core import formats
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.tables import Table, code, latex, markdown
from eval_factory.report import papers
from eval_factory.report.page.document import pack_page
from eval_factory.report.reader import (
    StoredResult,
    is_suite_folder,
    load_result,
    one_run,
    run_folders,
)

_TEXTS_OF_ONE_RUN = {
    "tripod-llm": papers.tripod_llm,
    "model-card": papers.model_card,
    "methods": papers.methods_text,
}
NOTE = (
    "Scores with their 95 % intervals. Rank: "
    "the best and the worst rank that the paired comparisons leave open; all ranks of one "
    "benchmark hold together with 95 % confidence."
)
_PAIRS = (
    "A difference is b - a, on the instances for which both models have a value; "
    "p is corrected for the number of pairs (Holm)."
)


def written_for(purpose: str, folders: Sequence[Path], *, as_page: bool = False) -> str:
    """Return the text for a purpose, which ends with a line break.

    Args:
        purpose: As `report --for` names it.
        folders: Of runs, suites, or targets of suites.
        as_page: An evidence pack becomes a page.

    Raises:
        ConfigError: it is about one run, and there are several.
        PrerequisiteError: a folder holds no result.
    """
    runs = run_folders(folders)
    if purpose == "model-card" and len(runs) > 1:
        if len(folders) == 1:
            one_run(folders[0], f"report --for {purpose}")
        raise ConfigError(f"report: --for {purpose} is about one run: give one output folder")
    if purpose in _TEXTS_OF_ONE_RUN and len(runs) == 1:
        stored = load_result(runs[0])
        return _TEXTS_OF_ONE_RUN[purpose](stored.result, stored.config, stored.target)
    if purpose in papers.PACKS:
        pack = _pack(purpose, folders, runs)
        if as_page:
            return pack_page(pack)
        return papers.pack_markdown(pack)
    results = suite_results(_cells(folders, runs))
    if purpose == "latex":
        tables = [latex(table, title, note) for title, table, note in _tables(results)]
        return "\n\n".join(tables) + "\n"
    if purpose == "markdown":
        parts = []
        for title, table, note in _tables(results):
            parts.append("\n".join([f"## {title}", "", *markdown(table), "", note]))
        return "\n\n".join(parts) + "\n"
    if purpose == "methods":
        return papers.methods_of(_Several(results, papers.Citations(), papers.run_beside_table))
    cite = papers.Citations("(ref. {})")
    several = _Several(results, cite, papers.run_in_full, in_table=False)
    return papers.tripod_of(several, several.named(code))


def page_of_suite(folder: Path, beside: Path) -> str:
    """Return the page of a suite's table, to be written into the folder `beside`: its links lead
    from there. Raises PrerequisiteError: a result cannot be read.
    """
    results = suite_results(_cells([folder], run_folders([folder])))
    return suite_page(results, beside)


def _pack(name: str, folders: Sequence[Path], runs: Sequence[Path]) -> papers.Pack:
    cite = papers.citations()
    if len(runs) == 1 and not is_suite_folder(folders[0]):
        run = papers.run_of_pack(load_result(runs[0]), cite)
        record = run.result.provenance
        return papers.pack_of(
            name, [f"Of run {record.run_identity}: {run.result.task}, {record.target}."], cite, run
        )
    several = _Several(suite_results(_cells(folders, runs)), cite)
    return papers.pack_of(name, [several.named()], cite, several)


def evidence_of_panel(
    name: str, render_panel: papers.SentenceWriter, runs: Sequence[Path]
) -> papers.Pack:
    """Return a pack (PACKS) of a panel, whose ledger says `render_panel`, and these of its runs.

    Raises PrerequisiteError: a folder holds no result.
    """
    cite = papers.citations()
    several = None
    if runs:
        several = _Several(suite_results(_cells([], runs)), cite)
    return papers.pack_of(
        name, render_panel(papers.pack_texts()["panel"]["of"]), cite, several, render_panel
    )


def _cells(folders: Sequence[Path], runs: Sequence[Path]) -> Iterator[FinishedCell]:
    """Yield what a suite's table names, also if there is no result; of runs, each with the
    names that tell it.
    """
    if len(folders) == 1 and is_suite_folder(folders[0]):
        suite = SuiteDir(folders[0])
        if suite.results_yaml.exists():
            yield from _cells_of_table(suite, runs)
            return
    stored = list(map(load_result, runs))
    names = [(result.result.provenance.target, result.result.task) for result in stored]
    for run, result, (target, task) in zip(runs, stored, names, strict=True):
        name = target
        if names.count((target, task)) > 1:
            name = f"{target} ({run})"
        yield FinishedCell(one_line(name), one_line(task), RunStatus(result.result.status), run)


def _cells_of_table(suite: SuiteDir, runs: Sequence[Path]) -> Iterator[FinishedCell]:
    by_name = {(run.parent.name, run.name): run for run in runs}
    for cell in parse_own(suite.results_yaml.read_text(encoding="utf-8"))["cells"]:
        target = str(cell["target"])
        evaluation = str(cell["evaluation"])
        folder = by_name.get((target, evaluation))
        status = cell["status"]
        if folder is not None:
            status = load_result(folder).result.status
        yield FinishedCell(
            target, evaluation, RunStatus(status), folder or suite.root, cell.get("reason")
        )


@dataclass(frozen=True)
class _Several:
    """Runs that are described together."""

    results: SuiteResults
    cite: papers.Citations
    describe: Callable[[StoredResult, papers.Citations], papers.DescribedRun] = papers.run_of_pack
    in_table: bool = True
    """The runs' times and hashes stand in a table beside the text."""

    def named(self, show: Callable[[str], str] = str) -> str:
        """Return a sentence about what was run."""
        models = self.results.targets
        benchmarks = self.results.evaluations
        counts = f"{counted(len(models), 'model')} on {counted(len(benchmarks), 'benchmark')}"
        return f"Of {counts}: {', '.join(map(show, models))} on {', '.join(map(show, benchmarks))}."

    @cached_property
    def runs(self) -> dict[tuple[str, str], papers.DescribedRun]:
        """The runs that have a result, by target and evaluation."""
        runs = {}
        for cell in self.results.cells:
            if cell.task is not None:
                stored = load_result(cell.folder)
                runs[cell.target, cell.evaluation] = self.describe(stored, self.cite)
        return runs

    def runs_table(self) -> Table:
        rows = []
        for names, run in self.runs.items():
            rows.append([*names, *papers.record_row(run.result)])
        return Table(papers.RECORD_COLUMNS, rows)

    def render_sentences(self, template: str) -> list[str]:
        """The sentences of a template, each once: first those of all runs, then others behind
        the names of theirs.
        """
        runs_by_sentence: dict[str, list[tuple[str, str]]] = {}
        for name, run in self.runs.items():
            for sentence in dict.fromkeys(run.render_sentences(template)):
                runs_by_sentence.setdefault(sentence, []).append(name)
        of_all: list[str] = []
        by_names: dict[str, list[str]] = {}
        for sentence, runs in runs_by_sentence.items():
            names = self._named(runs)
            if names:
                by_names.setdefault(names, []).append(sentence)
            else:
                of_all.append(sentence)
        paragraphs = [f"{names}: {' '.join(sentences)}" for names, sentences in by_names.items()]
        return of_all + paragraphs

    def render_by_run(self, template: str) -> list[str]:
        """The sentences of each run behind its name."""
        paragraphs = []
        for (target, evaluation), run in self.runs.items():
            text = " ".join(run.render_sentences(template))
            if text:
                paragraphs.append(f"Of {target} on {evaluation}: {text}")
        return paragraphs

    def _named(self, runs: Sequence[tuple[str, str]]) -> str:
        """The names of runs: none of all, of complete benchmarks or models those, else each."""
        if len(runs) == len(self.runs):
            return ""
        for axis, word in ((1, "On"), (0, "Of")):
            names = list(dict.fromkeys(run[axis] for run in runs))
            complete = [run for run in self.runs if run[axis] in names]
            if len(runs) == len(complete):
                return f"{word} {papers.enumerated(names)}"
        return (
            f"Of {papers.enumerated([f'{target} on {evaluation}' for target, evaluation in runs])}"
        )

    def comparison_sentences(self, item: str) -> list[str]:
        """Return what a comparison of the models adds; of one model only what is missing."""
        if item not in papers.paper_texts()["comparison"]:
            return []
        if item != "5e" and len(self.results.targets) < 2:
            return []
        benchmarks = self.results.benchmarks
        methods: dict[str, None] = {}
        refused: list[tuple[str, str, Sequence[str]]] = []
        for benchmark in benchmarks:
            for comparison in benchmark.comparisons:
                methods[one_line(comparison.paired.method)] = None
            for pair, reasons in messages.refused_pairs(benchmark):
                refused.append((benchmark.evaluation, pair, reasons))
        values = {
            "compared": messages.pair_rows(benchmarks),
            "refused": refused,
            "methods": list(methods),
            "ranks": messages.ranks(self.results),
            "missing": self.results.missing,
            "cite": self.cite,
        }
        return papers.rendered(papers.paper_texts()["comparison"][item], values)


def _tables(results: SuiteResults) -> Iterator[tuple[str, Table, str]]:
    """Yield (title, table, note below it)."""
    yield "Scores", _table_of_scores(results), NOTE
    if len(results.evaluations) > 1 and results.has_win_rates:
        yield (
            "Win rates",
            messages.win_rate_table(results.win_rates, tested=False),
            messages.WIN_RATES,
        )
    pairs = messages.pair_table(results.benchmarks, "result")
    if pairs.rows:
        yield "Differences", pairs, _PAIRS


def _table_of_scores(results: SuiteResults) -> Table:
    head = ["benchmark", "metric", "model", "n", "score", "95 % interval", "rank"]
    ranks = messages.ranks(results)
    rows = []
    for evaluation, cell in product(results.evaluations, results.cells):
        if cell.evaluation == evaluation:
            score = messages.value(cell)
            for mark in messages.marks(cell):
                score += f" ({mark})"
            rows.append(
                [
                    evaluation,
                    cell.main_metric or messages.NOTHING,
                    cell.target,
                    formats.count(cell.n, missing=messages.NOTHING),
                    score,
                    messages.interval(cell) or messages.NOTHING,
                    ranks.get((evaluation, cell.target), messages.NOTHING),
                ]
            )
    return Table(head, rows, 4)
