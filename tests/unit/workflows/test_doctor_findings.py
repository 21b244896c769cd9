"""Tests of what `doctor` says of the data of the run that is meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.evaluation import RunRequest
from eval_factory.demo.example import write_example
from eval_factory.workflows import doctor
from facts import says


def finding(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], **flags: Any) -> doctor.Finding:
    """The data's line, of a run against the embedded endpoint."""
    request = RunRequest(
        flags={
            "config.type": "medec",
            "config.output_dir": "results",
            "target.api_endpoint.url": "demo://baseline",
            "target.api_endpoint.model_id": "demo",
            "target.api_endpoint.type": "chat",
            **{name.replace("__", "."): value for name, value in flags.items()},
        }
    )
    monkeypatch.setattr(doctor, "_network_findings", lambda _env: iter(()))
    monkeypatch.setattr("eval_factory.core.sandbox.require_working", lambda _why: None)
    (found,) = [one for one in doctor.examine(request, env) if one.about == "data"]
    return found


@pytest.mark.parametrize(
    ("env", "hub_answers", "works", "facts"),
    [
        ({}, True, True, ["not downloaded", "Hugging Face"]),
        ({}, False, None, ["not downloaded", "hub cannot be reached", "data pull head_qa"]),
        ({"HF_HUB_OFFLINE": "1"}, True, None, ["HF_HUB_OFFLINE", "data pull head_qa"]),
    ],
)
def test_data_that_are_not_here_are_said_to_be_so(
    env: dict[str, str],
    hub_answers: bool,
    works: bool | None,
    facts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hub(_env: object) -> str:
        if not hub_answers:
            raise ConnectionError("no route")
        return "answers"

    monkeypatch.setattr(doctor, "_hub_text", hub)
    found = finding(monkeypatch, env, config__type="head_qa")
    assert found.works is works
    says(found.text, *facts)


def test_data_from_github_need_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def hub(_env: object) -> str:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(doctor, "_hub_text", hub)
    found = finding(monkeypatch, {"HF_HUB_OFFLINE": "1"}, config__type="medec")
    assert found.works is None
    says(found.text, "not downloaded", "GitHub", "data pull medec")


def test_files_of_the_user_need_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hub(_env: object) -> str:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(doctor, "_hub_text", hub)
    write_example(tmp_path)
    own = {
        "config__type": "custom",
        "config__params__extra__benchmark": str(tmp_path / "benchmark.yaml"),
    }
    found = finding(monkeypatch, {}, **own)
    assert found.works is True
    says(found.text, "your own files")


def test_doctor_knows_the_versions_of_python_that_the_package_names(root: Path) -> None:
    """Metadata, the checks' sessions and the workflow name them, too."""
    listed = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", (root / "pyproject.toml").read_text("utf-8")
    )
    assert list(doctor.KNOWN_PYTHONS) == listed
    assert re.findall(r'"(3\.\d+)"', (root / "noxfile.py").read_text("utf-8"))[: len(listed)] == (
        listed
    )
    minor = int(listed[-1].partition(".")[2])
    assert f'requires-python = ">={listed[0]},<3.{minor + 1}"' in (
        (root / "pyproject.toml").read_text("utf-8")
    )


def test_an_endpoint_of_pictures_is_not_asked_and_metrics_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer would be paid for."""
    monkeypatch.setattr(doctor, "_network_findings", lambda _env: iter(()))
    monkeypatch.setattr("eval_factory.core.sandbox.require_working", lambda _why: None)
    monkeypatch.setattr(doctor, "look_for_prerequisites", lambda _plan: None)
    monkeypatch.setattr(doctor, "probe", lambda *_: pytest.fail("it was asked"))
    monkeypatch.setenv("EVAL_FACTORY_HEIM", str(tmp_path / "nowhere"))
    flags = {
        "config.type": "helm:radiology",
        "config.output_dir": str(tmp_path / "results"),
        "target.api_endpoint.url": "http://127.0.0.1:9/v1",
        "target.api_endpoint.model_id": "m",
        "target.api_endpoint.type": "images",
    }
    findings = {one.about: one for one in doctor.examine(RunRequest(flags=flags), {})}
    assert findings["endpoint"].works is None
    assert "not asked" in findings["endpoint"].text
    assert findings["metrics"].works is None
    says(findings["metrics"].text, "not computed: CLIPScore", "not installed", "torch")
    assert findings["heim"].works is None
    assert "upstream install heim" in findings["heim"].text
