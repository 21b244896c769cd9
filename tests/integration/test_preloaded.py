"""Runs that fork from a process that has imported everything are those that a shell starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import preloaded
from program_runs import TIMEOUT_S, Outcome, program_environment
from programs import EVAL_FACTORY, outcome_of, run_eval
from scripted_endpoint import ScriptedEndpoint

KEY = "TEST_MODEL_KEY"


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVAL_FACTORY_EVERY_TEST", raising=False)


def ran(folder: Path, url: str, **env: str) -> Outcome:
    argv = run_eval(folder, url, "--api_key_name", KEY)
    finished = preloaded.run(
        argv, cwd=folder.parent, env=program_environment(**env), timeout=TIMEOUT_S
    )
    return outcome_of(finished, folder)


def test_it_is_what_a_shell_starts(
    tmp_path: Path, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = ran(tmp_path / "out1", endpoint.url, **{KEY: "a-key"})
    monkeypatch.setattr(preloaded, "can_fork", lambda *_: False)
    plain = ran(tmp_path / "out2", endpoint.url, **{KEY: "a-key"})
    assert (forked.returncode, forked.scores()) == (plain.returncode, plain.scores())
    assert forked.stdout == plain.stdout.replace("out2", "out1")
    one = forked.document()
    other = plain.document()
    assert one["validity"] == other["validity"]
    assert one["provenance"]["patches"] == other["provenance"]["patches"]


def test_a_variable_of_one_program_is_not_the_next_ones(
    tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    assert ran(tmp_path / "out1", endpoint.url, **{KEY: "a-key"}).returncode == 0
    without = ran(tmp_path / "out2", endpoint.url)
    assert (without.returncode, KEY in without.stderr) == (3, True)


def test_what_starts_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [*EVAL_FACTORY, "run_eval"]
    env = program_environment()
    assert preloaded.can_fork(argv, {**env, KEY: "a-key", "HTTPS_PROXY": "http://proxy"})
    for name in ("HOME", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE"):
        assert not preloaded.can_fork(argv, {**env, name: "other"})
    assert not preloaded.can_fork([*EVAL_FACTORY, "verify", "out"], env)
    assert not preloaded.can_fork(["bash", "-c", "eval-factory run_eval"], env)
    monkeypatch.setenv("EVAL_FACTORY_EVERY_TEST", "1")
    assert not preloaded.can_fork(argv, env)
