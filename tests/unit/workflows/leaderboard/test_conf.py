"""Where a leaderboard's conf is from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.workflows.leaderboard import conf
from eval_factory.workflows.leaderboard.conf import conf_of
from eval_factory.workflows.leaderboard.registry import find

LITE, WITHOUT_ORGANIZATION = find("lite"), find("medhelm_private")
ADDRESS = f"https://raw.githubusercontent.com/stanford-crfm/helm/v1.2.3/src/helm/benchmark/presentation/{LITE.conf}"
HINT = "have it in a file and give that with --conf FILE (or --data_dir DIR, with DIR/presentation/)"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Downloads, of which each gives a text."""
    found: list[tuple[str, Any]] = []

    def get(address: str, timeout: object = None) -> Any:
        found.append((address, timeout))
        return SimpleNamespace(text="downloaded", raise_for_status=lambda: None)

    monkeypatch.setattr(requests, "get", get)
    monkeypatch.setattr(conf, "helm_version", lambda: "1.2.3")
    return found


def bundle(folder: Path) -> Path:
    file = folder / "bundle" / "presentation" / LITE.conf
    file.parent.mkdir(parents=True)
    file.write_text("bundled é", "utf-8")
    return folder / "bundle"


def test_a_file_is_before_all_else(tmp_path: Path, asked: list[tuple[str, Any]]) -> None:
    file = tmp_path / "my.conf"
    file.write_text("mine é", "utf-8")
    assert conf_of(LITE, file=file, data_dir=bundle(tmp_path)) == ("mine é", str(file))
    assert conf_of(WITHOUT_ORGANIZATION, file=file, data_dir=None) == ("mine é", str(file))
    assert asked == []


def test_a_bundle_is_before_the_network(tmp_path: Path, asked: list[tuple[str, Any]]) -> None:
    folder = bundle(tmp_path)
    assert conf_of(LITE, file=None, data_dir=folder) == ("bundled é", str(folder / "presentation" / LITE.conf))
    assert asked == []


def test_a_bundle_without_it_says_how_to_get_it(tmp_path: Path, asked: list[tuple[str, Any]]) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        conf_of(LITE, file=None, data_dir=tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'presentation' / LITE.conf} is not there\n"
        f"  with a network: eval-factory data pull leaderboards --to {tmp_path};"
        f" or give {LITE.conf} of HELM's repository with --conf FILE"
    )
    assert asked == []


def test_it_is_downloaded_at_the_tag_of_the_installed_helm(asked: list[tuple[str, Any]]) -> None:
    assert conf_of(LITE, file=None, data_dir=None) == ("downloaded", ADDRESS)
    assert asked == [(ADDRESS, 20.0)]


def test_who_only_looks_downloads_nothing(asked: list[tuple[str, Any]]) -> None:
    assert conf_of(LITE, file=None, data_dir=None, look_only=True) == (None, ADDRESS)
    assert asked == []


def test_an_organization_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="whose benchmarks") as caught:
        conf_of(WITHOUT_ORGANIZATION, file=None, data_dir=None)
    assert "(medhelm_private_stanford)" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (requests.ConnectionError("no route"), "ConnectionError"),
        (requests.HTTPError("404", response=SimpleNamespace(status_code=404)), "HTTP 404"),  # type: ignore[arg-type]
        (requests.HTTPError("no response"), "HTTPError"),
    ],
)
def test_a_download_that_fails_says_why_and_what_to_do(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(requests, "get", lambda *_, **__: SimpleNamespace(raise_for_status=fails, text="an error page"))
    with pytest.raises(PrerequisiteError) as caught:
        conf_of(LITE, file=None, data_dir=None)
    assert str(caught.value) == f"the leaderboard's conf cannot be downloaded: {reason} from {ADDRESS}\n  {HINT}"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "my.conf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        conf_of(LITE, file=file, data_dir=None)
    assert str(caught.value).startswith(f"{file} cannot be read: ")
