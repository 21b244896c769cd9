"""Writes texts for papers and auditors about one run, a suite, or several runs: `report --for`.

TRIPOD-LLM is a checklist for papers on language models in medicine; a text answers each of its
items. An evidence pack answers the items of another published document about AI systems.

In a text about several runs, a sentence that is true of all runs is written once. A sentence that
is true of some runs is written once with the names of these runs. Tables show an interval with each
score, and the possible ranks of each model.
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
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.rundir import SuiteDir
from eval_factory.core.tables import Table, code, latex, markdown_lines
from eval_factory.report import evidence_packs, papers
from eval_factory.report.described_run import RECORD_COLUMNS, Citations, DescribedRun, record_row
from eval_factory.report.page.document import pack_page
from eval_factory.report.paper_templates import joined_with_and, paper_texts, rendered_lines
from eval_factory.report.reader import (
    StoredResult,
    find_only_run,
    is_suite_folder,
    load_result,
    run_folders,
)

# purpose -> the function that writes the text about a single run
_SINGLE_RUN_TEXTS = {
    "tripod-llm": papers.tripod_llm,
    "model-card": papers.model_card,
    "methods": papers.methods_text,
}
_SCORES_NOTE = (
    "Scores with their 95 % intervals. Rank: "
    "the best and the worst rank that the paired comparisons leave open; all ranks of one "
    "benchmark hold together with 95 % confidence."
)
"""The note below the table of scores."""
_DIFFERENCES_NOTE = (
    "A difference is b - a, on the instances for which both models have a value; "
    "p is corrected for the number of pairs (Holm)."
)
"""The note below the table of differences."""


def written_for(purpose: str, folders: Sequence[Path], *, as_page: bool = False) -> str:
    """Return the text for a purpose, which ends with a line break.

    Args:
        purpose: the purpose, as in `report --for`.
        folders: the folders of runs, of suites, or of targets of suites.
        as_page: True if an evidence pack is written as an HTML page; ignored for other purposes.

    Raises:
        ConfigError: the purpose is a model card, and the folders have several runs.
        PrerequisiteError: a folder has no result.
    """
    runs = run_folders(folders)
    if purpose == "model-card" and len(runs) > 1:
        if len(folders) == 1:
            # Raises an error that lists the runs in the folder.
            find_only_run(folders[0], command=f"report --for {purpose}")
        raise ConfigError(f"report: --for {purpose} is about one run: give one output folder")
    if purpose in _SINGLE_RUN_TEXTS and len(runs) == 1:
        stored = load_result(runs[0])
        return _SINGLE_RUN_TEXTS[purpose](stored.result, stored.config, stored.target)
    if purpose in evidence_packs.PACKS:
        pack = _pack(purpose, folders, runs)
        if as_page:
            return pack_page(pack)
        return evidence_packs.pack_markdown(pack)
    results = suite_results(_cells(folders, runs))
    if purpose == "latex":
        tables = [latex(table, title, note) for title, table, note in _tables(results)]
        return "\n\n".join(tables) + "\n"
    if purpose == "markdown":
        parts = []
        for title, table, note in _tables(results):
            parts.append("\n".join([f"## {title}", "", *markdown_lines(table), "", note]))
        return "\n\n".join(parts) + "\n"
    if purpose == "methods":
        several = _SeveralRuns(results, Citations(), describe=papers.describe_run_beside_table)
        return papers.methods_text_of_runs(several)
    # The only purpose that is left is a TRIPOD-LLM checklist about several runs. It writes a
    # citation as "(ref. 3)".
    cite = Citations(form="(ref. {})")
    several = _SeveralRuns(
        results, cite, describe=evidence_packs.describe_run_in_full, in_table=False
    )
    return papers.tripod_llm_of_runs(several, several.named(show=code))


def page_of_suite(folder: Path, page_folder: Path) -> str:
    """Return the HTML page with the results of a suite.

    Args:
        folder: the folder of the suite.
        page_folder: the folder for the page. The links in the page are relative to this folder.

    Raises:
        PrerequisiteError: a result cannot be read.
    """
    results = suite_results(_cells([folder], run_folders([folder])))
    return suite_page(results, page_folder)


def _pack(name: str, folders: Sequence[Path], runs: Sequence[Path]) -> evidence_packs.Pack:
    """Return the evidence pack of this name about one run, a suite or several runs."""
    cite = evidence_packs.citations_of_pack()
    if len(runs) == 1 and not is_suite_folder(folders[0]):
        run = evidence_packs.describe_run_for_pack(load_result(runs[0]), cite)
        provenance = run.result.provenance
        about = f"Of run {provenance.run_identity}: {run.result.task}, {provenance.target}."
        return evidence_packs.pack_of(name, [about], cite, run)
    several = _SeveralRuns(suite_results(_cells(folders, runs)), cite)
    return evidence_packs.pack_of(name, [several.named()], cite, several)


def pack_of_panel(
    name: str, render_panel: evidence_packs.TemplateRenderer, runs: Sequence[Path]
) -> evidence_packs.Pack:
    """Return an evidence pack about a monitored panel and some of its runs.

    Args:
        name: the name of the pack, from `evidence_packs.PACKS`.
        render_panel: returns the sentences of a template, with the facts from the panel's ledger.
        runs: the folders of the panel's runs.

    Raises:
        PrerequisiteError: a folder has no result.
    """
    cite = evidence_packs.citations_of_pack()
    several = None
    if runs:
        # no folder of a suite: each run is a cell
        several = _SeveralRuns(suite_results(_cells([], runs)), cite)
    about = render_panel(evidence_packs.pack_texts()["panel"]["of"])
    return evidence_packs.pack_of(name, about, cite, several, render_panel)


def _cells(folders: Sequence[Path], runs: Sequence[Path]) -> Iterator[FinishedCell]:
    """Yield the cells of a suite, or a cell for each run.

    A cell is one evaluation of one target. The cells of a suite are those in its table, including
    cells without a result. Other runs are named by their model and task. If several runs have the
    same model and task, the folder is appended to the name of the model.
    """
    if len(folders) == 1 and is_suite_folder(folders[0]):
        suite = SuiteDir(folders[0])
        if suite.results_yaml.exists():
            yield from _cells_of_table(suite, runs)
            return
    results = [load_result(run).result for run in runs]
    names = [(result.provenance.target, result.task) for result in results]
    for run, result in zip(runs, results, strict=True):
        model = result.provenance.target
        name = model
        if names.count((model, result.task)) > 1:
            name = f"{model} ({run})"
        yield FinishedCell(
            target=one_line(name),
            evaluation=one_line(result.task),
            status=RunStatus(result.status),
            folder=run,
        )


def _cells_of_table(suite: SuiteDir, runs: Sequence[Path]) -> Iterator[FinishedCell]:
    """Yield the cells in a suite's table, with the folders of their runs.

    A cell without a run has the folder of the suite instead. A cell with a run has the status in
    the run's result, which may be newer than the table.
    """
    by_name = {(run.parent.name, run.name): run for run in runs}  # a run is in target/evaluation
    for cell in parse_own_text(suite.results_yaml.read_text(encoding="utf-8"))["cells"]:
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
class _SeveralRuns:
    """Several runs that one text describes: a `Writer`."""

    results: SuiteResults
    cite: Citations  # numbers the references, and writes the marks that cite them
    describe: Callable[[StoredResult, Citations], DescribedRun] = (
        evidence_packs.describe_run_for_pack
    )
    """Returns one run with the sentences that the kind of text needs."""
    in_table: bool = True
    """True if the times and hashes of the runs are in a table, not in the text."""

    def named(self, show: Callable[[str], str] = str) -> str:
        """Return a sentence with the models and benchmarks.

        Args:
            show: formats the name of a model or benchmark.
        """
        models = self.results.targets
        benchmarks = self.results.evaluations
        counts = f"{counted(len(models), 'model')} on {counted(len(benchmarks), 'benchmark')}"
        return f"Of {counts}: {', '.join(map(show, models))} on {', '.join(map(show, benchmarks))}."

    @cached_property
    def runs(self) -> dict[tuple[str, str], DescribedRun]:
        """The runs that have a result, by (target, evaluation)."""
        runs = {}
        for cell in self.results.cells:
            if cell.task is not None:
                stored = load_result(cell.folder)
                runs[cell.target, cell.evaluation] = self.describe(stored, self.cite)
        return runs

    def runs_table(self) -> Table:
        """Return a table with the counts, times and hashes of each run."""
        rows = []
        for names, run in self.runs.items():
            rows.append([*names, *record_row(run.result)])
        return Table(RECORD_COLUMNS, rows)

    def render_sentences(self, template: str) -> list[str]:
        """Return the sentences of a template, each once.

        The sentences that are true of all runs come first. The other sentences follow in
        paragraphs, each of which begins with the names of its runs.
        """
        runs_by_sentence: dict[str, list[tuple[str, str]]] = {}
        for name, run in self.runs.items():
            for sentence in dict.fromkeys(run.render_sentences(template)):
                runs_by_sentence.setdefault(sentence, []).append(name)
        common: list[str] = []
        by_names: dict[str, list[str]] = {}
        for sentence, runs in runs_by_sentence.items():
            names = self._names_of(runs)
            if names:
                by_names.setdefault(names, []).append(sentence)
            else:
                common.append(sentence)
        paragraphs = [f"{names}: {' '.join(sentences)}" for names, sentences in by_names.items()]
        return common + paragraphs

    def render_by_run(self, template: str) -> list[str]:
        """Return a paragraph for each run: its name, and the sentences of a template."""
        paragraphs = []
        for (target, evaluation), run in self.runs.items():
            text = " ".join(run.render_sentences(template))
            if text:
                paragraphs.append(f"Of {target} on {evaluation}: {text}")
        return paragraphs

    def _names_of(self, runs: Sequence[tuple[str, str]]) -> str:
        """Return a phrase that names these runs, such as "On medqa" or "Of model_a on medqa".

        The phrase is empty if these are all runs of this text. It names only benchmarks if these
        are all runs on the benchmarks, or only models if these are all runs of the models.
        Otherwise it names each run.
        """
        if len(runs) == len(self.runs):
            return ""
        # A run is a pair (target, evaluation): element 1 is the benchmark, element 0 the model.
        for axis, word in ((1, "On"), (0, "Of")):
            names = list(dict.fromkeys(run[axis] for run in runs))
            all_runs_of_names = [run for run in self.runs if run[axis] in names]
            if len(runs) == len(all_runs_of_names):
                return f"{word} {joined_with_and(names)}"
        names_of_runs = [f"{target} on {evaluation}" for target, evaluation in runs]
        return f"Of {joined_with_and(names_of_runs)}"

    def comparison_sentences(self, item: str) -> list[str]:
        """Return the sentences that a comparison of the models adds to an item of TRIPOD-LLM.

        With a single model, only the item on missing results has such sentences.
        """
        if item not in paper_texts()["comparison"]:
            return []
        if item != evidence_packs.MISSING_RESULTS_ITEM and len(self.results.targets) < 2:
            return []
        benchmarks = self.results.benchmarks
        methods: dict[str, None] = {}  # a set that keeps its order
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
            "ranks": messages.rank_texts(self.results),
            "missing": self.results.missing,
            "cite": self.cite,
        }
        return rendered_lines(paper_texts()["comparison"][item], values)


def _tables(results: SuiteResults) -> Iterator[tuple[str, Table, str]]:
    """Yield (title, table, note) of each table that is not empty.

    Win rates over a single benchmark are left out. The table of scores is always yielded.
    """
    yield "Scores", _table_of_scores(results), _SCORES_NOTE
    if len(results.evaluations) > 1 and results.has_win_rates:
        yield (
            "Win rates",
            messages.win_rate_table(results.win_rates, with_comparisons=False),
            messages.WIN_RATES_NOTE,
        )
    pairs = messages.pair_table(results.benchmarks, without_column="result")
    if pairs.rows:
        yield "Differences", pairs, _DIFFERENCES_NOTE


def _table_of_scores(results: SuiteResults) -> Table:
    """Return the table with the score of each model on each benchmark."""
    header = ["benchmark", "metric", "model", "n", "score", "95 % interval", "rank"]
    ranks = messages.rank_texts(results)
    rows = []
    for evaluation, cell in product(results.evaluations, results.cells):
        if cell.evaluation == evaluation:
            score = messages.score_text(cell)
            for mark in messages.marks(cell):
                score += f" ({mark})"
            rows.append(
                [
                    evaluation,
                    cell.main_metric or messages.NO_VALUE,
                    cell.target,
                    formats.count(cell.n, missing=messages.NO_VALUE),
                    score,
                    messages.interval_text(cell) or messages.NO_VALUE,
                    ranks.get((evaluation, cell.target), messages.NO_VALUE),
                ]
            )
    return Table(header, rows, number_columns=4)  # n, score, interval and rank
