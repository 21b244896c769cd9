"""Which upstream runs a task, and how the task is told apart from that of its name by the other."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.cli.data import list_upstreams
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import is_running
from eval_factory.helm import environments
from eval_factory.helm.environments import environment_folder_of, environment_of
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import DIFFERENCES_FROM_HELM, HELM, MEDHELM
from eval_factory.workflows import install_upstream
from facts import naming

ENDPOINT = {"url": "http://127.0.0.1:1/v1", "model_id": "m", "type": "chat"}


def evaluation(task: str, **extra: Any) -> Any:
    config = {"type": task, "output_dir": "out", "params": {"extra": extra}}
    request = RunRequest(document={"config": config, "target": {"api_endpoint": ENDPOINT}})
    return build_evaluation(request, load_framework(), {})


def test_the_default_is_helm_named_or_not() -> None:
    plain = evaluation("pubmed_qa")
    named = evaluation("pubmed_qa", upstream="helm")
    assert plain.task.helm.upstream is named.task.helm.upstream is HELM
    identity = make_plan(plain).identity
    assert identity == make_plan(named).identity == "v1-781ebfc2ee7954696934"
    assert identity != make_plan(evaluation("pubmed_qa", upstream="medhelm")).identity


def test_a_task_on_the_other_upstream() -> None:
    assert (
        evaluation("pubmed_qa", upstream="medhelm").task.about == evaluation("pubmed_qa").task.about
    )
    task = evaluation("ehr_sql", upstream="medhelm").task
    assert (task.helm.upstream, task.about.instances) == (MEDHELM, None)
    assert task.about.notes[-1] == DIFFERENCES_FROM_HELM["ehr_sql"]
    assert (
        DIFFERENCES_FROM_HELM.keys()
        <= load_index(MEDHELM).run_specs.keys() & load_index().run_specs.keys()
    )
    assert evaluation("healthbench", upstream="medhelm").task.helm.upstream is MEDHELM, (
        "ours runs on both"
    )
    entry = evaluation("helm:sct_bench", upstream="medhelm").task
    assert entry.helm.main_metrics == ("sct_score",)


@pytest.mark.parametrize(
    ("task", "upstream", "problem"),
    [
        (
            "med_mcqa",
            "medhelm",
            "medhelm 0.8.0 has no run spec 'med_mcqa', so only helm runs med_mcqa",
        ),
        (
            "helm:sct_bench",
            "helm",
            "HELM 0.5.16 has no run spec 'sct_bench'; medhelm 0.8.0 has one",
        ),
        (
            "helm:sct_bnch",
            "medhelm",
            "medhelm 0.8.0 has no run spec 'sct_bnch', did you mean 'sct_bench'?; 'eval-factory ls --all --upstream medhelm'",
        ),
        ("helm:radiology", "medhelm", "helm:radiology runs on images, not on chat"),
        ("pubmed_qa", "other", "must be 'helm' or 'medhelm'"),
    ],
)
def test_what_an_upstream_does_not_have(task: str, upstream: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluation(task, upstream=upstream)
    assert any(problem in one for one in caught.value.problems), caught.value.problems


def made(folder: Path, version: str, package: str = "medhelm") -> Path:
    name = package.replace("-", "_")
    info = folder / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (folder / "pyvenv.cfg").touch()
    return folder


def test_where_its_environment_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVAL_FACTORY_MEDHELM", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert environment_folder_of(MEDHELM) == tmp_path / "eval-factory" / "medhelm-0.8.0"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert (
        environment_folder_of(MEDHELM)
        == Path.home() / ".local" / "share" / "eval-factory" / "medhelm-0.8.0"
    )
    monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(tmp_path / "own"))
    assert environment_of(MEDHELM).version_of("medhelm") is None
    own = environment_of(MEDHELM) if made(tmp_path / "own", "0.7.0") else None
    assert own is not None
    assert (own.version_of("medhelm"), own.has_module("helm"), own.helm_path("benchmark")) == (
        "0.7.0",
        False,
        None,
    )
    (tmp_path / "own" / "lib" / "python3.11" / "site-packages" / "helm" / "benchmark").mkdir(
        parents=True
    )
    assert own.helm_path("benchmark") is not None
    assert own.program("helm.benchmark.run", "helm-run") == [
        str(tmp_path / "own" / "bin" / "python"),
        str(environments.STARTER),
        "helm.benchmark.run",
    ]
    state = install_upstream.upstream_states()[1]
    assert (state.installed, state.supported, state.works) == ("0.7.0", "0.8.0", False)


def test_what_is_not_installed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import sys

    def asked(*_argv: object) -> None:
        raise PrerequisiteError("no package is to be had")

    monkeypatch.setattr(install_upstream, "_run_command", asked)
    with pytest.raises(ConfigError, match=naming("environment of eval-factory")):
        install_upstream.install(HELM, wheels=None, env={}, screen=sys.stderr)
    for name in ("medhlm", ""):
        with pytest.raises(ConfigError, match="there are: helm, medhelm, heim"):
            install_upstream.upstream_named(name)
    # an environment of somebody's own too, with another version or without medhelm: nothing is overwritten, ever
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "pyvenv.cfg").write_text("")
    made(tmp_path / "older", "0.7.0")
    for name in ("taken", "older"):
        monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(tmp_path / name))
        before = sorted((tmp_path / name).rglob("*"))
        with pytest.raises(ConfigError, match=naming("no medhelm 0.8.0", "remove this path")):
            install_upstream.install(MEDHELM, wheels=None, env={}, screen=sys.stderr)
        assert sorted((tmp_path / name).rglob("*")) == before
    monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(made(tmp_path / "there", "0.8.0")))
    assert (
        install_upstream.install(MEDHELM, wheels=None, env={}, screen=sys.stderr)
        == tmp_path / "there"
    )
    assert "is installed already" in capsys.readouterr().err
    monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(tmp_path / "new"))
    with pytest.raises(PrerequisiteError, match="no package"):
        install_upstream.install(MEDHELM, wheels=None, env={}, screen=sys.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["older", "taken", "there"], (
        "whole, or not at all"
    )


def test_what_a_killed_installation_left_goes_and_programs_begin_with_their_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    home = tmp_path / "medhelm"
    gone = subprocess_number()
    for name in (f".medhelm.{gone}.abc", ".medhelm.older_one"):
        (tmp_path / name / "medhelm").mkdir(parents=True)
    at_work = tmp_path / f".medhelm.{os.getpid()}.abc"
    at_work.mkdir()

    def make(argv: Sequence[str], _env: object) -> None:
        if "venv" not in argv:
            return
        programs = Path(argv[-1]) / "bin"
        programs.mkdir(parents=True)
        (programs / "helm-run").write_text(f"#!{programs}/python\nprint(1)\n")
        (programs / "python").write_bytes(b"\x7fELF\0" + os.fsencode(programs))

    monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(home))
    monkeypatch.setattr(install_upstream, "_run_command", make)
    assert install_upstream.install(MEDHELM, wheels=None, env={}, screen=sys.stderr) == home
    assert (home / "bin" / "helm-run").read_text() == f"#!{home}/bin/python\nprint(1)\n"
    assert b"\x7fELF\0" in (home / "bin" / "python").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"medhelm", at_work.name}


def subprocess_number() -> int:
    """The number of no process."""
    return next(number for number in range(2**22 - 1, 2, -1) if not is_running(number))


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("0.8.0", "medhelm 0.8.0, in "),
        ("0.7.1", "medhelm 0.7.1 (supported: 0.8.0), in "),
        (None, "medhelm not installed"),
    ],
)
def test_what_is_installed_is_said_on_any_screen(
    version: str | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = made(tmp_path / "home", version) if version else tmp_path / "home"
    monkeypatch.setenv("EVAL_FACTORY_MEDHELM", str(home))
    monkeypatch.setenv("EVAL_FACTORY_HEIM", str(tmp_path / "nowhere"))
    told = CliRunner().invoke(list_upstreams).output
    assert line in told
    assert str(home) in told
    assert ("upstream install medhelm" in told) == (version != "0.8.0")
    states = json.loads(CliRunner().invoke(list_upstreams, ["--json"]).output)
    assert [(one["name"], one["works"]) for one in states] == [
        ("helm", True),
        ("medhelm", version == "0.8.0"),
        ("heim", False),
    ]


def entries(text: str) -> dict[str, str]:
    """Package -> its lines in a lock."""
    return {one.split("==")[0]: one.strip() for one in re.split(r"\n(?=\S)", text.strip())}


def lock_of(name: str) -> str:
    lock = resources.files("eval_factory.helm") / install_upstream.LOCKS[name]
    return lock.read_text("utf-8")


def test_its_lock_is_ours_with_medhelm_in_crfm_helms_place(root: Path) -> None:
    """Made by scripts/lock.sh; without torch."""
    ours = entries((root / "requirements.lock").read_text("utf-8"))
    its = entries(lock_of("medhelm"))
    assert its.pop("medhelm").startswith("medhelm==0.8.0 ")
    assert its == {name: text for name, text in ours.items() if name != "crfm-helm"}
    assert "torch" not in its
    assert not re.search("https?://", str(its))


def test_heims_lock_has_what_its_metrics_import(root: Path) -> None:
    """The same HELM as beside eval-factory, and torch; each with its hashes."""
    ours = entries((root / "requirements.lock").read_text("utf-8"))
    its = entries(lock_of("heim"))
    assert its["crfm-helm"] == ours["crfm-helm"]
    assert its["numpy"] == ours["numpy"], "scores are those of one numpy"
    wanted = {"torch", "torchvision", "torchmetrics", "clip-anytorch", "nudenet", "timm"}
    assert wanted <= set(its)
    assert all("--hash=sha256:" in text for text in its.values())
    assert not re.search("https?://", str(its))


def test_a_run_of_pictures_has_heims_environment_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_FACTORY_HEIM", str(tmp_path / "nowhere"))
    assert environments.environment_of_run(HELM, "radiology") == environment_of(HELM)
    older = made(tmp_path / "older", "0.5.15", package="crfm-helm")
    monkeypatch.setenv("EVAL_FACTORY_HEIM", str(older))
    assert environments.environment_of_run(HELM, "radiology") == environment_of(HELM)
    monkeypatch.setenv(
        "EVAL_FACTORY_HEIM", str(made(tmp_path / "heim", "0.5.16", package="crfm-helm"))
    )
    apart = environments.environment_of_run(HELM, "radiology")
    assert apart.python == str(tmp_path / "heim" / "bin" / "python")
    assert apart.upstream is HELM, "its run specs are HELM's"
    assert environments.environment_of_run(HELM, "pubmed_qa") == environment_of(HELM)
    assert environments.environment_of_run(MEDHELM, "radiology") == environment_of(MEDHELM)
