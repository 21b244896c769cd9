"""A run whose helm-run was begun before its configuration was read, beside one whose helm-run was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from eval_factory.cli.early_start import MODULE
from integration.support import CANARY, TIMEOUT_S, program_environment, varied_answer
from same_files import differences, may_not_differ
from scripted_endpoint import PROBE, ScriptedEndpoint

BEGUN = MODULE.rpartition(".")[2].encode()
INSTANCES = 4

PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

pytestmark = pytest.mark.skipif(len(PROCESSORS) < 2, reason="needs Linux with two processors")


@dataclass
class Seen:
    """What /proc said of the program that asked."""

    command: bytes = b""
    environment: bytes = b""


class Watching(ScriptedEndpoint):
    """Looks at whoever holds the folder while it is asked."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.seen: dict[str, Seen] = {}
        self.folder = Path()

    def _answer(self, prompt: str) -> str:
        name = self.folder.parent.name
        if prompt != PROBE and name not in self.seen:
            pid = json.loads((self.folder / ".lock.holder.json").read_text())["program"]
            process = Path(f"/proc/{pid}")
            self.seen[name] = Seen((process / "cmdline").read_bytes(), (process / "environ").read_bytes())
        return varied_answer(prompt)


def written(folder: Path, url: str, name: str, **params: object) -> Path:
    endpoint = {"url": url, "model_id": "m", "type": "chat", "api_key": "TEST_MODEL_KEY"}
    config = {"type": "sample_medical_qa", "output_dir": "out", "params": {"limit_samples": INSTANCES, **params}}
    (folder / name).mkdir()
    file = folder / name / "run.yml"
    file.write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": endpoint}}))
    return file


def run(file: Path, *, processors: int | None = None) -> subprocess.CompletedProcess[str]:
    """From the folder of the run config. `processors`: how many of them the program may use."""
    some = PROCESSORS[:processors]
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", "run_eval", "--run_config", str(file)],
        cwd=file.parent,
        env=program_environment(TEST_MODEL_KEY=CANARY),
        preexec_fn=lambda: os.sched_setaffinity(0, some),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_it_is_the_same_run(tmp_path: Path) -> None:
    with Watching() as endpoint:
        for name, processors in (("early", None), ("late", 1)):
            endpoint.folder = tmp_path / name / "out"
            ended = run(written(tmp_path, endpoint.url, name), processors=processors)
            assert ended.returncode == 0, ended.stderr
    early, late = endpoint.seen["early"], endpoint.seen["late"]
    assert BEGUN in early.command
    assert BEGUN not in late.command
    assert CANARY.encode() in late.environment
    assert CANARY.encode() not in early.environment, "it was told, and not started with it"
    logs = [(tmp_path / name / "out" / "logs" / "helm-run.log").read_text() for name in ("early", "late")]
    assert [len(log.splitlines()) for log in logs] == 2 * [len(logs[1].splitlines())]
    found = may_not_differ(differences(tmp_path / "early" / "out", tmp_path / "late" / "out"))
    assert found == set()
    assert len(endpoint.requests) == 2 * INSTANCES


def test_what_is_wrong_is_told_the_same(tmp_path: Path) -> None:
    """helm-run ends with an error: one that says it of the endpoint, one of its data."""
    with ScriptedEndpoint(varied_answer) as endpoint:
        endpoint.status, endpoint.body = 401, {"error": {"message": "no such key"}}
        said = []
        for name, processors in (("early", None), ("late", 1)):
            ended = run(written(tmp_path, endpoint.url, name), processors=processors)
            assert ended.returncode != 0
            said.append((ended.returncode, ended.stderr.replace(name, "RUN")))
    assert said[0] == said[1]


def test_a_wrong_configuration_leaves_no_process(tmp_path: Path) -> None:
    ended = run(written(tmp_path, "http://127.0.0.1:9/v1", "wrong", parallelism="many"))
    assert ended.returncode == 2, ended.stderr
    left = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if BEGUN in (text := _read(path)) and str(tmp_path).encode() in _read(path.parent / "environ") + text
    ]
    assert left == []


def test_nothing_is_imported_that_looks_at_the_environment() -> None:
    """It is known only when it is told: folders of data, an offline run, what the plug-in is to do."""
    code = (
        f"import json, sys; from {MODULE} import import_what_every_run_needs as it; it();"
        " print(json.dumps(sorted(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    there = set(json.loads(said))
    ours = {f"eval_factory.helm_plugin.{name}" for name in ("plugin", "log_filter", "runner")}
    libraries = {"huggingface_hub", "datasets", "transformers", "nltk", "openai", "pandas", "pydantic", "asyncio"}
    assert there & (ours | libraries) == set()
    assert {"helm.benchmark.run", "eval_factory.helm_plugin.client", "numpy"} <= there


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
