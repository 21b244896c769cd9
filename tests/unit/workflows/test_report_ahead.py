"""What is found while helm-run works: nothing of it is made again for the report."""

from __future__ import annotations

import importlib
from importlib import metadata
from pathlib import Path

import pytest

import eval_factory
from eval_factory.report.page import document
from eval_factory.report.plots import svg_plot
from eval_factory.scoring import provenance, run_environment
from eval_factory.workflows import report_ahead, unchanged
from eval_factory.workflows.report_ahead import (
    FOUND_AHEAD,
    NEEDED_TO_REPORT,
    commit_of_this,
    compile_the_page,
    read_the_packages,
    read_the_program,
)


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> None:
    for kept in (
        document.page_environment, svg_plot._template, provenance._version, run_environment.installed_packages,
        unchanged.program_of_this,
    ):  # fmt: skip
        kept.cache_clear()


def test_the_page_has_its_templates_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_the_page()
    environment = document.page_environment()
    monkeypatch.setattr(environment, "compile", lambda *_, **__: pytest.fail("compiled again"))
    for name in ("page.html.j2", "run.html.j2", "beside.html.j2", "instances.html.j2"):
        environment.get_template(name)
    assert svg_plot._template.cache_info().currsize == 1


def test_every_template_of_the_page_is_among_them() -> None:
    environment = document.page_environment()
    assert environment.loader is not None
    named = {name for name in environment.loader.list_templates() if name.endswith(".html.j2")}
    assert set(document.TEMPLATES) == named - {"suite.html.j2", "rater_form.html.j2"}


def test_the_packages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_the_packages()
    monkeypatch.setattr(metadata, "version", lambda _: pytest.fail("read again"))
    monkeypatch.setattr(metadata, "distributions", lambda: pytest.fail("read again"))
    assert provenance.versions_of_packages()["numpy"]
    assert "numpy==" in run_environment.installed_packages()


def test_the_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_the_program()
    monkeypatch.setattr(unchanged, "sha256_of", lambda _: pytest.fail("read again"))
    assert len(unchanged.program_of_this()) == 64


def test_a_program_that_is_installed_is_of_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_ahead, "git_hash", lambda _: pytest.fail("git was asked"))
    package = Path(eval_factory.__file__).parent
    monkeypatch.setattr(report_ahead, "framework_path", lambda: package / "framework.yml")
    assert commit_of_this() is None


def test_all_of_it_is_there() -> None:
    assert list(FOUND_AHEAD) == [compile_the_page, read_the_packages, read_the_program, commit_of_this]
    for name in NEEDED_TO_REPORT:
        assert importlib.import_module(name).__name__ == name
