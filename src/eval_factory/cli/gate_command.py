"""`eval-factory gate`: whether a candidate keeps what a policy asks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.errors import ConfigError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines, printable
from eval_factory.core.nouns import Verdict

JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The file that GitHub Actions shows as Markdown on a job's page."""

_FOLDER_OPTIONS = ("--candidate", "--baseline")
_POLICY_ENDINGS = (".yml", ".yaml")


class _FoldersUpToNextOption(click.Command):
    """`--candidate A B` is `--candidate A --candidate B`, as a shell writes `--candidate runs/*`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(spread(args)))


def spread(args: Iterable[str]) -> Iterable[str]:
    """Each folder after one of the options gets the option's name in front; a policy's file does not."""
    option, named = None, False
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in _FOLDER_OPTIONS else None
            named = False
        elif option is not None and named and not arg.endswith(_POLICY_ENDINGS):
            yield option
        else:
            named = option is not None
        yield arg


@click.command("gate", cls=_FoldersUpToNextOption)
@click.argument("policy", type=HomePath())
@click.option("--candidate", type=HomePath(), multiple=True, help="Output folder(s) of what is to be let through.")
@click.option("--baseline", type=HomePath(), multiple=True, help="Output folder(s) of what it is compared with.")
@click.option("--junit", type=HomePath(), default=None, help="Write JUnit XML to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print all that was found as JSON.")
@click.option("--attest", type=HomePath(), default=None, metavar="DIR", help="Write in-toto statements, to be signed.")
@click.option("--evaluator", default=None, metavar="URI", help="Who ran the evaluation, for --attest.")
@click.option("--lock", "to_lock", is_flag=True, help="Write the policy's hash beside it, before the run.")
def gate(
    policy: Path,
    candidate: tuple[Path, ...],
    baseline: tuple[Path, ...],
    junit: Path | None,
    attest: Path | None,
    evaluator: str | None,
    **flags: bool,
) -> None:
    """Hold results against POLICY. Each folder is an output folder, or holds some.

    Exit code 1: a limit is broken, or the sample is too small to say.
    """
    from eval_factory import api  # imported here: `ls` is to be quick
    from eval_factory.analysis import gate_report

    if flags["to_lock"]:
        _lock(policy, [*candidate, *baseline])
        return
    if not candidate:
        raise ConfigError("gate: give --candidate DIR (or --lock, before the run)")
    if (attest is None) != (evaluator is None):
        raise ConfigError("gate: --attest DIR and --evaluator URI belong together: a statement says who ran it")
    result = api.gate(policy, candidate, baseline)
    found = json.dumps(gate_report.document(result), indent=2) + "\n" if flags["as_json"] else gate_report.text(result)
    lasting(sys.stdout).write(own_lines(found))
    if junit is not None:
        with _named(junit):
            gate_report.write_junit(result, junit)
    if attest is not None and evaluator is not None:
        with _named(attest):
            gate_report.write_statements(result, attest, evaluator)
    if summary := os.environ.get(JOB_SUMMARY):
        with _named(Path(summary)), Path(summary).open("a", encoding="utf-8") as file:
            file.write(gate_report.markdown(result))
    if result.exit_code:
        counting = [one.task for one in result.benchmarks if one.counted_as != Verdict.PASS]
        raise NotReportableError(printable(f"gate: {result.outcome}: {', '.join(counting)}"))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A report that cannot be written is said by its name; what was found is on the screen by then."""
    try:
        yield
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be written: {error.strerror}; give a file in a folder of yours"
        ) from None


def _lock(policy: Path, folders: list[Path]) -> None:
    from eval_factory.analysis import gate_policy

    if folders:
        raise ConfigError("gate: --lock is given before the run, without --candidate and --baseline")
    path = gate_policy.lock(gate_policy.load_policy(policy), datetime.now(timezone.utc))
    click.echo(f"{path}: commit it with the policy; 'gate' refuses the policy if it is changed")
