"""Which versions of HELM are supported, and what is refused with another one."""

from __future__ import annotations

from importlib import metadata

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm import packages


def test_the_installed_one_is_supported() -> None:
    assert packages.installed_helm() == metadata.version("crfm-helm")
    assert packages.installed_helm() in packages.SUPPORTED_HELM


@pytest.mark.parametrize(
    ("helm", "run_spec", "refused"),
    [
        ("0.5.16", "ehr_sql", False), ("0.5.17", "ehr_sql", True), ("0.5.15", "aci_bench", True),
        ("0.5.17", "medhelm_configurable_benchmark", True), ("0.5.17", "pubmed_qa", False), ("0.5.17", "unknown", False),
    ],
)  # fmt: skip
def test_what_is_refused(helm: str, run_spec: str, refused: bool) -> None:
    assert packages.is_refused(helm, run_spec) is refused


def test_it_is_said_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: "0.5.99")
    packages.look_for_packages("pubmed_qa", "pubmed_qa")
    packages.look_for_helm()
    with pytest.raises(PrerequisiteError) as refused:
        packages.look_for_packages("my_task", "ehr_sql")
    first, _, command, last = str(refused.value).splitlines()
    assert first == "my_task needs HELM (crfm-helm) 0.5.16; 0.5.99 is installed"
    assert command.endswith("pip install crfm-helm==0.5.16")
    assert last == "  nothing was asked"
