"""HELM's own perturbations of a run entry, offline, with their files from a data bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.support import Run
from programs import eval_factory
from scripted_endpoint import ScriptedEndpoint

ENTRY = "helm:pubmed_qa:data_augmentation=fairness"
DIALECT = "perturbations/dialect/SAE_to_AAVE_mapping.json"
PERSON_NAMES = "perturbations/person_name/data/person_names.txt"
NAMES = """brad,first_name,race,white_american,gender,male
emily,first_name,race,white_american,gender,female
jamal,first_name,race,black_american,gender,male
keisha,first_name,race,black_american,gender,female
"""


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder to import: two invented questions, and invented files of perturbations."""
    rows = {
        str(number): {"QUESTION": f"Does Brad want with rest {number}?", "CONTEXTS": ["Brad and Emily went."],
                      "LABELS": ["BACKGROUND"], "final_decision": "yes"}
        for number in (1, 2)
    }  # fmt: skip
    files = {
        "scenarios/pubmed_qa/data/test_set.json": json.dumps(rows), PERSON_NAMES: NAMES,
        DIALECT: json.dumps({"with": ["wit"]}),
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / "given" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "given" / name).write_text(text)
    return tmp_path / "given"


def test_a_run_with_perturbations_contacts_the_endpoint_only(given: Path, tmp_path: Path, run_program: Run) -> None:
    root = str(tmp_path / "bundle")
    assert eval_factory("data", "import", str(given), "--to", root).returncode == 0
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program(ENTRY, endpoint.url, "--offline", "--data_dir", root)
    assert outcome.returncode == 0, outcome.stderr
    events = [json.loads(line) for line in (outcome.output_dir / "logs/events.jsonl").read_text("utf-8").splitlines()]
    assert [event for event in events if event["event"] == "blocked"] == []
    asked = [request["messages"][-1]["content"] for request in endpoint.requests]
    counts = {text: sum(text in one for one in asked) for text in ("Brad want with", "Brad want wit ", "Jamal want with")}
    assert counts == {"Brad want with": 2, "Brad want wit ": 2, "Jamal want with": 2}
    assert {name.partition("+")[2] for name in outcome.scores()} >= {"dialect", "person_name", "fairness.worst"}
    assert eval_factory("data", "verify", root).returncode == 0  # the run wrote nothing into it


def test_a_file_that_the_bundle_lacks_is_named_before_anything_is_asked(
    given: Path, tmp_path: Path, run_program: Run
) -> None:
    (given / PERSON_NAMES).unlink()
    root = str(tmp_path / "bundle")
    assert eval_factory("data", "import", str(given), "--to", root).returncode == 0
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program(ENTRY, endpoint.url, "--data_dir", root)
        assert outcome.returncode == 3
        assert f"missing: {PERSON_NAMES}\n" in outcome.stderr
        assert f"eval-factory data pull {ENTRY} --to {root}\n" in outcome.stderr
        assert (endpoint.requests, endpoint.probes) == ([], 0)
        dialect = ENTRY.replace("fairness", "dialect_deterministic")  # which reads no names
        assert run_program(dialect, endpoint.url, "--data_dir", root).returncode == 0
