"""A digit that is changed in any file of a real result is found, whoever recomputes the checksums afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory import api
from eval_factory.core.rundir import RunDir, sha256_of
from integration.jury_endpoint import CANARIES, JUDGES, MODEL, JuryEndpoint
from integration.support import TIMEOUT_S, program_environment
from integration.test_juries import medication_questions

PLACES = int(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))
"""Digits that are changed in each file."""

SAMPLE = [
    "evaluation_config.yaml", "results.yml", "run_config.yml", "results.jsonl", "instances.jsonl", "report.html",
    "report.md", "responses/model.jsonl", "per_instance_stats.json", "run_spec.json", "scenario_state.json", "stats.json",
    "cache.db", ".run_state.json", "attestation.intoto.json",
]  # fmt: skip


def eval_factory(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", *arguments], cwd=cwd, env=program_environment(**env),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished result of a custom benchmark on the embedded endpoint; its files were moved since."""
    home = tmp_path_factory.mktemp("verify")
    ran = eval_factory("new_benchmark", "own", cwd=home)
    assert ran.returncode == 0, ran.stderr
    ran = eval_factory("run_eval", "--run_config", "own/run_config.yml", "--output_dir", "out", cwd=home)
    assert ran.returncode == 0, ran.stderr
    return home / "out"


@pytest.fixture(scope="module")
def jury(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partial result: some judgements are missing."""
    home = tmp_path_factory.mktemp("verify_jury")
    medication_questions(home / "out" / "helm", 7)
    with JuryEndpoint() as server:
        endpoint = {"url": server.url, "model_id": MODEL, "type": "chat", "api_key": "TEST_MODEL_KEY"}
        params = {"limit_samples": 6, "extra": {"judges": JUDGES}}
        config = {"type": "medication_qa", "output_dir": "out", "params": params}
        document = {"config": config, "target": {"api_endpoint": endpoint}}
        (home / "run.yml").write_text(yaml.safe_dump(document), "utf-8")
        ran = eval_factory("run_eval", "--run_config", "run.yml", cwd=home, HF_HUB_OFFLINE="1", **CANARIES)
    assert (home / "out" / "SHA256SUMS").is_file(), ran.stderr
    return home / "out"


@contextmanager
def restored(*files: Path) -> Iterator[None]:
    """What the files held is there again afterwards."""
    contents = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


def path_of(folder: Path, name: str) -> Path:
    found = [path for path in folder.rglob(Path(name).name) if path.as_posix().endswith(name)]
    assert len(found) == 1, (name, found)
    return found[0]


def change_one_digit(file: Path, chance: random.Random) -> str:
    """Returns where it is, for a message."""
    content = bytearray(file.read_bytes())
    left = [place for place, byte in enumerate(content) if chr(byte).isdigit() and byte < 128]
    at = chance.choice([place for place in left if place < _of_this_machine(file, bytes(content))])
    content[at] = ord(str((content[at] - ord("0") + chance.randint(1, 9)) % 10))
    file.write_bytes(content)
    return f"{file.name}, byte {at}: {bytes(content[max(0, at - 40) : at + 20])!r}"


def _of_this_machine(file: Path, content: bytes) -> int:
    """Where .run_state.json begins to say what the result was made with: if it is wrong, the next run collects again."""
    return content.index(b'"inputs"') if file.name == ".run_state.json" else len(content)


def recompute_checksums(folder: Path, name: str) -> None:
    """As somebody would who wants the change to stay unnoticed."""
    rundir = RunDir(folder)
    if name != rundir.attestation.name:
        document: Any = json.loads(rundir.attestation.read_text("utf-8"))
        for subject in [*document["subject"], *document["predicate"]["configuration"]]:
            if subject["name"] == name:
                subject["digest"]["sha256"] = sha256_of(folder / name)
        rundir.attestation.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    lines = rundir.checksums.read_text("utf-8").splitlines()
    names = [line.split("  ", 1)[1] for line in lines]
    rundir.checksums.write_text("".join(f"{sha256_of(folder / one)}  {one}\n" for one in names), "utf-8")


def test_finished_results_are_intact_and_their_checksums_are_sha256sums(sample: Path, jury: Path) -> None:
    before = {path: sha256_of(path) for path in sample.rglob("*") if path.is_file()}
    told = eval_factory("verify", "out", str(jury), "--json", cwd=sample.parent)
    first, second = json.loads(told.stdout)
    assert told.returncode == 0, told.stdout
    assert first == {
        "folder": "out", "findings": [], "notes": [], "unreadable": None, "intact": True, "exit_code": 0,
    }  # fmt: skip
    assert second["intact"]
    assert before == {path: sha256_of(path) for path in sample.rglob("*") if path.is_file()}
    for line in (sample / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, name = line.split("  ", 1)
        assert digest == hashlib.sha256((sample / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["SHA256SUMS", "model_deployments.yaml", "evaluation_config.yaml"])
def test_a_changed_digit_is_found_by_the_checksums(name: str, sample: Path) -> None:
    file = path_of(sample, name)
    with restored(file):
        where = change_one_digit(file, random.Random(name))  # noqa: S311 - where to change something
        found = api.verify(sample)
        assert found.exit_code == 1, (where, found)
        assert any("SHA256SUMS" in str(finding) for finding in found.findings), (where, found.findings)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_changed_digit_is_found_whoever_makes_the_checksums_anew(name: str, sample: Path) -> None:
    chance = random.Random(name)  # noqa: S311 - where to change something
    file = path_of(sample, name)
    relative = file.relative_to(sample).as_posix()
    for _ in range(PLACES):
        with restored(file, sample / "SHA256SUMS", sample / "attestation.intoto.json"):
            where = change_one_digit(file, chance)
            recompute_checksums(sample, relative)
            found = api.verify(sample)
            assert found.exit_code == 1, (where, found)
            assert any(relative in str(finding) for finding in found.findings), (where, found.findings)


@pytest.mark.parametrize("name", ["responses/kind.jsonl", "results.jsonl", "per_instance_stats.json"])
def test_a_changed_digit_of_a_jurys_result_is_found(name: str, jury: Path) -> None:
    chance = random.Random(name)  # noqa: S311 - where to change something
    file = path_of(jury, name)
    relative = file.relative_to(jury).as_posix()
    with restored(file, jury / "SHA256SUMS", jury / "attestation.intoto.json"):
        where = change_one_digit(file, chance)
        recompute_checksums(jury, relative)
        found = api.verify(jury)
        assert found.exit_code == 1, (where, found)
        assert any(relative in str(finding) for finding in found.findings), (where, found.findings)
