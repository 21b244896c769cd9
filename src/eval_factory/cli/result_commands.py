"""The commands `compare`, `gate`, `report` and `calibrate`, which read and judge results."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.cli.console import HomePath, explained_write_errors, tolerant_stream
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import printable, printable_lines
from eval_factory.core.rundir import PRIVATE, RunDir, SuiteDir

if TYPE_CHECKING:
    from eval_factory.api import Calibrated
    from eval_factory.report.drawing import Drawing


@click.command("compare")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="A B [C...]")
@click.option(
    "--metric", help="A score's name, such as exact_match.corrected; the main metric if not given."
)
@click.option(
    "--margin",
    type=float,
    help="The largest difference that does not matter, in the metric's unit: 0.05 is 5 points.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="REASON,...",
    help="Compare in spite of these reasons against it; may be repeated.",
)
@click.option(
    "--min_paired",
    type=click.FloatRange(0, 1),
    default=0.9,
    show_default=True,
    help="For imported results: the share of questions that both results must have.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print tables in Markdown.")
@click.option(
    "--texts",
    "with_texts",
    is_flag=True,
    help="Print the questions and answers of instances on which the two results differ.",
)
def compare(
    folders: tuple[Path, ...],
    metric: str | None,
    margin: float | None,
    allow: tuple[str, ...],
    min_paired: float,
    **flags: bool,
) -> None:
    """Compare the results in output folders, on the instances that are in all results.

    Exit code 1: the results cannot be compared. The reasons are printed with their names, by which
    --allow accepts them.
    """
    from eval_factory import api  # imported late, to keep `--help` fast
    from eval_factory.analysis import comparison_report as report

    # `flags` has the options as_json, as_markdown and with_texts.
    if flags["as_json"] and flags["as_markdown"]:
        raise ConfigError("compare: give one of --json and --markdown")
    if flags["with_texts"] and (len(folders) != 2 or flags["as_markdown"]):
        raise ConfigError("compare: --texts is for two folders, with --json or as text")
    # `--allow` may be repeated, and each value may have several names: "prompts,data"
    names = map(str.strip, ",".join(allow).split(","))
    allowed = [name for name in names if name]
    compared = api.compare(
        folders, metric=metric, margin=margin, allow=allowed, min_paired=min_paired
    )
    flip_texts = None  # the texts of the instances on which the two results differ
    if flags["with_texts"] and compared.comparable:
        (comparison,) = compared.comparisons  # two folders have one comparison
        flip_texts = report.texts_of_flips(comparison)
    if flags["as_json"]:
        text = json.dumps(report.comparison_document(compared, texts=flip_texts), indent=2) + "\n"
    elif flags["as_markdown"]:
        text = printable_lines(report.comparison_markdown(compared))
    else:
        text = printable_lines(report.comparison_text(compared, texts=flip_texts))
    tolerant_stream(sys.stdout).write(text)
    if not compared.comparable:
        from eval_factory.analysis.comparison_reasons import NEVER_ACCEPTED

        reason_names = sorted({reason.name for reason in compared.reasons})
        hint = ""
        if not NEVER_ACCEPTED.intersection(reason_names):
            hint = f"; to compare nevertheless: --allow {','.join(reason_names)}"
        raise NotReportableError(f"the results cannot be compared: {', '.join(reason_names)}{hint}")


class _CommandWithFolderLists(click.Command):
    """A command that reads `--candidate A B` as `--candidate A --candidate B`.

    A shell expands `--candidate runs/*` to the first form.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the name of the option before each folder."""
        return super().parse_args(ctx, list(repeat_options(args)))


def repeat_options(args: Iterable[str]) -> Iterable[str]:
    """Yield the arguments, with `--candidate` or `--baseline` repeated before each further folder.

    The option is not repeated before the policy, which is a YAML file.
    """
    list_option = None  # `--candidate` or `--baseline` while its folders follow
    has_value = False  # True if an argument follows `list_option` already
    for arg in args:
        if arg.startswith("-"):
            list_option = arg if arg in ("--candidate", "--baseline") else None
            has_value = False
        elif list_option is not None:
            is_policy = arg.endswith((".yml", ".yaml"))
            if has_value and not is_policy:
                yield list_option
            has_value = True
        yield arg


@click.command("gate", cls=_CommandWithFolderLists)
@click.argument("policy", type=HomePath())
@click.option(
    "--candidate",
    type=HomePath(),
    multiple=True,
    help="Output folder(s) of the results that the gate decides about.",
)
@click.option(
    "--baseline",
    type=HomePath(),
    multiple=True,
    help="Output folder(s) of the results to compare with.",
)
@click.option("--junit", type=HomePath(), help="Write JUnit XML to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@click.option(
    "--attest",
    type=HomePath(),
    metavar="DIR",
    help="Write in-toto statements, which you can sign, to this folder.",
)
@click.option("--evaluator", metavar="URI", help="Who ran the evaluation, for --attest.")
@click.option(
    "--lock",
    "to_lock",
    is_flag=True,
    help="Write the policy's hash to a file next to the policy; do this before the run.",
)
def gate(
    policy: Path,
    candidate: tuple[Path, ...],
    baseline: tuple[Path, ...],
    junit: Path | None,
    attest: Path | None,
    evaluator: str | None,
    **flags: bool,
) -> None:
    """Check results against the limits in POLICY.

    Each folder is an output folder, or contains output folders. Exit code 1: a limit is broken, or
    the sample is too small to decide.
    """
    from eval_factory import api  # imported late, to keep `--help` fast
    from eval_factory.analysis import gate_report

    # `flags` has the options to_lock and as_json.
    if flags["to_lock"]:
        if candidate or baseline:
            raise ConfigError(
                "gate: --lock is given before the run, without --candidate and --baseline"
            )
        _lock_policy(policy)
        return
    if not candidate:
        raise ConfigError("gate: give --candidate DIR (or --lock, before the run)")
    has_only_one = (attest is None) != (evaluator is None)
    if has_only_one:
        raise ConfigError(
            "gate: --attest DIR and --evaluator URI belong together: a statement has an evaluator"
        )
    result = api.gate(policy, candidate, baseline)
    text = gate_report.gate_text(result)
    if flags["as_json"]:
        text = json.dumps(gate_report.gate_document(result), indent=2) + "\n"
    tolerant_stream(sys.stdout).write(printable_lines(text))
    if junit is not None:
        with explained_write_errors(junit):
            gate_report.write_junit(result, junit)
    if attest is not None and evaluator is not None:
        with explained_write_errors(attest):
            gate_report.write_statements(result, attest, evaluator)
    # GitHub Actions shows this file as Markdown on a job's page
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with (
            explained_write_errors(Path(summary)),
            Path(summary).open("a", encoding="utf-8") as file,
        ):
            file.write(gate_report.gate_markdown(result))
    if result.exit_code:
        failing = []
        for benchmark in result.benchmarks:
            if benchmark.counted_as != "pass":
                failing.append(benchmark.task)
        # A gate without a failing benchmark is inconclusive: every model would pass its limits.
        why = ", ".join(failing) or "no limit of the policy could fail"
        raise NotReportableError(printable(f"gate: {result.outcome}: {why}"))


def _lock_policy(policy: Path) -> None:
    """Write the hash of the policy to a file next to the policy, and print the file's path."""
    from eval_factory.analysis.gate_policy import load_policy, write_lock

    path = write_lock(load_policy(policy), datetime.now(timezone.utc))
    click.echo(
        f"{path}: commit this file with the policy; 'gate' refuses the policy if it is changed"
    )


