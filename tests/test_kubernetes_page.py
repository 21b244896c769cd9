"""docs/kubernetes.md: its manifests are what Kubernetes takes, and its pods do the whole suite between them."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from integration.support import program_environment

VERSIONS = ("1.29", "1.33", "1.37")


@pytest.fixture(scope="module")
def manifests(root: Path) -> dict[str, Any]:
    page = (root / "docs" / "kubernetes.md").read_text("utf-8")
    loaded = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.S)]
    return {one["kind"]: one for one in loaded}


@pytest.fixture(scope="module")
def suite(manifests: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a pod sees as /config."""
    folder = tmp_path_factory.mktemp("config")
    for name, text in manifests["ConfigMap"]["data"].items():
        (folder / name).write_text(text, "utf-8")
    return folder / "suite.yml"


def cells(printed: str) -> list[str]:
    return re.findall(r"^(\w+/\w+): \d+ requests", printed, re.M)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["ConfigMap", "Job"])
def test_a_manifest_is_what_kubernetes_takes(kind: str, version: str, manifests: dict[str, Any]) -> None:
    assert kubernetes_validate.validate(manifests[kind], version, strict=True) == version


def test_a_mistake_would_be_found(manifests: dict[str, Any]) -> None:
    wrong = copy.deepcopy(manifests["Job"])
    wrong["spec"]["completion"] = wrong["spec"].pop("completions")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_job_is_for_what_it_mounts(manifests: dict[str, Any]) -> None:
    spec = manifests["Job"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    parts = manifests["ConfigMap"]["data"]["parts.txt"].splitlines()
    assert (spec["completions"], spec["completionMode"]) == (len(parts), "Indexed")
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["config"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]


def test_the_pods_do_every_cell_once(manifests: dict[str, Any], suite: Path, tmp_path: Path) -> None:
    """What a pod is told, in a shell; `eval-factory` is this one, with --dry_run."""
    (container,) = manifests["Job"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "eval-factory"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m eval_factory "$@" --dry_run\n', "utf-8")
    program.chmod(0o755)
    script = container["args"][0].replace("/config", str(suite.parent)).replace("/results", str(tmp_path))
    env = program_environment(ENDPOINT_KEY="not-a-real-key")
    env["PATH"] = f"{program.parent}:{env['PATH']}"

    def told(index: int) -> subprocess.CompletedProcess[str]:
        argv = [*container["command"], script]
        return subprocess.run(
            argv, env={**env, "JOB_COMPLETION_INDEX": str(index)}, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    count = manifests["Job"]["spec"]["completions"]
    done = [told(index) for index in range(count)]
    assert [one.returncode for one in done] == [0] * count, done
    assert all(f"{tmp_path}/parts/{index}\n" in one.stdout for index, one in enumerate(done))
    whole = subprocess.run(
        [program, "run_suite", "--run_config", suite], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert sorted(cell for one in done for cell in cells(one.stdout)) == sorted(cells(whole.stdout))
    assert len(cells(whole.stdout)) == 4
    assert told(count).returncode == 1, "a pod without a part must not do the whole suite"
