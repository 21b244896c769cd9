"""The wheel, installed by one pip command into an empty environment, runs juries; without HELM it says what to do.

torch and torchvision, 5 GB that no run uses, are stood in for by wheels without a module; whatever else the wheel's and
HELM's metadata ask for is resolved, built and installed for real. EVAL_FACTORY_INSTALL_TORCH=1 takes the real ones too, and
EVAL_FACTORY_INSTALL_PYTHON another interpreter than the tests'.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from invented_benchmarks import MAKERS
from jury_endpoint import CANARIES, JUDGES, JuryEndpoint
from program_runs import CANARY, Outcome, Run, program_environment

TASK = "med_dialog_icliniq"
STAND_INS = {"torch": "2.13.0+none", "torchvision": "0.28.0+none"}
INSTALL_TIMEOUT_S = 1500


def stand_in(name: str, version: str, folder: Path) -> None:
    """A wheel of that name without a module."""
    info = f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def run(*argv: str, timeout_s: int = 240, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture
def installed(root: Path, tmp_path: Path) -> Path:
    """The `bin` of an environment that was empty before `pip install <wheel>`."""
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path / "dist"),
    ]
    subprocess.run(build, cwd=root, capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    python = os.environ.get("EVAL_FACTORY_INSTALL_PYTHON") or sys.executable
    assert run(python, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    options = ["--quiet", "--no-compile"]
    if not os.environ.get("EVAL_FACTORY_INSTALL_TORCH"):
        for name, version in STAND_INS.items():
            stand_in(name, version, tmp_path / "wheels")
        constraints = tmp_path / "constraints.txt"
        constraints.write_text(
            "".join(f"{name}=={version}\n" for name, version in STAND_INS.items())
        )
        options += ["--find-links", str(tmp_path / "wheels"), "--constraint", str(constraints)]
    folder = tmp_path / "venv" / "bin"
    finished = run(
        str(folder / "python"),
        "-m",
        "pip",
        "install",
        *options,
        str(wheel),
        timeout_s=INSTALL_TIMEOUT_S,
        PYTHONPATH="",
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


def another_helm_run(folder: Path) -> Path:
    """Of another environment: it would end the run with 9."""
    folder.mkdir()
    script = folder / "helm-run"
    script.write_text(f"#!/bin/sh\ntouch {folder}/was_run\nexit 9\n")
    script.chmod(0o755)
    return folder


@pytest.mark.more_data
def test_one_command_installs_what_a_jury_needs(
    installed: Path, run_program: Run, tmp_path: Path
) -> None:
    other = another_helm_run(tmp_path / "other")
    path = f"{other}{os.pathsep}{os.environ['PATH']}"
    env = {
        **program_environment(HF_HUB_OFFLINE="1"),
        **CANARIES,
        "TEST_MODEL_KEY": CANARY,
        "PATH": path,
    }

    def run_installed(*argv: str, url: str, output_dir: Path) -> Outcome:
        endpoint = {
            "url": url,
            "model_id": "test/model",
            "type": "chat",
            "api_key": "TEST_MODEL_KEY",
        }
        params = {"extra": {"judges": JUDGES}, "max_retries": 0}
        file = tmp_path / "installed.yml"
        config = {"type": TASK, "output_dir": str(output_dir), "params": params}
        file.write_text(
            yaml.safe_dump({"config": config, "target": {"api_endpoint": endpoint}}), "utf-8"
        )
        finished = subprocess.run(
            [*argv, "run_eval", "--run_config", str(file)],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return Outcome(finished.returncode, finished.stdout, finished.stderr, output_dir)

    for folder in ("installed", "checkout"):
        MAKERS[TASK](tmp_path / folder / "own", tmp_path / folder / "helm" / "scenarios")
    with JuryEndpoint() as jury:
        jury.odd_ways = ["good"]
        outcome = run_installed(
            str(installed / "eval-factory"), url=jury.url, output_dir=tmp_path / "installed"
        )
        assert outcome.returncode == 0, outcome.stderr
        assert not (other / "was_run").exists()
        scores = outcome.scores()
        assert {
            "rouge_l",
            "summarization_coverage",
            "summarization_density",
            "summarization_compression",
        } <= set(scores)
        assert outcome.document()["validity"]["instances"]["unjudged"] == 0
        params = {"extra": {"judges": JUDGES}, "max_retries": 0}
        here = run_program(
            TASK,
            jury.url,
            params=params,
            env={**CANARIES, "HF_HUB_OFFLINE": "1"},
            output_dir=tmp_path / "checkout",
        )
        assert here.scores() == scores, "the tests' environment has summ-eval, the new one has not"

        for words in (
            ("new_benchmark", "mine", "--kind", "rubric"),
            ("run_eval", "--run_config", "mine/run_config.yml", "--output_dir", "rubric"),
            ("run_suite", "--preset", "smoke", "--output_dir", "suite"),
        ):
            done = subprocess.run(
                [str(installed / "eval-factory"), *words],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        for result in ("rubric/evaluation_config.yaml", "suite/suite_results.yaml"):
            assert (tmp_path / result).is_file()

        python = str(installed / "python")
        assert run(python, "-c", "import summ_eval").returncode != 0
        assert (
            run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "crfm-helm").returncode == 0
        )
        asked = sum(jury.asked.values())
        for argv in ([str(installed / "eval-factory")], [python, "-m", "eval_factory"]):
            lacking = run_installed(*argv, url=jury.url, output_dir=tmp_path / "without")
            assert lacking.returncode == 3, lacking.stderr
            assert "-m pip install crfm-helm==0.5.16" in lacking.stderr
        assert sum(jury.asked.values()) == asked
        assert not (other / "was_run").exists()
