"""HELM's own web pages of finished results: served on this machine, or written as files."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO

from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import parse_own, to_yaml
from eval_factory.core.rundir import PRIVATE_FOLDER, RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.helm.environments import environment_of, look_for_helm
from eval_factory.helm.page_schema import SCHEMA_FILE, page_schema
from eval_factory.report.reader import run_folders
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.leaderboard.board import board_runs
from eval_factory.workflows.view_site import (
    DATA_FOLDER,
    POLICY,
    SUITE,
    ViewedRun,
    forget_place,
    lay_out,
    make_tables,
    summarize_command,
    viewed_runs,
    without_colons,
    write_site,
)

HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every response: nothing is kept in the browser's cache, and no link tells another
site where it was followed.
"""
SCHEMA = "schema.yaml"
SHOWN_ANSWERS = "display_predictions.json"
_PREFIX = "eval-factory-view-"
CANNOT_READ = (
    "  it cannot read HELM's files of a run: "
    "'eval-factory verify DIR' says whether they were altered;"
    " run_eval with --fresh makes them again"
)


@dataclass(frozen=True)
class Pages:
    """HELM's pages, made."""

    folder: Path
    address: str | None  # the address at which they are served; None if they are only files
    runs: tuple[ViewedRun, ...]

    def lines(self) -> list[str]:
        """Return what is shown, and what a reader has to know of it."""
        rows = [f"  {run.page.task}, {run.shown_model}" for run in self.runs]
        return [
            f"HELM's pages of {counted(len(self.runs), 'run')}:",
            *rows,
            (
                "  they show prompts, answers and references: "
                "if the data hold patients' texts, they show these too"
            ),
            (
                "  they show HELM's own numbers, in which a failed request counts as an empty "
                "answer;"
            ),
            "  each folder's report.html has the corrected scores, the intervals and the notes",
        ]

    def wait(self) -> None:
        """Until the user ends it: Ctrl-C, SIGTERM, or the terminal goes."""
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


@contextmanager
def served(
    folders: Sequence[Path], *, port: int, env: Mapping[str, str], screen: TextIO
) -> Iterator[Pages]:
    """Make the pages of output folders in a temporary folder and serve them; when it is left, both
    are gone. Raises EvalFactoryError: with the exit code of what went wrong.
    """
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        runs, schema = _to_show(folders)
        site = _made(runs, schema, Path(name), env, screen, copies=False)
        with PageServer(site, port) as server:
            yield Pages(site, server.address, tuple(runs))


def export(
    folders: Sequence[Path], target: Path, *, env: Mapping[str, str], screen: TextIO
) -> Pages:
    """Write the pages of output folders as files, into a folder that is new or empty. Raises
    EvalFactoryError: with the exit code of what went wrong; the folder is then not there.
    """
    if target.is_symlink() or (
        target.exists() and not (target.is_dir() and not any(target.iterdir()))
    ):
        raise ConfigError(
            f"--export {target}: is there already, and not empty; name a new or an empty folder"
        )
    inside = next(
        (folder for folder in folders if target.resolve().is_relative_to(folder.resolve())), None
    )
    if inside is not None:
        raise ConfigError(
            f"--export {target}: is inside of the output folder {inside}; name a folder elsewhere"
        )
    runs, schema = _to_show(folders)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{_PREFIX}", dir=target.parent) as name:
        site = _made(runs, schema, Path(name), env, screen, copies=True)
        site.chmod(PRIVATE_FOLDER)
        site.replace(target)
    return Pages(target, None, tuple(runs))


def _to_show(folders: Sequence[Path]) -> tuple[list[ViewedRun], str]:
    """Return the runs in folders of runs and suites, or those of a leaderboard; and the schema of
    their tables.
    """
    if len(folders) == 1 and SuiteDir(folders[0]).leaderboard.is_file():
        return board_runs(folders[0])
    runs = viewed_runs(run_folders(folders))
    # HELM's schema for MedHELM's leaderboard
    path = environment_of(HELM).helm_path("benchmark", "static", SCHEMA_FILE)
    schema: dict[str, Any] = {} if path is None else parse_own(path.read_text(encoding="utf-8"))
    return runs, to_yaml(page_schema([run.page for run in runs], schema))


def _made(
    runs: Sequence[ViewedRun],
    schema: str,
    work: Path,
    env: Mapping[str, str],
    screen: TextIO,
    *,
    copies: bool,
) -> Path:
    """Make the pages in `work`. Returns their folder."""
    look_for_helm(HELM)
    site = work / "site"
    suite = write_site(site, runs)
    lay_out(runs, suite, copies=copies)
    rundir = RunDir(work)
    rundir.create()
    write_atomic(rundir.model_configs / SCHEMA, schema)
    screen.write("helm-summarize makes the pages ...\n")
    argv = summarize_command(rundir, SUITE, rundir.model_configs / SCHEMA, site / DATA_FOLDER)
    shown = {run.model: run.shown_model for run in runs}
    try:
        with rundir.locked() as lock:
            make_tables(rundir, lock, shown, argv, env, screen, keeps_log=False)
    except HelmError as error:
        raise HelmError(f"{error}\n{CANNOT_READ}") from error
    # helm-summarize leaves out what it does not understand, and ends with 0: the page of such a run
    # would be empty
    left_out = []
    for run in runs:
        if not (suite / run.name / SHOWN_ANSWERS).is_file():
            left_out.append(run.name)
    if left_out:
        raise HelmError(f"helm-summarize left out {', '.join(left_out)}\n{CANNOT_READ}")
    forget_place(site)
    without_colons(suite)
    return site


class PageServer(ThreadingHTTPServer):
    """Serves a folder of patients' texts until it is closed.

    helm-server listens on every interface and answers everybody. This one listens on 127.0.0.1
    alone, where other users of the machine, and pages of other sites in the same browser, could
    still ask it: what it serves stands behind a part of the path that nobody can guess, and it
    answers no request that was meant for another name than its own.
    """

    def __init__(self, site: Path, port: int = 0) -> None:
        """Start to serve the folder. `port`: 0 for any that is free. Raises PrerequisiteError: the
        port cannot be used.
        """
        try:
            super().__init__((HOST, port), partial(_Handler, directory=str(site)))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PrerequisiteError(
                f"port {port} of {HOST} cannot be used: {reason}\n"
                "  give another with --port, or none for a free one"
            ) from error
        self.own_name = f"{HOST}:{self.server_address[1]}"
        self.prefix = f"/{secrets.token_urlsafe(16)}/"
        self.address = f"http://{self.own_name}{self.prefix}"
        threading.Thread(target=self.serve_forever, name="view-server", daemon=True).start()

    def __exit__(self, *_args: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing: a browser may go away in the middle of an answer."""


class _Handler(SimpleHTTPRequestHandler):
    server: PageServer

    def send_head(self) -> Any:
        """Send what GET and HEAD ask for: what stands behind the prefix, and nothing else."""
        prefix = self.server.prefix
        is_known = secrets.compare_digest(self.path[: len(prefix)].encode(), prefix.encode())
        if self.headers.get("Host") != self.server.own_name or not is_known:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.path = self.path[len(prefix) - 1 :]
        return super().send_head()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002 - of the base class
        """Shows none: only what the page asks for."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Says nothing: addresses name runs, and the screen is the user's."""