# the purposes of `report --for`
_PURPOSES = ("tripod-llm", "model-card", "methods", "markdown", "latex", "ruaih", "pccp", "ai-act")


@click.command("report")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", type=HomePath(), help="Write the page to this file.")
@click.option(
    "--for",
    "purpose",
    type=click.Choice(_PURPOSES),
    help="Write a text for this purpose instead of the page, to standard output or -o.",
)
@click.option(
    "--plots",
    type=HomePath(),
    metavar="DIR",
    help="Write the plots to this folder, as SVG and PNG.",
)
@click.option(
    "--no-text",
    "no_text",
    is_flag=True,
    help="Leave out prompts, media, answers, references and judges' words.",
)
def report(
    folders: tuple[Path, ...],
    output: Path | None,
    purpose: str | None,
    plots: Path | None,
    no_text: bool,
) -> None:
    """Write an HTML page about one result, or about several results side by side, with every
    instance.

    A suite's folder means all runs of the suite. --for writes a text for a paper: the TRIPOD-LLM
    checklist, the methods section, tables with intervals and ranks in Markdown or LaTeX, or, for
    one run, the metrics of CHAI's model card. --for also writes an evidence pack, as Markdown or,
    with -o page.html, as a page. A pack covers the items of RUAIH's guidance (ruaih), of a change
    control plan for the FDA (pccp), or of the EU AI Act (ai-act): the facts that the results show,
    and the questions that only people can answer.
    """
    from eval_factory.core.safe_files import write_atomic
    from eval_factory.report.reader import is_suite_folder, run_folders

    if purpose is not None:
        as_page = output is not None and output.suffix.lower() in (".html", ".htm")
        text = _text_for(purpose, folders, as_page=as_page)
        if output is not None:
            write_atomic(output, text)
            click.echo(str(output))
        else:
            click.echo(text, nl=False)
        return
    if plots is not None:
        from eval_factory.report.drawing import write_plot_files

        for plot_file in write_plot_files(drawings_of(run_folders(folders)), plots):
            click.echo(str(plot_file))
        if output is None:  # --plots alone writes no page
            return
    runs = run_folders(folders)
    if output is not None and len(folders) == 1 and is_suite_folder(folders[0]):
        from eval_factory.analysis.paper import page_of_suite

        path = output
        html = page_of_suite(folders[0], output.absolute().parent)
    elif len(runs) > 1:
        path, html = _page_of_several(folders, output, with_texts=not no_text)
    else:
        path, html = _page_of_one(runs[0], output, with_texts=not no_text)
    write_atomic(path, html, mode=PRIVATE)
    click.echo(str(path))


