"""HELM's pages of given folders: made, written, served to this machine alone."""

from __future__ import annotations

import http.client
import io
import json
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.report.reader import run_folders
from eval_factory.workflows import view, view_site
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.view import HEADERS, PageServer
from eval_factory.workflows.view_site import (
    CONTENT_SECURITY_POLICY,
    NO_SCORE,
    suite_folder,
    viewed_runs,
    write_run_folders,
)
from facts import naming
from stored_results import instance, result, right_or_wrong, written
from unit.scoring.test_collect import FOUR, state, write_run

Told = list[tuple[Path, list[str], RunContext]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """helm-summarize writes what the page of a run is made of, and a table that names its own place."""
    calls: Told = []

    def summarize(context: RunContext, argv: Sequence[str], *, keeps_log: bool) -> None:
        assert not keeps_log
        assert context.lock.descriptor
        calls.append((context.rundir.root, list(argv), context))
        suite = Path(argv[argv.index("--output-path") + 1]) / "runs/view"
        for run in suite.iterdir():
            (run / view.SHOWN_ANSWERS).write_text("[]")
        (suite / "groups.json").write_text(f'"{suite}/x.tex"')

    monkeypatch.setattr(view_site, "run_helm_summarize", summarize)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return calls


def exported(folders: Sequence[Path], target: Path, **env: str) -> view.Pages:
    return view.write_pages(folders, target, env=env, screen=io.StringIO())


def test_pages_as_files(told: Told, tmp_path: Path) -> None:
    before = tree(finished(tmp_path / "a"))
    pages = exported([tmp_path / "a"], tmp_path / "new/site")
    assert (pages.folder, pages.address) == (tmp_path / "new/site", None)
    assert stat.S_IMODE(pages.folder.stat().st_mode) == 0o700, "patients' texts"
    assert (pages.folder / view_site._INDEX).is_file()
    suite = suite_folder(pages.folder)
    assert (suite / RUN / "stats.json").is_file()
    assert not [path for path in pages.folder.rglob("*") if path.is_symlink()]
    assert (suite / "groups.json").read_text() == '"benchmark_output/runs/view/x.tex"'
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["site"], (
        "nothing is left beside it"
    )
    (suite / RUN / "stats.json").write_text("changed")
    assert tree(tmp_path / "a") == before


def test_an_empty_folder_is_taken_and_any_other_is_refused(told: Told, tmp_path: Path) -> None:
    finished(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert exported([tmp_path / "a"], tmp_path / "empty").folder == tmp_path / "empty"
    file = tmp_path / "file"
    full = tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in (file, full, tmp_path / "link"):
        with pytest.raises(ConfigError, match="exists and is not an empty folder"):
            exported([tmp_path / "a"], target)
    assert file.read_text() == (full / "mine").read_text() == "mine"
    with pytest.raises(ConfigError, match=naming("inside of", "output folder")):
        exported([tmp_path / "a"], tmp_path / "a/site")
    assert len(told) == 1


def test_a_helm_summarize_that_fails(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise HelmError("helm-summarize ended with 1:\n  | its last line")

    monkeypatch.setattr(view_site, "run_helm_summarize", fail)
    with pytest.raises(
        HelmError, match=naming("ended with 1", "| its last line", "verify DIR", "--fresh")
    ):
        exported([finished(tmp_path / "a")], tmp_path / "site")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "tmp"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    (tmp_path / "site/sub").mkdir(parents=True)
    (tmp_path / "site/index.html").write_text("the page")
    (tmp_path / "site/a=b,c.json").write_text("{}")
    (tmp_path / "outside.txt").write_text("outside")
    with PageServer(tmp_path / "site") as server:
        yield server


def ask(
    server: PageServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, str, dict[str, str]]:
    """`path` begins behind the secret part, unless it begins with a slash."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    asked = path if path.startswith("/") else parts.path + path
    connection.putrequest(method, asked, skip_host=True)
    connection.putheader("Host", host or parts.netloc)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


@pytest.mark.parametrize("path", ["", "index.html", "?x=1"])
def test_the_page_is_there(path: str, server: PageServer) -> None:
    status, text, headers = ask(server, path)
    assert (status, text) == (200, "the page")
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_nothing_else_is_there_nor_for_another_name_and_nothing_can_be_sent(
    server: PageServer,
) -> None:
    for path in (
        "/",
        "/index.html",
        "/x/index.html",
        "//",
        "sub/",
        "../outside.txt",
        "%2e%2e/outside.txt",
        "no",
    ):
        status, text, headers = ask(server, path)
        assert status == 404
        assert "the page" not in text
        assert "outside" not in text
        assert "connect-src" in headers["Content-Security-Policy"]
    assert [
        ask(server, "", host=host)[0] for host in ("evil.example", "localhost:1", "127.0.0.1")
    ] == [404] * 3
    assert ask(server, "", method="POST")[0] == 501


def test_it_listens_on_this_machine_alone_and_the_address_is_a_secret(tmp_path: Path) -> None:
    with PageServer(tmp_path) as one, PageServer(tmp_path) as two:
        parts = urlsplit(one.address)
        assert parts.hostname == "127.0.0.1"
        assert len(parts.path) >= 22
        assert parts.path.endswith("/")
        assert parts.path != urlsplit(two.address).path
        assert one.server_address[0] == "127.0.0.1"


def test_the_port_can_be_given_and_is_free_again(tmp_path: Path) -> None:
    with PageServer(tmp_path) as first:
        port = urlsplit(first.address).port
        assert port is not None
        with pytest.raises(PrerequisiteError, match=naming(f"port {port}", "127.0.0.1", "--port")):
            PageServer(tmp_path, port)
    with PageServer(tmp_path, port) as second:
        assert urlsplit(second.address).port == port
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


RUN = "pubmed_qa_model=endpoint_m"


def finished(
    folder: Path, run: str = RUN, values: dict[str, list[Any]] | None = None, **spec: Any
) -> Path:
    """A result with HELM's files; `spec` goes over run_spec.json."""
    if not (folder / "evaluation_config.yaml").is_file():
        right_or_wrong(folder, "1010")
    runs = [f"helm/runs/s/{run}"]
    write_run(
        folder / runs[0], [state(i, "yes") for i in range(4)], values or {"exact_match": [*FOUR]}
    )
    state_file: dict[str, Any] = {
        "identity": "i",
        "versions": {},
        "run_id": "r",
        "wall_s": 1.0,
        "runs": runs,
        "complete": True,
        "data_bundle": None,
        "data_files": {},
        "all_files": None,
    }
    (folder / ".run_state.json").write_text(json.dumps(state_file))
    whole = {
        "name": run.replace("_model", ":model"),
        "groups": ["pubmed_qa"],
        "metric_specs": [],
        "scenario_spec": {"class_name": "a.B", "args": {}},
        "adapter_spec": {
            "model": "endpoint/m",
            "model_deployment": "endpoint/m",
            "method": "generation",
        },
    }
    (folder / runs[0] / "run_spec.json").write_text(json.dumps({**whole, **spec}))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_of_one_folder(tmp_path: Path) -> None:
    (run,) = viewed_runs([finished(tmp_path / "a")])
    assert (run.name, run.model, run.shown_model) == (RUN, "endpoint/m", "org/model")
    assert run.folder == tmp_path / "a" / "helm/runs/s" / RUN
    assert run.spec["name"] == RUN
    assert run.spec["adapter_spec"] == {
        "model": "endpoint/m",
        "model_deployment": "endpoint/m",
        "method": "generation",
    }
    assert (run.page.task, run.page.groups) == ("pubmed_qa", ("pubmed_qa",))
    assert (run.page.main_metric, run.page.main_split) == ("exact_match", "test")
    assert run.page.metrics == ("exact_match",), "neither what is counted nor what has no mean"


def test_a_metric_that_a_template_would_execute_is_left_out(tmp_path: Path) -> None:
    (run,) = viewed_runs(
        [finished(tmp_path / "a", values={"${1/0}": [*FOUR], "exact_match": [*FOUR]})]
    )
    assert run.page.metrics == ("exact_match",)
    written(tmp_path / "b", result([instance("q", 1.0)], ("${1/0}",)))
    (run,) = viewed_runs([finished(tmp_path / "b", values={"${1/0}": [*FOUR]})])
    assert (run.page.main_metric, run.page.metrics) == (NO_SCORE, ())


def test_two_folders_of_one_model_and_run_have_a_row_each(tmp_path: Path) -> None:
    folders = run_folders(
        [finished(tmp_path / "a"), finished(tmp_path / "b"), tmp_path / "b" / ".." / "a"]
    )
    runs = viewed_runs(folders)
    assert [run.name for run in runs] == [f"{RUN}-1", f"{RUN}-2"], (
        "a folder that is named twice counts once"
    )
    assert [run.model for run in runs] == ["endpoint/m-1", "endpoint/m-2"]
    assert [run.spec["adapter_spec"]["model_deployment"] for run in runs] == [
        "endpoint/m-1",
        "endpoint/m-2",
    ]
    assert [run.shown_model for run in runs] == ["org/model (1: a)", "org/model (2: b)"]


def test_what_is_not_whole_is_said_in_the_row(tmp_path: Path) -> None:
    right_or_wrong(tmp_path / "a", "10x1", status="partial")
    right_or_wrong(tmp_path / "b", "10x1", status="partial", reportable=False)
    assert (
        viewed_runs([finished(tmp_path / "a")])[0].shown_model == "org/model [partial: pubmed_qa]"
    )
    assert (
        viewed_runs([finished(tmp_path / "b")])[0].shown_model
        == "org/model [NOT REPORTABLE: pubmed_qa]"
    )


def test_names_become_such_as_files_can_have(tmp_path: Path) -> None:
    long = "custom_" + "p" * 200 + "_model=endpoint_m"
    arguments = {"config_path": "/home/me/" + "q" * 90, "n": 3, "big": True, "data": "/home/x/"}
    spec: dict[str, Any] = {
        "groups": ["../x", "$y"],
        "scenario_spec": {"class_name": "a.B", "args": arguments},
        "adapter_spec": {"model": "endpoint/<b>", "model_deployment": "endpoint/<b>"},
    }
    (run,) = viewed_runs([finished(tmp_path / "a", long, **spec)])
    assert (len(run.name), run.name[:10], run.model) == (159, "custom_ppp", "endpoint/_b_")
    assert run.spec["groups"] == [*run.page.groups] == ["_x", "_y"]
    assert run.spec["scenario_spec"]["args"] == {
        "config_path": "q" * 40,
        "n": 3,
        "big": True,
        "data": "x",
    }
    other = finished(tmp_path / "b", "custom_" + "p" * 200 + "_model=endpoint_n")
    assert len({one.name for one in viewed_runs([tmp_path / "a", other])}) == 2


FILES = ["run_spec.json", "stats.json", "per_instance_stats.json", "scenario_state.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_result_whose_helm_files_were_deleted_is_refused(name: str, tmp_path: Path) -> None:
    finished(tmp_path / "a")
    (tmp_path / "a/helm/runs/s" / RUN / name).unlink()
    said = rf"HELM's files are missing \({name}\)(.|\n)*run the same evaluation"
    with pytest.raises(PrerequisiteError, match=said):
        viewed_runs([tmp_path / "a"])


@pytest.mark.parametrize(
    "change",
    [{"groups": [1]}, {"groups": None}, {"adapter_spec": []}, {"scenario_spec": None}],
    ids=["a number as group", "no groups", "a list as adapter", "no scenario"],
)
def test_a_run_spec_of_another_form_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(HelmError, match=r"run_spec\.json cannot be read"):
        viewed_runs([finished(tmp_path / "a", **change)])


def test_the_given_folders_stay_as_they_are_and_are_linked(tmp_path: Path) -> None:
    before = tree(finished(tmp_path / "a"))
    runs = viewed_runs([tmp_path / "a"])
    write_run_folders(runs, tmp_path / "suite", copies=False)
    made = tmp_path / "suite" / RUN
    assert {path.name for path in made.iterdir()} == set(FILES)
    assert json.loads((made / "run_spec.json").read_text()) == runs[0].spec
    assert not (made / "run_spec.json").is_symlink()
    assert (made / "stats.json").is_symlink()
    assert (made / "stats.json").read_bytes() == (runs[0].folder / "stats.json").read_bytes()
    assert tree(tmp_path / "a") == before


HTML = """<!doctype html>
<html>
  <head>
    <link rel="icon" type="image/svg+xml" href="https://crfm.stanford.edu/helm/helm.svg" />
    <script type="module" crossorigin src="./assets/index.js"></script>
    <link rel="stylesheet" crossorigin href="./assets/index.css">
  </head>
  <body><div id="root"></div></body>
</html>
"""


def test_the_page_asks_no_other_host() -> None:
    html = view_site.without_external_hosts(HTML)
    assert "//" not in html
    assert html.count('<script type="module" crossorigin src="./assets/index.js"></script>') == 1
    assert 'href="./assets/index.css"' in html
    assert '<link rel="icon" href="data:," />' in html
    policy = html.index(
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}" />'
    )
    assert html.index("<head>") < policy < html.index("<script"), (
        "a policy holds for what comes behind it"
    )
    assert '<meta name="referrer" content="no-referrer" />' in html


def test_the_policy_names_no_host_and_no_inline_script() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in CONTENT_SECURITY_POLICY.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == rules["font-src"] == "'self'"
    words = set(chain.from_iterable(sources.split() for sources in rules.values()))
    assert words == {"'none'", "'self'", "'unsafe-inline'", "data:"}


def test_the_folders_own_path_is_in_no_file(tmp_path: Path) -> None:
    site = tmp_path / 'a "quoted" näme'
    suite = suite_folder(site)
    (suite / "groups/json").mkdir(parents=True)
    (suite / "run").mkdir()
    document = {"href": f"{site}/benchmark_output/x.tex", "other": "/elsewhere/x"}
    files = [suite / "runs.json", suite / "groups/a.json", suite / "groups/json/a.json"]
    for file in (*files, suite / "run/instances.json"):
        file.write_text(json.dumps(document))
    view_site.make_links_relative(site)
    for file in files:
        assert json.loads(file.read_text()) == {
            "href": "benchmark_output/x.tex",
            "other": "/elsewhere/x",
        }
    assert json.loads((suite / "run/instances.json").read_text()) == document, (
        "what was asked is data"
    )


def test_what_helm_names_by_a_scenarios_arguments_has_no_colon(tmp_path: Path) -> None:
    for folder in ("latex", "json"):
        (tmp_path / "groups" / folder).mkdir(parents=True)
        (tmp_path / "groups" / folder / "a_mode:easy.tex").write_text("x")
    (tmp_path / "groups" / "a.json").write_text(
        '{"href": "/x/latex/a_mode:easy.tex", "title": "mode: easy"}'
    )
    view_site.rename_files_with_colons(tmp_path)
    view_site.rename_files_with_colons(tmp_path)
    assert not list(tmp_path.rglob("*:*"))
    assert (tmp_path / "groups" / "latex" / "a_mode_easy.tex").is_file()
    assert (
        json.loads((tmp_path / "groups" / "a.json").read_text())["href"]
        == "/x/latex/a_mode_easy.tex"
    )
    assert "mode: easy" in (tmp_path / "groups" / "a.json").read_text()
