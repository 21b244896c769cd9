from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.view_site import (
    POLICY,
    configuration,
    first_page,
    forget_place,
    front_end,
    installed,
    suite_folder,
    without_colons,
    without_others,
    write_site,
)

HTML = """<!doctype html>
<html>
  <head>
    <link rel="icon" type="image/svg+xml" href="https://crfm.stanford.edu/helm/helm.svg" />
    <script async src="https://www.googletagmanager.com/gtag/js"></script>
    <LINK href='//fonts.example/css' rel="stylesheet">
    <script type="module" crossorigin src="./assets/index.js"></script>
    <link rel="stylesheet" crossorigin href="./assets/index.css">
  </head>
  <body><div id="root"></div></body>
</html>
"""


def test_the_installed_front_end_is_found() -> None:
    assert (front_end() / "index.html").is_file()
    assert installed("benchmark", "static", "schema_medhelm.yaml") is not None
    assert installed("benchmark", "no_such_thing") is None


@pytest.mark.parametrize("package", ["no_such_package", "json"])
def test_a_helm_without_pages_is_said(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: find(package))
    with pytest.raises(PrerequisiteError, match="has no web pages"):
        front_end()


def test_the_page_asks_no_other_host() -> None:
    html = without_others(HTML)
    assert "//" not in html
    assert html.count('<script type="module" crossorigin src="./assets/index.js"></script>') == 1
    assert 'href="./assets/index.css"' in html
    assert '<link rel="icon" href="data:," />' in html
    policy = html.index(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />')
    assert html.index("<head>") < policy < html.index("<script"), "a policy holds for what comes behind it"
    assert '<meta name="referrer" content="no-referrer" />' in html


def test_the_policy_names_no_host_and_no_inline_script() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == rules["font-src"] == "'self'"
    assert {word for sources in rules.values() for word in sources.split()} == {
        "'none'", "'self'", "'unsafe-inline'", "data:",
    }  # fmt: skip


def test_the_configuration_leads_past_the_landing_page() -> None:
    text = configuration('/runs/a"b')
    assert 'window.SUITE = "view";' in text
    assert 'window.BENCHMARK_OUTPUT_BASE_URL = "benchmark_output";' in text
    assert text.endswith('window.location.hash = "/runs/a\\"b";\n')
    assert 'if (["", "#", "#/"].includes(window.location.hash))' in text


def test_what_is_shown_first() -> None:
    assert first_page(["x_model=a/b,c"]) == "/runs/x_model%3Da%2Fb%2Cc"
    assert first_page(["a", "b"]) == "/leaderboard"


def test_a_site_is_the_front_end_with_our_page_and_configuration(tmp_path: Path) -> None:
    (tmp_path / "source/assets").mkdir(parents=True)
    (tmp_path / "source/index.html").write_text(HTML)
    (tmp_path / "source/config.js").write_text("window.RELEASE = 1")
    (tmp_path / "source/assets/index.js").write_text("js")
    suite = write_site(tmp_path / "site", tmp_path / "source", "/leaderboard")
    assert suite == suite_folder(tmp_path / "site") == tmp_path / "site/benchmark_output/runs/view"
    assert list(suite.iterdir()) == []
    assert (tmp_path / "site/assets/index.js").read_text() == "js"
    assert (tmp_path / "site/index.html").read_text() == without_others(HTML)
    assert (tmp_path / "site/config.js").read_text() == configuration("/leaderboard")
    assert (tmp_path / "source/index.html").read_text() == HTML


def test_the_folders_own_path_is_in_no_file(tmp_path: Path) -> None:
    site = tmp_path / 'a "quoted" näme'
    suite = suite_folder(site)
    (suite / "groups/json").mkdir(parents=True)
    (suite / "run").mkdir()
    document = {"href": f"{site}/benchmark_output/x.tex", "other": "/elsewhere/x"}
    files = [suite / "runs.json", suite / "groups/a.json", suite / "groups/json/a.json"]
    for file in (*files, suite / "run/instances.json"):
        file.write_text(json.dumps(document))
    forget_place(site)
    for file in files:
        assert json.loads(file.read_text()) == {"href": "benchmark_output/x.tex", "other": "/elsewhere/x"}
    assert json.loads((suite / "run/instances.json").read_text()) == document, "what was asked is data"


def test_what_helm_names_by_a_scenarios_arguments_has_no_colon(tmp_path: Path) -> None:
    for folder in ("latex", "json"):
        (tmp_path / "groups" / folder).mkdir(parents=True)
        (tmp_path / "groups" / folder / "a_mode:easy.tex").write_text("x")
    (tmp_path / "groups" / "a.json").write_text('{"href": "/x/latex/a_mode:easy.tex", "title": "mode: easy"}')
    without_colons(tmp_path)
    without_colons(tmp_path)
    assert not list(tmp_path.rglob("*:*"))
    assert (tmp_path / "groups" / "latex" / "a_mode_easy.tex").is_file()
    assert json.loads((tmp_path / "groups" / "a.json").read_text())["href"] == "/x/latex/a_mode_easy.tex"
    assert "mode: easy" in (tmp_path / "groups" / "a.json").read_text()
