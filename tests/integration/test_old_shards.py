"""Folders that an earlier version wrote with `shards`: a killed run goes on, a finished one is verified and reproduced."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory import api
from eval_factory.core.rundir import RunDir
from integration.support import Outcome, Run
from scripted_endpoint import ScriptedEndpoint

FEW = {"limit_samples": 6}


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


@pytest.mark.parametrize("shards", [None, 2])
def test_a_finished_run_is_verified_and_reproduced(shards: int | None, run_program: Run, tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program("sample_medical_qa", endpoint.url, params=FEW)
        said_before(RunDir(outcome.output_dir), shards)
        looked = api.verify(outcome.output_dir)
        assert [one for one in looked.findings if one.file in ("run_config.yml", "results.yml")] == []
        found = api.reproduce(outcome.output_dir, tmp_path / "again")
        told = [line for line in found.differences if "shards" in line]
        assert told == ["config.params.extra.shards: 2 then, left out here"] * (shards is not None)
        assert "shards" not in found.run_config
        assert api.run_again(outcome.output_dir, tmp_path / "again2").is_the_same


def said_before(rundir: RunDir, shards: int | None) -> None:
    """run_config.yml and results.yml with the key where it stood, and the checksums of them."""
    for file in (rundir.run_config, rundir.results_yml):
        document: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
        text = file.read_text("utf-8")
        assert "shards" not in text
        assert document is not None
        value = "null" if shards is None else shards
        file.write_text(
            text.replace("      prices: null\n", f"      shards: {value}\n      prices: null\n", 1), "utf-8"
        )
        assert "shards" in file.read_text("utf-8")
