"""With what a run was made, without the machine's name, its user's or a path."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.scoring import run_environment
from eval_factory.tasks.framework import framework_path


def test_the_kind_of_machine_and_not_which_one_it_is() -> None:
    found = run_environment.platform_of_this()
    assert found["system"] == platform.system()
    assert found["machine"] == platform.machine()
    assert found["implementation"] == platform.python_implementation()
    assert found.keys() <= {"system", "distribution", "libc", "machine", "implementation"}


@pytest.mark.parametrize(
    ("system", "release", "distribution"),
    [
        ("Linux", {"PRETTY_NAME": "Some Linux 1"}, "Some Linux 1"),
        ("Linux", {}, None),
        ("Linux", None, None),
        ("Darwin", None, "25.1"),
    ],
)
def test_the_system_by_name(
    system: str, release: dict[str, str] | None, distribution: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def os_release() -> dict[str, str]:
        if release is None:
            raise OSError
        return release

    monkeypatch.setattr(platform, "freedesktop_os_release", os_release)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "release", lambda: "25.1")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    found = run_environment.platform_of_this()
    assert found.get("distribution") == distribution
    assert found["libc"] == "glibc 2.36"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert "libc" not in run_environment.platform_of_this()


def test_every_package_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [("Zebra_Pack", "2"), ("a.b--C", "1.0"), ("a.b--C", "1.0"), (None, "3")]
    installed: list[Any] = [
        SimpleNamespace(metadata={"Name": name}, version=version, read_text=lambda _: None) for name, version in names
    ]
    monkeypatch.setattr(metadata, "distributions", lambda: installed)
    run_environment.installed_packages.cache_clear()
    try:
        assert run_environment.installed_packages() == "a-b-c==1.0\nzebra-pack==2\n"
        assert run_environment.lock_sha256() == hashlib.sha256(b"a-b-c==1.0\nzebra-pack==2\n").hexdigest()
    finally:
        run_environment.installed_packages.cache_clear()


def test_what_is_installed_here_is_there() -> None:
    lines = run_environment.installed_packages().splitlines()
    assert lines == sorted(set(lines))
    assert f"pytest=={pytest.__version__}" in lines


def test_the_frameworks_file() -> None:
    assert run_environment.framework_sha256() == hashlib.sha256(framework_path().read_bytes()).hexdigest()


def test_when_a_run_began_and_ended(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    told = [("mine", 1_000_000_030.9), ("other", 5.0), ("mine", 1_000_000_000.2), ("other", 2e9)]
    lines = [json.dumps({"time": time, "run_id": run, "event": "phase", "of": "mine"}) for run, time in told]
    events.write_text("\n".join([*lines, '{"run_id": "mine"}', '["mine"]', '{"run_id": "mine", "time": 1']))
    assert run_environment.began_and_ended(events, "mine") == ("2001-09-09T01:46:40Z", "2001-09-09T01:47:10Z")
    assert run_environment.began_and_ended(events, "nobody") == (None, None)
    assert run_environment.began_and_ended(tmp_path / "none", "mine") == (None, None)


@pytest.mark.parametrize("header", ["Name: Own_Pack\nVersion: 1.5\n", "version: 1.5\nX: y\nNAME: Own_Pack\n"])
def test_a_package_is_named_by_its_header_and_not_by_its_description(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"Metadata-Version: 2.1\n{header}Name: second\n\nName: described\nVersion: 9\n"
    found = SimpleNamespace(metadata={"Name": "by-mail"}, version="0", read_text=lambda name: {"METADATA": text}[name])
    cut = SimpleNamespace(metadata={"Name": "egg"}, version="2", read_text=lambda _: "Name: x\n\nVersion: 3\n")
    monkeypatch.setattr(metadata, "distributions", lambda: [found, cut])
    run_environment.installed_packages.cache_clear()
    try:
        assert run_environment.installed_packages() == "egg==2\nown-pack==1.5\n"
    finally:
        run_environment.installed_packages.cache_clear()
