"""A digit that is changed in any file of a real result is found, whoever recomputes the checksums afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from eval_factory import api
from eval_factory.cli.main import cli
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.report.checksums import digests_of, write_checksums
from eval_factory.report.reader import load_result
from eval_factory.workflows.annotate import import_sheets
from eval_factory.workflows.recollect import require_last_run_state
from eval_factory.workflows.verify import Verified
from integration.test_juries import medication_questions
from jury_endpoint import CANARIES, JUDGES, MODEL, JuryEndpoint
from program_runs import more_data, program
from rated_folder import exported, filled_in

PLACES = int(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))
"""Digits that are changed in each file."""

UNCHECKED = (".eval-factory", ".gitignore", ".lock", "SHA256SUMS", "logs/", ".suite/")
"""The marker, the lock, what is made of the other files, and what later commands go on writing."""
VALUES = {
    "suite_config.yml": ("temperature: 0.5", "temperature: 0.7"),
    "suite_usage.yaml": ("requests: 6", "requests: 7"),
}
"""Of files in which not every digit changes a result."""
FIELD = re.compile(rb"[A-Za-z_]\w*\d\w*(?=\"?:)")
"""A name with a digit, such as `prompt_sha256`: another name would be no value that was changed."""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished result of a custom benchmark on the embedded endpoint, which people have rated."""
    home = tmp_path_factory.mktemp("verify")
    ran = program("new_benchmark", "own", cwd=home)
    assert ran.returncode == 0, ran.stderr
    ran = program("run_eval", "--run_config", "own/run_config.yml", "--output_dir", "out", cwd=home)
    assert ran.returncode == 0, ran.stderr
    sheets = exported(RunDir(home / "out"), home / "sheets", count=6)
    import_sheets(home / "out", [filled_in(sheets, rater, lambda *_: "no") for rater in "12"])
    return home / "out"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two evaluations."""
    home = tmp_path_factory.mktemp("verify_suite")
    endpoint = {"url": "demo://baseline", "type": "chat"}
    section = {
        "output_dir": "suite",
        "params": {"limit_samples": 6},
        "evaluations": [
            "sample_medical_qa",
            {"type": "sample_medical_qa", "name": "warm", "params": {"temperature": 0.5}},
        ],
        "targets": [
            {"name": name, "api_endpoint": {**endpoint, "model_id": name}}
            for name in ("small", "large")
        ],
    }
    (home / "suite.yml").write_text(yaml.safe_dump({"suite": section}), "utf-8")
    ran = program("run_suite", "--run_config", "suite.yml", cwd=home)
    assert ran.returncode == 0, ran.stderr
    return home / "suite"


@pytest.fixture(scope="module")
def jury(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partial result: some judgements are missing."""
    home = tmp_path_factory.mktemp("verify_jury")
    medication_questions(home / "out" / "helm", 7)
    with JuryEndpoint() as server:
        endpoint = {
            "url": server.url,
            "model_id": MODEL,
            "type": "chat",
            "api_key": "TEST_MODEL_KEY",
        }
        params = {"limit_samples": 6, "extra": {"judges": JUDGES}}
        config = {"type": "medication_qa", "output_dir": "out", "params": params}
        document = {"config": config, "target": {"api_endpoint": endpoint}}
        (home / "run.yml").write_text(yaml.safe_dump(document), "utf-8")
        ran = program(
            "run_eval", "--run_config", "run.yml", cwd=home, HF_HUB_OFFLINE="1", **CANARIES
        )
    assert (home / "out" / "SHA256SUMS").is_file(), ran.stderr
    return home / "out"


@contextmanager
def restored(*files: Path) -> Iterator[None]:
    """Put back what the files held."""
    contents = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


def files_of(folder: Path) -> list[str]:
    found = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    return [
        name for name in found if not name.startswith(UNCHECKED) and (folder / name).stat().st_size
    ]


