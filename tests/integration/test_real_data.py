"""Real benchmarks through the real helm-run: our scores are bare HELM's, to the last digit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from program_runs import Run, more_data
from programs import ran
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 30
MODEL = "endpoint/test-model"
PlaceData = Callable[[Path, str], None]


def bare_helm(folder: Path, task: str, url: str, env: dict[str, str]) -> list[dict[str, Any]]:
    """stats.json of helm-run with HELM's own OpenAI client, runner and logging; nothing of ours is loaded."""
    local = folder / "prod_env"
    local.mkdir(parents=True)
    arguments = {"base_url": url, "api_key": "none", "openai_model_name": "test/model"}
    client = {"class_name": "helm.clients.openai_client.OpenAIClient", "args": arguments}
    deployment = {"name": MODEL, "model_name": MODEL, "client_spec": client}
    metadata = {
        "name": MODEL,
        "display_name": "m",
        "description": "m",
        "creator_organization_name": "o",
        "access": "open",
        "release_date": None,
        "tags": ["TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG"],
    }
    (local / "model_deployments.yaml").write_text(
        yaml.safe_dump({"model_deployments": [deployment]})
    )
    (local / "model_metadata.yaml").write_text(yaml.safe_dump({"models": [metadata]}))
    entry = f"{task}{',' if ':' in task else ':'}model={MODEL}"
    argv = [
        str(Path(sys.executable).parent / "helm-run"),
        "--run-entries",
        entry,
        "--suite",
        "bare",
        "--disable-cache",
        "--max-eval-instances",
        str(INSTANCES),
        "--output-path",
        str(folder),
        "--local-path",
        str(local),
    ]
    assert (finished := ran(argv, env=env)).returncode == 0, finished.stderr
    (run,) = (path for path in (folder / "runs" / "bare").iterdir() if path.name != "eval_cache")
    stats: list[dict[str, Any]] = json.loads((run / "stats.json").read_text("utf-8"))
    return stats


FROM_THE_HUB = {"medcalc_bench", "head_qa"}


@pytest.mark.medical_data
@pytest.mark.parametrize(
    "task",
    ["pubmed_qa", "ehr_sql", *more_data("medcalc_bench", "medec", "head_qa", "race_based_med")],
)
def test_scores_equal_bare_helm(
    task: str,
    tmp_path: Path,
    endpoint: ScriptedEndpoint,
    run_program: Run,
    place_data: PlaceData,
    data_environment: dict[str, str],
) -> None:
    ours = tmp_path / "out"
    bare = tmp_path / "bare"
    place_data(ours / "helm", task)
    place_data(bare, task)
    extra = {"max_unreadable": 1.0}  # of ehr_sql: what is no query, and nothing
    outcome = run_program(
        task,
        endpoint.url,
        params={"limit_samples": INSTANCES, "extra": extra},
        env=data_environment,
    )
    assert outcome.returncode == 0, outcome.stderr

    theirs = [
        stat
        for stat in bare_helm(bare, task, endpoint.url, data_environment)
        if stat["name"]["name"] in outcome.scores() and "perturbation" not in stat["name"]
    ]
    scores = outcome.scores()
    (task_of,) = outcome.document()["results"]["tasks"].values()
    written = task_of["metrics"]["score"]["scores"]
    splits = {stat["name"]["split"] for stat in theirs}
    main = "test" if "test" in splits else splits.pop()
    of = {
        label: (one.get("metric", label), one.get("split", main)) for label, one in written.items()
    }
    assert [label for label, one in written.items() if one["unit"] is None] == []
    compared = 0
    for stat in theirs:
        name = stat["name"]["name"]
        split = stat["name"]["split"]
        label = name if split == main else f"{name}@{split}"
        if "mean" in stat:
            assert scores[label] == stat["mean"], label
            assert of[label] == (name, split)  # a metric's name may hold an @ too
            compared += 1
    assert compared >= 1
    assert outcome.document()["main_metric"] in scores
    assert_floors(outcome.document())
    files = outcome.document()["provenance"]["dataset_files"]
    assert any(name.startswith("hub:") for name in files) is (task in FROM_THE_HUB)
    assert files
    assert_no_text_in_logs(outcome.output_dir)


def assert_floors(document: dict[str, Any]) -> None:
    """Of the main score, over as many instances; on a busy machine it may be said that there was no time."""
    validity = document["validity"]
    main = document["main_metric"]
    (task,) = document["results"]["tasks"].values()
    if main not in validity["floors"]:
        assert any("floors are missing" in note for note in validity["notes"])
        return
    floor = validity["floors"][main]
    assert floor["instances"] == task["metrics"]["score"]["scores"][main]["stats"]["count"]
    assert floor["value"] == floor["answers"][floor["best"]] == max(floor["answers"].values())


def assert_no_text_in_logs(folder: Path) -> None:
    """No prompt and no answer may stand in a log at the default level."""
    log = "".join(path.read_text("utf-8") for path in (folder / "logs").iterdir())
    lines = [
        json.loads(line) for line in (folder / "instances.jsonl").read_text("utf-8").splitlines()
    ]
    assert lines
    for line in lines:
        middle = len(line["prompt"]) // 2
        assert line["prompt"][middle : middle + 40] not in log
