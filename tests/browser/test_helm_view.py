"""`eval-factory view` in a real browser: HELM's page of a run shows its score and its questions, and asks no other host."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Chromium
from eval_factory.report.reader import load_result
from program_runs import program_environment
from programs import EVAL_FACTORY, eval_factory, ran, run_eval

WAIT_S = 20
MODEL = "<img src=x onerror=document.title='ran'>/${7*7}"


def environment(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir(exist_ok=True)
    return program_environment(TMPDIR=str(folder / "tmp"), TEST_KEY="sk-0123456789abcdef0123")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an odd name, of a model with a hostile one."""
    here = tmp_path_factory.mktemp("view")
    folder = here / "odd <b> & näme"
    argv = run_eval(
        folder,
        "demo://baseline",
        "--limit_samples",
        "4",
        "--model_id",
        MODEL,
        "--model_type",
        "chat",
    )
    finished = ran(argv, env=environment(here))
    assert finished.returncode == 0, finished.stderr
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shown(browser: Chromium, address: str, words: str) -> str:
    """The text of a page, as soon as these words are in it; no other host was asked for anything."""
    browser.open(address)
    browser.wait("document.body && document.body.innerText.includes(arguments[0])", words)
    hosts = {
        url.partition("://")[2].partition("/")[0]
        for url in browser.requested()
        if url.startswith(("http", "ws"))
    }
    assert hosts == {address.split("/")[2]}
    return browser.text()


@pytest.fixture(scope="module")
def view(result: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*EVAL_FACTORY, "view", str(result), "--no-browser"],
        env=environment(result.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_page_is_served_until_the_program_ends(
    result: Path, view: subprocess.Popen[str], browser: Chromium
) -> None:
    before = content(result)
    assert view.stdout is not None
    address = view.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", address), view.communicate()
    stored = load_result(result)
    first = next(iter(stored.result.instances))
    question = first.prompt.partition("Question: ")[2].partition("\n")[0]
    assert question
    text = shown(browser, address, question)
    assert "demo baseline" in text
    assert MODEL in text, "as text, not as markup"
    assert browser.run("return document.title") != "ran"
    score = stored.result.scores[stored.result.main_metric].value
    table = shown(browser, f"{address}#/leaderboard", "Main metric")
    assert f"\n{score:g}" in table
    view.send_signal(signal.SIGTERM)
    assert view.wait(WAIT_S) == 0
    assert list((result.parent / "tmp").glob("eval-factory-view-*")) == []
    assert content(result) == before


def test_two_runs_of_one_model_are_files_that_any_server_shows(
    result: Path, browser: Chromium
) -> None:
    again = result.with_name("again")
    site = result.with_name("site")
    shutil.copytree(result, again)
    finished = eval_factory(
        "view", str(result), str(again), "--export", str(site), env=environment(result.parent)
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{site}\n"
    assert "python -m http.server" in finished.stderr
    names = {"index.html", "config.js", "groups.json", "runs.json", "sample_medical_qa.json"}
    files = [file for file in site.rglob("*") if file.name in names]
    assert {file.name for file in files} == names
    assert not [file for file in files if str(result.parent) in file.read_text("utf-8")], (
        "a path of this machine"
    )
    shutil.rmtree(again)
    argv = [
        sys.executable,
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "--directory",
        str(site),
        "0",
    ]
    server = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        host = re.search(r"127\.0\.0\.1 port (\d+)", server.stdout.readline())
        assert host is not None
        address = f"http://127.0.0.1:{host[1]}/"
        table = shown(browser, address, "Main metric")
        assert "(1: odd <b> & näme)" in table
        assert "(2: again)" in table
        shown(browser, f"{address}#/groups/sample_medical_qa", "Quasi-exact match")
    finally:
        server.terminate()
        server.communicate()