def change_one_value(file: Path, chance: random.Random) -> str:
    """Returns where it is, for a message."""
    content = bytearray(file.read_bytes())
    if file.name in VALUES:
        then, now = VALUES[file.name]
        file.write_text(content.decode().replace(then, now, 1), "utf-8")
        return f"{file.name}: {now}"
    kind = b"123456789" if set(content) & set(b"0123456789") else b"abcdefghijklmnopqrstuvwxyz"
    values = FIELD.sub(lambda field: b" " * len(field.group()), bytes(content))
    at = chance.choice([place for place, byte in enumerate(values) if byte in kind])
    content[at] = chance.choice(kind.replace(content[at : at + 1], b""))
    file.write_bytes(content)
    return f"{file.name}, byte {at}: {bytes(content[max(0, at - 40) : at + 20])!r}"


def remake_checksums(folder: Path, name: str) -> None:
    """As somebody would who wants the change to stay unnoticed."""
    rundir = RunDir(folder)
    if name != rundir.attestation.name:
        result = load_result(folder).result
        write_checksums(
            rundir,
            result,
            digests_of(rundir, (folder / one for one in require_last_run_state(rundir).runs)),
        )
        return
    lines = rundir.checksums.read_text("utf-8").splitlines()
    names = [line.split("  ", 1)[1] for line in lines]
    rundir.checksums.write_text(
        "".join(f"{sha256_of(folder / one)}  {one}\n" for one in names), "utf-8"
    )


def test_finished_results_are_intact_and_their_checksums_are_sha256sums(
    sample: Path, jury: Path
) -> None:
    before = {path: sha256_of(path) for path in sample.rglob("*") if path.is_file()}
    told = program("verify", "out", str(jury), "--json", cwd=sample.parent)
    first, second = json.loads(told.stdout)
    assert told.returncode == 0, told.stdout
    assert first == {
        "folder": "out",
        "findings": [],
        "notes": [],
        "unreadable": None,
        "intact": True,
        "exit_code": 0,
    }
    assert second["intact"]
    assert before == {path: sha256_of(path) for path in sample.rglob("*") if path.is_file()}
    for line in (sample / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, name = line.split("  ", 1)
        assert digest == hashlib.sha256((sample / name).read_bytes()).hexdigest()


KNOWN = {
    "sample": {
        "annotations/ratings.jsonl",
        "model_configs/benchmark.yaml",
        ".run_state.json",
        "packages.txt",
    },
    "jury": {
        "responses/kind.jsonl",
        "helm/run_record.json",
        "helm/scenarios/medication_qa/MedInfo2019-QA-Medications.xlsx",
    },
}


@pytest.mark.parametrize("checksums", [*more_data("as they were"), "made again"])
@pytest.mark.parametrize("result", KNOWN)
def test_a_changed_value_in_any_file_is_found(
    result: str, checksums: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(result)
    names = files_of(folder)
    assert KNOWN[result] <= {*names}
    for name in names:
        chance = random.Random(name)  # noqa: S311 - where to change something
        for _ in range(PLACES):
            with restored(folder / name, folder / "SHA256SUMS", folder / "attestation.intoto.json"):
                where = change_one_value(folder / name, chance)
                if checksums == "made again":
                    remake_checksums(folder, name)
                found = api.verify(folder)
                assert found.exit_code == 1, (where, found)
                field = name.removeprefix("helm/")  # data are named by the provenance
                named = any(name in str(one) or field in one.field for one in found.findings)
                assert named, (where, found.findings)
    assert api.verify(folder).intact


def test_a_changed_value_in_any_file_of_a_suite_is_found(suite: Path) -> None:
    assert api.verify(suite) == Verified(suite)
    own = [name for name in files_of(suite) if "/" not in name]
    assert len(own) == 6
    for name in [*own, "small/warm/evaluation_config.yaml"]:
        chance = random.Random(name)  # noqa: S311
        for place in range(PLACES):
            with restored(suite / name):
                where = change_one_value(suite / name, chance)
                found = api.verify(suite)
                assert found.exit_code == 1, (where, found)
                assert any(finding.file == name and str(finding) for finding in found.findings), (
                    where,
                    found.findings,
                )
                if name in own and place == 0:  # it looks at the table, and not into the runs
                    told = CliRunner().invoke(cli, ["suite", "check", str(suite)])
                    assert told.exit_code == 1, (where, told.stdout)
                    assert f"altered: {name}: " in told.stdout or name == "suite_config.yml", (
                        where,
                        told.stdout,
                    )