def _page_of_several(
    folders: Sequence[Path], output: Path | None, *, with_texts: bool
) -> tuple[Path, str]:
    """Return the path and the HTML of the page about several results.

    Raises:
        ConfigError: The user did not name the page's file.
    """
    from eval_factory.analysis.comparison_report import page_of_several_results
    from eval_factory.report.reader import compared_runs, is_suite_folder

    if output is None:
        notes = []
        for folder in folders:
            if is_suite_folder(folder):
                notes.append(f"{SuiteDir(folder).results_html} is the suite's own")
        hint = f" ({'; '.join(notes)})" if notes else ""
        raise ConfigError(
            f"report: several folders have one common page{hint}; "
            "name the page's file with -o page.html"
        )
    return output, page_of_several_results(
        compared_runs(folders, command="report"), with_texts=with_texts
    )


def _page_of_one(folder: Path, output: Path | None, *, with_texts: bool) -> tuple[Path, str]:
    """Return the path and the HTML of the page about one result.

    Raises:
        ConfigError: The page would replace a different page that is part of the result.
    """
    from eval_factory.report.checksums import listed_checksums
    from eval_factory.report.page.document import result_page
    from eval_factory.report.reader import load_result

    stored = load_result(folder)
    html = result_page(stored, with_texts=with_texts)
    if output is not None:
        return output, html
    path = stored.folder / ("report.html" if with_texts else "report-without-texts.html")
    # SHA256SUMS may list the stored page. If a different page replaced the stored page, `verify`
    # would report the result as altered.
    listed_digest = listed_checksums(RunDir(stored.folder)).get(path.name)
    new_digest = hashlib.sha256(html.encode("utf-8")).hexdigest()
    if listed_digest is not None and listed_digest != new_digest:
        raise ConfigError(
            f"report: {path} is part of the result (SHA256SUMS), "
            "and this version's page differs: give -o page.html"
        )
    return path, html


def _text_for(purpose: str, folders: Sequence[Path], *, as_page: bool) -> str:
    """Return the text for the purpose of `--for`, about results or a panel.

    A panel is a fixed sample of questions that the command `monitor` asks again and again.

    Raises:
        ConfigError: The folder is that of a panel, and the purpose is only for results.
    """
    from eval_factory.analysis.paper import written_for
    from eval_factory.report.evidence_packs import PACKS

    is_panel = len(folders) == 1 and (folders[0] / "ledger.jsonl").is_file()
    if is_panel:
        from eval_factory.monitor.report import evidence_pack_of_panel

        if purpose not in PACKS:
            pack_names = ", ".join(PACKS)
            raise ConfigError(
                f"report --for {purpose}: {folders[0]} is a panel's folder; "
                f"for a panel give --for {pack_names}"
            )
        return evidence_pack_of_panel(purpose, folders[0], as_page=as_page)
    return written_for(purpose, folders, as_page=as_page)


