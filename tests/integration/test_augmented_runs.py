"""HELM's own perturbations of a run entry, offline, with their files from a data bundle."""

from __future__ import annotations

import json
from pathlib import Path

from program_runs import Run
from programs import eval_factory
from scripted_endpoint import ScriptedEndpoint

QUESTION = {
    "QUESTION": "Does Brad want with?",
    "CONTEXTS": ["Emily."],
    "LABELS": ["AIM"],
    "final_decision": "yes",
}
WHITE = "first_name,race,white_american,gender"
BLACK = "first_name,race,black_american,gender"
FILES = {
    "scenarios/pubmed_qa/data/test_set.json": json.dumps({"1": QUESTION}),
    "perturbations/dialect/SAE_to_AAVE_mapping.json": json.dumps({"with": ["wit"]}),
    "perturbations/person_name/data/person_names.txt": f"brad,{WHITE},male\njamal,{BLACK},male\n",
}


def test_a_run_with_perturbations_contacts_the_endpoint_only(
    tmp_path: Path, run_program: Run
) -> None:
    root = str(tmp_path / "bundle")
    given = tmp_path / "given"
    for name, text in FILES.items():
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).write_text(text)
    assert eval_factory("data", "import", str(given), "--to", root).returncode == 0
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program(
            "helm:pubmed_qa:data_augmentation=fairness",
            endpoint.url,
            "--offline",
            "--data_dir",
            root,
        )
    assert outcome.returncode == 0, outcome.stderr
    assert '"event": "blocked"' not in (outcome.output_dir / "logs/events.jsonl").read_text("utf-8")
    asked = [request["messages"][-1]["content"] for request in endpoint.requests]
    for text in ("Brad want with?", "Brad want wit?", "Jamal want with?"):
        assert sum(text in one for one in asked) == 1, text
    assert {name.partition("+")[2] for name in outcome.scores()} >= {
        "dialect",
        "person_name",
        "fairness.worst",
    }
    # HELM asks a question again that no gendered word is in, too: that is no change
    told = outcome.document()["validity"]["asked_again"]["in_other_words"]
    assert set(told) == {"dialect", "person_name"}
    assert [told[name]["change"]["questions"] for name in sorted(told)] == [1, 1]
