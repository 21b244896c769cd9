"""What is written for papers and auditors of one run, of a suite, or of runs beside each other:
`report --for`.

Of several runs, what holds for all is written once; what holds for some, once with their names.
Tables have an interval with each score, and the ranks that a model may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from eval_factory.analysis import suite_words as words
from eval_factory.analysis.suite_files import suite_page
from eval_factory.analysis.suite_results import FinishedCell, SuiteResults, suite_results
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.nouns import RunStatus
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

_OF_ONE_RUN = {
    "tripod-llm": papers.tripod_llm,
    "model-card": papers.model_card,
    "methods": papers.methods_text,
}
NOTE = (
    "Scores with their 95 % intervals. Rank: "
    "the best and the worst that the paired comparisons leave open, all of one"
    " benchmark together with 95 % confidence."
)
_PAIRS = (
    "Differences are b - a, on the instances that both have a value of; "
    "p is corrected for the number of pairs (Holm)."
)


def written_for(purpose: str, folders: Sequence[Path], *, as_page: bool = False) -> str:
    """The text, which ends with a line break; of PACKS as a page, too. Folders are of runs, suites,
    targets of suites.

    Raises:
        ConfigError: it is about one run, and there are several.
        PrerequisiteError: a folder holds no result.
    """
    runs = run_folders(folders)
    if purpose == "model-card" and len(runs) > 1:
        if len(folders) == 1:
            one_run(folders[0], f"report --for {purpose}")
        raise ConfigError(f"report: --for {purpose} is about one run: give one output folder")
    if purpose in _OF_ONE_RUN and len(runs) == 1:
        stored = load_result(runs[0])
        return _OF_ONE_RUN[purpose](stored.result, stored.config, stored.target)
    if purpose in papers.PACKS:
        return (pack_page if as_page else papers.pack_markdown)(_pack(purpose, folders, runs))
    results = suite_results(_cells(folders, runs))
    if purpose == "latex":
        return (
            "\n\n".join(latex(table, title, note) for title, table, note in _tables(results)) + "\n"
        )
    if purpose == "markdown":
        parts = [
            "\n".join([f"## {title}", "", *markdown(table), "", note])
            for title, table, note in _tables(results)
        ]
        return "\n\n".join(parts) + "\n"
    cite = papers.Citations() if purpose == "methods" else papers.Citations("(ref. {})")
    if purpose == "methods":
        return papers.methods_of(_Several(results, cite, papers.described_beside_table))
    several = _Several(results, cite, papers.described_in_full, in_table=False)
    return papers.tripod_of(several, several.named(code))


def page_of_suite(folder: Path, beside: Path) -> str:
    """The page of a suite's table, to be written into the folder `beside`: its links lead from
    there. Raises PrerequisiteError: a result cannot be read.
    """
    results = suite_results(_cells([folder], run_folders([folder])))
    return suite_page(results, beside)


def _pack(name: str, folders: Sequence[Path], runs: Sequence[Path]) -> papers.Pack:
    cite = papers.citations()
    if len(runs) == 1 and not is_suite_folder(folders[0]):
        run = papers.described(load_result(runs[0]), cite)
        record = run.result.provenance
        return papers.pack_of(
            name, [f"Of run {record.run_identity}: {run.result.task}, {record.target}."], cite, run
        )
    several = _Several(suite_results(_cells(folders, runs)), cite)
    return papers.pack_of(name, [several.named()], cite, several)


def evidence_of_panel(name: str, said: papers.Said, runs: Sequence[Path]) -> papers.Pack:
    """A pack (PACKS) of a panel, whose ledger says `said`, and these of its runs.
    Raises PrerequisiteError: a folder holds no result."""
    cite = papers.citations()
    several = _Several(suite_results(_cells([], runs)), cite) if runs else None
    return papers.pack_of(name, said(papers.texts()["panel"]["of"]), cite, several, said)


def _cells(folders: Sequence[Path], runs: Sequence[Path]) -> Iterator[FinishedCell]:
    """Of a suite, what its table names, also where there is no result; of runs, each with the
    names that tell it.
    """
    if (
        len(folders) == 1
        and is_suite_folder(folders[0])
        and SuiteDir(folders[0]).results_yaml.exists()
    ):
        suite = SuiteDir(folders[0])
        for cell in parse_own(suite.results_yaml.read_text(encoding="utf-8"))["cells"]:
            target = str(cell["target"])
            evaluation = str(cell["evaluation"])
            folder = next(
                (run for run in runs if (run.parent.name, run.name) == (target, evaluation)), None
            )
            status = cell["status"] if folder is None else load_result(folder).result.status
            yield FinishedCell(
                target, evaluation, RunStatus(status), folder or suite.root, cell.get("reason")
            )
        return
    stored = [load_result(run) for run in runs]
    names = [(one.result.provenance.target, one.result.task) for one in stored]
    for run, one, (target, task) in zip(runs, stored, names, strict=True):
        name = target if names.count((target, task)) == 1 else f"{target} ({run})"
        yield FinishedCell(one_line(name), one_line(task), RunStatus(one.result.status), run)


@dataclass(frozen=True)
class _Several:
    """Runs that are described together."""

    results: SuiteResults
    cite: papers.Citations
    describe: Callable[[StoredResult, papers.Citations], papers.Described] = papers.described
    in_table: bool = True
    """The runs' times and hashes stand in a table beside the text."""

    def named(self, show: Callable[[str], str] = str) -> str:
        """What was run, in a sentence."""
        models = self.results.targets
        benchmarks = self.results.evaluations
        counts = f"{counted(len(models), 'model')} on {counted(len(benchmarks), 'benchmark')}"
        return f"Of {counts}: {', '.join(map(show, models))} on {', '.join(map(show, benchmarks))}."

    @cached_property
    def runs(self) -> dict[tuple[str, str], papers.Described]:
        """(target, evaluation) -> a run that has a result."""
        found = {}
        for cell in self.results.cells:
            if cell.task is not None:
                found[cell.target, cell.evaluation] = self.describe(
                    load_result(cell.folder), self.cite
                )
        return found

    def runs_table(self) -> Table:
        rows = []
        for names, run in self.runs.items():
            rows.append([*names, *papers.record_row(run.result)])
        return Table(papers.RECORD_COLUMNS, rows)

    def said(self, template: str) -> list[str]:
        """The sentences of a template, each once: first those of all runs, then others behind
        the names of theirs.
        """
        of: dict[str, list[tuple[str, str]]] = {}
        for name, run in self.runs.items():
            for sentence in dict.fromkeys(run.said(template)):
                of.setdefault(sentence, []).append(name)
        by_names: dict[str, list[str]] = {"": []}
        for sentence, names in of.items():
            by_names.setdefault(self._named(names), []).append(sentence)
        return by_names.pop("") + [
            f"{names}: {' '.join(sentences)}" for names, sentences in by_names.items()
        ]

    def of_each(self, template: str) -> list[str]:
        """The sentences of each run behind its name."""
        said = {name: " ".join(run.said(template)) for name, run in self.runs.items()}
        return [
            f"Of {target} on {evaluation}: {text}"
            for (target, evaluation), text in said.items()
            if text
        ]

    def _named(self, of: Sequence[tuple[str, str]]) -> str:
        """The names of runs: none of all, of complete benchmarks or models those, else each."""
        if len(of) == len(self.runs):
            return ""
        for axis, word in ((1, "On"), (0, "Of")):
            names = list(dict.fromkeys(one[axis] for one in of))
            if len(of) == sum(one[axis] in names for one in self.runs):
                return f"{word} {papers.enumerated(names)}"
        return f"Of {papers.enumerated([f'{target} on {evaluation}' for target, evaluation in of])}"

    def of_comparison(self, item: str) -> list[str]:
        """Nothing of one model, but for what is missing."""
        if item not in papers.forms()["comparison"] or (
            item != "5e" and len(self.results.targets) < 2
        ):
            return []
        benchmarks = self.results.benchmarks
        methods: dict[str, None] = {}
        refused: list[tuple[str, str, Sequence[str]]] = []
        for benchmark in benchmarks:
            for comparison in benchmark.comparisons:
                methods[one_line(comparison.paired.method)] = None
            refused += [(benchmark.evaluation, *pair) for pair in words.refused_pairs(benchmark)]
        values = {
            "compared": words.pair_rows(benchmarks),
            "refused": refused,
            "methods": list(methods),
            "ranks": words.ranks(self.results),
            "missing": self.results.missing,
            "cite": self.cite,
        }
        return papers.rendered(papers.forms()["comparison"][item], values)


def _tables(results: SuiteResults) -> Iterator[tuple[str, Table, str]]:
    """Title, table and what it says below."""
    head = ["benchmark", "metric", "model", "n", "score", "95 % interval", "rank"]
    ranks = words.ranks(results)
    rows = []
    for evaluation, cell in product(results.evaluations, results.cells):
        if cell.evaluation == evaluation:
            rows.append(
                [
                    evaluation,
                    cell.main_metric or words.NOTHING,
                    cell.target,
                    formats.count(cell.n, missing=words.NOTHING),
                    words.value(cell) + "".join(f" ({mark})" for mark in words.marks(cell)),
                    words.interval(cell) or words.NOTHING,
                    ranks.get((evaluation, cell.target), words.NOTHING),
                ]
            )
    yield "Scores", Table(head, rows, 4), NOTE
    if len(results.evaluations) > 1 and results.has_win_rates:
        yield "Win rates", words.win_rate_table(results.win_rates, tested=False), words.WIN_RATES
    pairs = words.pair_table(results.benchmarks, "result")
    if pairs.rows:
        yield "Differences", pairs, _PAIRS