def drawings_of(folders: Sequence[Path]) -> dict[str, Drawing]:
    """Return the plots of one or several results, by name.

    With several results, a name begins with the letter of the result: `a-`, `b-` and so on. There
    are also plots of the differences. If the results cannot be compared, these are left out, and a
    warning on standard error states the reasons.

    Raises:
        EvalFactoryError: A folder has no result.
    """
    from eval_factory.report.reader import load_result
    from eval_factory.report.result_plots import plots_of

    results = [load_result(folder).result for folder in folders]
    if len(results) == 1:
        return plots_of(results[0])
    from eval_factory import api  # imported late: the comparison imports scipy, which is slow
    from eval_factory.analysis.comparison_report import plot_of_difference

    compared = api.compare(folders)
    if not compared.comparable:
        reason_names = ", ".join(reason.name for reason in compared.reasons)
        hint = "'eval-factory compare' with the same folders shows the reasons in detail"
        click.echo(
            "warning: no plot of differences: the results cannot be compared "
            f"({reason_names}); {hint}",
            err=True,
        )
    plots = {}
    for model, result in zip(compared.models, results, strict=True):
        for name, drawing in plots_of(result).items():
            plots[f"{model.label.lower()}-{name}"] = drawing
    for pair in compared.comparisons:
        plots[f"difference-{pair.a.label}-{pair.b.label}".lower()] = plot_of_difference(pair)
    return plots


@click.command("calibrate")
@click.argument("labels", type=HomePath(), metavar="LABELS")
@click.option(
    "--judge-labels",
    multiple=True,
    metavar="COLUMN",
    help="The field with a judge's decision, a boolean.",
)
@click.option(
    "--judges-from",
    type=HomePath(),
    metavar="RUN_CONFIG",
    help="Ask the judges that this run config of a rubric names.",
)
@click.option(
    "--judge",
    multiple=True,
    metavar="NAME",
    help="Ask only this judge; or the name of the judge in COLUMN.",
)
@click.option(
    "--to",
    type=HomePath(),
    metavar="DIR",
    help="Write judge_passport.yaml and .html into this new or empty folder.",
)
@click.option(
    "--probes",
    type=click.IntRange(min=0),
    help="Number of answers about which judges are asked again, with changes; 50 if not given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def calibrate(
    labels: Path,
    judge_labels: tuple[str, ...],
    judges_from: Path | None,
    judge: tuple[str, ...],
    to: Path | None,
    probes: int | None,
    as_json: bool,
) -> None:
    """Compare a judge's decisions with physicians' decisions, and with the physicians' agreement
    among themselves.

    LABELS has one line for each answer and criterion, in the format of HealthBench's
    meta-evaluation: prompt, completion, rubric, category, binary_labels, anonymized_physician_ids.
    With --judges-from, judges are asked about each line, as in a run; if the command is stopped,
    the same command resumes. With --judge-labels, the judge's decisions are in COLUMN, and no judge
    is asked.

    LABELS may also be the folder of a run whose answers people rated ('annotate'): the judges of
    the run are compared with these people.
    """
    from eval_factory import api  # imported late, to keep `--help` fast

    decisions_are_stored = bool(judge_labels)
    judges_are_asked = judges_from is not None
    has_neither = not decisions_are_stored and not judges_are_asked
    has_both = decisions_are_stored and judges_are_asked
    is_rated_run = labels.is_dir() and has_neither
    if has_both or (has_neither and not is_rated_run):
        raise ConfigError(
            "calibrate: give --judges-from RUN_CONFIG, whose judges are asked, "
            "or --judge-labels COLUMN"
        )
    with explained_write_errors(to or labels):  # without `to`, nothing is written
        calibrated = api.calibrate(
            labels,
            judge_labels=judge_labels,
            judge=judge,
            to=to,
            judges_from=judges_from,
            probes=probes,
            screen=sys.stderr,
        )
    text = _calibration_json(calibrated) if as_json else _calibration_text(calibrated)
    tolerant_stream(sys.stdout).write(text)
    for path in calibrated.files:  # with --json, standard output has only the JSON
        click.echo(str(path), err=as_json)


def _calibration_json(calibrated: Calibrated) -> str:
    """Return the figures of the judge as JSON; of several judges, a mapping by judges' names."""
    from eval_factory.report.judge_passport import calibration_document

    documents = {}
    for passport in calibrated.passports:
        documents[passport.judge] = calibration_document(passport.found)
    if len(documents) == 1:
        return json.dumps(documents[calibrated.passport.judge], indent=2) + "\n"
    return json.dumps(documents, indent=2) + "\n"


def _calibration_text(calibrated: Calibrated) -> str:
    """Return the passports and the table of juries as a text for the screen."""
    from eval_factory.core.tables import screen_lines
    from eval_factory.report.judge_passport import JURIES_HINT, juries_table, passport_text

    parts = [passport_text(passport) for passport in calibrated.passports]
    if calibrated.juries:
        table = screen_lines(juries_table(calibrated.juries))
        parts.append("\n".join([*table, "", *textwrap.wrap(JURIES_HINT, 80), ""]))
    return printable_lines("\n".join(parts))
