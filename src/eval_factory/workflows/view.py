"""Makes HELM's own web pages of finished results, and serves them on this machine or writes them as
files.
"""

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
from eval_factory.core.plain_yaml import parse_own_text, to_yaml
from eval_factory.core.rundir import PRIVATE_FOLDER, RunDir, SuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.helm.environments import environment_of, require_helm
from eval_factory.helm.page_schema import SCHEMA_FILE, page_schema
from eval_factory.report.reader import run_folders
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.leaderboard.tables import board_runs
from eval_factory.workflows.view_site import (
    CONTENT_SECURITY_POLICY,
    DATA_FOLDER,
    VIEW_SUITE,
    ViewedRun,
    make_links_relative,
    make_tables,
    rename_files_with_colons,
    summarize_command,
    viewed_runs,
    write_run_folders,
    write_site,
)

HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": f"{CONTENT_SECURITY_POLICY}; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every response. The browser caches nothing, and sends no referrer to other
sites.
"""
SCHEMA = "schema.yaml"  # the file with the metrics and groups of the tables, for helm-summarize
SHOWN_ANSWERS = "display_predictions.json"  # a file that helm-summarize writes for each run
_PREFIX = "eval-factory-view-"  # the beginning of the names of temporary folders
CANNOT_READ = (
    "  helm-summarize cannot read HELM's files of a run: "
    "'eval-factory verify DIR' says whether these files were altered;"
    " run_eval with --fresh makes them again"
)
"""The last line of an error message."""


@dataclass(frozen=True)
class Pages:
    """The finished web pages of some runs."""

    folder: Path
    address: str | None  # the URL of the served pages; None if the pages are only files
    runs: tuple[ViewedRun, ...]

    def lines(self) -> list[str]:
        """Return lines that list the runs and explain the content of the pages."""
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
        """Wait until the user presses Ctrl-C.

        The command line raises KeyboardInterrupt also if the process gets SIGTERM, or if the
        terminal closes.
        """
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


@contextmanager
def serve_pages(
    folders: Sequence[Path], *, port: int, env: Mapping[str, str], screen: TextIO
) -> Iterator[Pages]:
    """Make the pages of output folders in a temporary folder, and serve them in the `with` block.

    At the end of the block, the server stops and the temporary folder is deleted.

    Raises:
        EvalFactoryError: the pages cannot be made or served.
    """
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        runs, schema = _runs_and_schema(folders)
        site = _make_pages(runs, schema, Path(name), env, screen, copies=False)
        with PageServer(site, port) as server:
            yield Pages(site, server.address, tuple(runs))


def write_pages(
    folders: Sequence[Path], target: Path, *, env: Mapping[str, str], screen: TextIO
) -> Pages:
    """Write the pages of output folders as files into a new or empty folder.

    Raises:
        EvalFactoryError: the pages cannot be made, or `target` is not empty or is inside of an
            output folder. Nothing is written to `target` then.
    """
    is_empty_folder = target.is_dir() and not any(target.iterdir())
    if target.is_symlink() or (target.exists() and not is_empty_folder):
        raise ConfigError(
            f"--export {target}: exists and is not an empty folder; name a new or an empty folder"
        )
    for folder in folders:
        if target.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"--export {target}: is inside of the output folder {folder}; "
                "name a folder elsewhere"
            )
    runs, schema = _runs_and_schema(folders)
    # The pages are made beside `target`, because a folder cannot be moved to another file system.
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{_PREFIX}", dir=target.parent) as name:
        site = _make_pages(runs, schema, Path(name), env, screen, copies=True)
        site.chmod(PRIVATE_FOLDER)
        site.replace(target)
    return Pages(target, address=None, runs=tuple(runs))


def _runs_and_schema(folders: Sequence[Path]) -> tuple[list[ViewedRun], str]:
    """Return the runs to show, and the schema (metrics and groups) of their tables as YAML text.

    `folders`: output folders of runs and suites, or the folder of one leaderboard.
    """
    if len(folders) == 1 and SuiteDir(folders[0]).leaderboard.is_file():
        return board_runs(folders[0])
    runs = viewed_runs(run_folders(folders))
    # `crfm-helm` has its own file of the metrics and groups of MedHELM's leaderboard.
    medhelm_schema: dict[str, Any] = {}
    path = environment_of(HELM).helm_path("benchmark", "static", SCHEMA_FILE)
    if path is not None:
        medhelm_schema = parse_own_text(path.read_text(encoding="utf-8"))
    return runs, to_yaml(page_schema([run.page for run in runs], medhelm_schema))


def _make_pages(
    runs: Sequence[ViewedRun],
    schema: str,
    work: Path,
    env: Mapping[str, str],
    screen: TextIO,
    *,
    copies: bool,
) -> Path:
    """Make the pages in the folder `work`; return the folder of the pages.

    `copies`: True to copy HELM's files, False to link to them.
    """
    require_helm(HELM)
    site = work / "site"
    helm_suite = write_site(site, runs)
    write_run_folders(runs, helm_suite, copies=copies)
    rundir = RunDir(work)  # `make_tables` needs the folders and the lock of an output folder
    rundir.create()
    write_atomic(rundir.model_configs / SCHEMA, schema)
    screen.write("helm-summarize makes the pages ...\n")
    argv = summarize_command(rundir, VIEW_SUITE, rundir.model_configs / SCHEMA, site / DATA_FOLDER)
    shown_models = {run.model: run.shown_model for run in runs}
    try:
        with rundir.locked() as lock:
            make_tables(
                rundir,
                lock,
                models=shown_models,
                argv=argv,
                env=env,
                screen=screen,
                keeps_log=False,
            )
    except HelmError as error:
        raise HelmError(f"{error}\n{CANNOT_READ}") from error
    # helm-summarize skips runs that it cannot read, and still exits with 0. The page of such a run
    # would be empty.
    left_out = []
    for run in runs:
        if not (helm_suite / run.name / SHOWN_ANSWERS).is_file():
            left_out.append(run.name)
    if left_out:
        raise HelmError(f"helm-summarize left out {', '.join(left_out)}\n{CANNOT_READ}")
    make_links_relative(site)
    rename_files_with_colons(helm_suite)
    return site


class PageServer(ThreadingHTTPServer):
    """A web server for a folder that may contain texts of patients.

    HELM's own helm-server listens on all network interfaces and answers every request. PageServer
    listens only on 127.0.0.1. Other users of the machine, and pages of other sites in the same
    browser, could still send requests. The server therefore requires a random prefix in the path,
    and its own name and port in the Host header.
    """

    def __init__(self, site: Path, port: int = 0) -> None:
        """Start to serve the folder in a thread.

        `port`: the port number; 0 for any free port.

        Raises:
            PrerequisiteError: the port cannot be used.
        """
        try:
            super().__init__((HOST, port), partial(_Handler, directory=str(site)))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PrerequisiteError(
                f"port {port} of {HOST} cannot be used: {reason}\n"
                "  give another port with --port; without --port, a free port is used"
            ) from error
        self.own_name = f"{HOST}:{self.server_address[1]}"
        self.prefix = f"/{secrets.token_urlsafe(16)}/"
        self.address = f"http://{self.own_name}{self.prefix}"
        threading.Thread(target=self.serve_forever, name="view-server", daemon=True).start()

    def __exit__(self, *_args: object) -> None:
        """Stop the thread, and close the port."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a browser may close the connection in the middle of a response."""


class _Handler(SimpleHTTPRequestHandler):
    """The handler of requests to a PageServer."""

    server: PageServer

    def send_head(self) -> Any:
        """Answer GET and HEAD requests for files below the prefix, and all others with 404."""
        prefix = self.server.prefix
        # The prefix is a secret: the time of the comparison must not depend on its characters.
        is_known = secrets.compare_digest(self.path[: len(prefix)].encode(), prefix.encode())
        if self.headers.get("Host") != self.server.own_name or not is_known:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        # a path begins with a slash: the slash at the end of the prefix stays
        self.path = self.path[len(prefix) - 1 :]
        return super().send_head()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002 - the base class has `path`
        """Answer with 404: the pages need no list of a folder's files."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        """Add the headers of every response."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - in the base class
        """Log nothing: request paths contain the names of runs, and the log would fill the
        screen.
        """
