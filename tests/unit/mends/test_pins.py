"""In a process of their own: what is mended stays mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from eval_factory.data.pins import variables_of_pins
from eval_factory.mends import pins
from unit.builders import plan

READS_A_FILE = """
import sys, urllib.request
urllib.request.urlretrieve = lambda url, target: open(target, "w").write(url)
from eval_factory.mends import pins
pins.take_pinned_revisions()
from helm.benchmark.scenarios.medbullets_scenario import MedBulletsScenario
print(open(MedBulletsScenario().download_csv(sys.argv[1], "_op5")).read())
"""

LOADS_DATA_SETS = """
import json
from types import SimpleNamespace
import datasets.load
asked = []
def build(path, *args, **kwargs):
    asked.append((path, kwargs.get("revision")))
    return SimpleNamespace(cache_dir="/cache/rev", config=SimpleNamespace(name="default"))
datasets.load.load_dataset_builder = build
from eval_factory.mends import hub, pins
pins.take_pinned_revisions()
hub.note_what_is_loaded()
for path, revision in (("org/pinned", None), ("org/pinned", "its own"), ("org/other", None)):
    datasets.load.load_dataset_builder(path, revision=revision)
print(json.dumps(asked))
"""


def run(code: str, argument: str, variables: dict[str, str]) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code, argument], env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip().splitlines()[-1]


def test_a_file_of_a_branch_is_read_at_its_commit(tmp_path: Path) -> None:
    told = variables_of_pins(plan({"config.type": "medbullets"}))
    (url,) = json.loads(told[pins.VARIABLE])["files"].values()
    assert "/refs/heads/" not in url
    assert run(READS_A_FILE, str(tmp_path), told) == url


def test_a_data_set_is_read_at_its_revision_unless_helm_names_one() -> None:
    told = pins.variables({}, {"org/pinned": "abc"})
    assert json.loads(run(LOADS_DATA_SETS, "", told)) == [
        ["org/pinned", "abc"], ["org/pinned", "its own"], ["org/other", None]
    ]  # fmt: skip


def test_what_is_told() -> None:
    newest = plan({"config.type": "medcalc_bench", "config.params.extra.version": "v1.2"})
    assert "915b1aad1fd2aa67790f369658cc365dfd440e90" in variables_of_pins(newest)[pins.VARIABLE]
    assert variables_of_pins(plan({"config.type": "pubmed_qa"})) == {}
