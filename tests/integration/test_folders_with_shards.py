"""Folders that an earlier version wrote with `shards`: a killed run goes on, a finished one is verified and reproduced."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eval_factory import api
from eval_factory.core.rundir import RunDir
from integration.support import Outcome, Run, more_data
from scripted_endpoint import ScriptedEndpoint

FEW = {"limit_samples": 6}
WRITTEN = ("run_config.yml", "results.yml", "evaluation_config.yaml")


def as_it_was_killed(outcome: Outcome) -> None:
    """Of six answers each of two shards had two, and cache.db none."""
    whole = RunDir(outcome.output_dir)
    for number in (1, 2):
        shard = whole.shards / f"{number}-of-2"
        shard.mkdir(parents=True)
        shutil.copyfile(whole.cache_db, shard / "cache.db")
        with closing(sqlite3.connect(shard / "cache.db")) as connection, connection:
            kept = f"SELECT rowid FROM responses ORDER BY rowid LIMIT 2 OFFSET {2 * (number - 1)}"
            connection.execute(f"DELETE FROM responses WHERE rowid NOT IN ({kept})")
            connection.execute("DELETE FROM attempts WHERE key NOT IN (SELECT key FROM responses)")
    for path in (whole.run_state, *whole.results, *whole.answers):
        path.unlink(missing_ok=True)
    shutil.rmtree(whole.helm_runs)


@pytest.mark.more_data
def test_a_killed_run_in_shards_goes_on_with_the_answers_of_all(run_program: Run) -> None:
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        first = run_program("sample_medical_qa", endpoint.url, "--no_preflight", params=FEW)
        asked = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
        as_it_was_killed(first)
        endpoint.requests.clear()
        outcome = run_program("sample_medical_qa", endpoint.url, "--no_preflight", params=FEW)
        again = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
    assert outcome.returncode == 0, outcome.stderr
    assert (len(set(asked)), len(again)) == (6, 2)
    assert set(again) < set(asked)
    assert outcome.scores() == first.scores()
    usage = outcome.document()["usage"]
    assert (usage["requests"], usage["cached"], usage["all_runs"]["requests"]) == (2, 4, 6)
    assert not RunDir(outcome.output_dir).shards.exists()


@pytest.mark.parametrize("shards", [2, *more_data(None)])
def test_a_finished_run_is_verified_and_reproduced(shards: int | None, run_program: Run, tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program("sample_medical_qa", endpoint.url, params=FEW)
        say_shards(RunDir(outcome.output_dir), shards)
        findings = [one for one in api.verify(outcome.output_dir).findings if one.file in WRITTEN]
        assert {one.file for one in findings} >= {"run_config.yml", "results.yml"}
        assert [one for one in findings if "SHA-256" not in one.message] == [], "made again it is the same"
        found = api.reproduce(outcome.output_dir, tmp_path / "again")
        told = [line for line in found.differences if "extra.shards" in line]
        assert told == ["config.params.extra.shards: 2 then, left out here"] * (shards is not None)
        assert "shards:" not in found.run_config
        env = {**os.environ, "TEST_MODEL_KEY": "a-key-of-some-length-1234"}
        assert api.run_again(outcome.output_dir, tmp_path / "once-more", env=env).is_the_same


def say_shards(rundir: RunDir, shards: int | None) -> None:
    """With the key where an earlier version had it: a number, too, in the result, which holds what was given."""
    value = "null" if shards is None else shards
    before = "      prices: null\n"
    for file in (rundir.run_config, rundir.results_yml):
        text = file.read_text("utf-8")
        assert text.count(before) == 1
        file.write_text(text.replace(before, f"      shards: {value}\n{before}"), "utf-8")
    if shards is not None:
        text = rundir.evaluation_config.read_text("utf-8")
        before = "    limit_samples: 6\n"
        assert text.count(before) == 1
        changed = text.replace(before, f"{before}    extra:\n      shards: {shards}\n")
        rundir.evaluation_config.write_text(changed, "utf-8")
