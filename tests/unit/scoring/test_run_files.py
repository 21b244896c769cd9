"""The files that a result names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from eval_factory.core.rundir import RunDir
from eval_factory.scoring.run_files import run_files, with_run_files
from unit.scoring.test_collect import FOUR, result_of, state


def test_helms_files_and_the_cache_are_named_and_nothing_else(tmp_path: Path) -> None:
    result = result_of(tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR})
    rundir, run = RunDir(tmp_path / "out"), tmp_path / "out" / "helm" / "runs" / "s" / "r"
    for path in (
        run / "scenario.json",
        run / "display_requests.json",
        rundir.helm / "hub_datasets.json",
        rundir.helm / "trivial_scores.json",
    ):
        path.write_text("[]", "utf-8")
    (rundir.helm / "other.json").write_text("{}", "utf-8")
    found = run_files(rundir, [run])
    of_the_run = ("run_spec", "scenario", "scenario_state", "stats", "per_instance_stats")
    assert set(found) == {
        *(f"helm/runs/s/r/{name}.json" for name in of_the_run),
        "helm/hub_datasets.json",
        "helm/trivial_scores.json",
        "cache.db",
    }
    for name, digest in found.items():
        assert digest == hashlib.sha256((rundir.root / name).read_bytes()).hexdigest()
    assert with_run_files(result, rundir, [run]).provenance.run_files == found
    assert result.provenance.run_files == {}
