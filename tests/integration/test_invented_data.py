"""Every benchmark whose data we do not have, on small invented data in its form: full marks for the gold answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.tasks.framework import load_framework
from invented_benchmarks import CASES, MAKERS, gold_for
from jury_endpoint import judgement
from program_runs import Run
from scripted_endpoint import ScriptedEndpoint

HIGHEST_MARK = 5
NEEDS_FILES = {"medalign", "ehrshot", "medbullets_freetext"}
"""tiktoken's vocabulary, nltk's sentence tokenizer."""
LIKE_ANOTHER = {
    "shc_cdi_med",
    "shc_conf_med",
    "shc_ent_med",
    "shc_gip_med",
    "shc_privacy_med",
    "shc_ptbm_med",
    "med_dialog_healthcaremagic",
}
"""The same files and run spec under another name: shc_bmt_med, med_dialog_icliniq."""


def marks_of(task: str) -> list[pytest.MarkDecorator]:
    needs = [pytest.mark.medical_data] if task in NEEDS_FILES else []
    return [*needs, pytest.mark.more_data] if task in LIKE_ANOTHER else needs


@pytest.mark.parametrize("task", [pytest.param(name, marks=marks_of(name)) for name in MAKERS])
def test_gold_answers_give_full_marks(
    task: str, run_program: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    known = load_framework().task(task)
    assert known is not None
    assert known.helm.main_metric is not None
    invented = MAKERS[task](tmp_path / "own data", tmp_path / "out" / "helm" / "scenarios")
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    if task in NEEDS_FILES:
        data: Path = request.getfixturevalue("medical_data")
        env |= {"TIKTOKEN_CACHE_DIR": str(data / "tiktoken"), "NLTK_DATA": str(data / "nltk_data")}

    def answer(prompt: str) -> str:
        if known.helm.judges and "Output Format:" in prompt and '"score"' in prompt:
            return judgement(prompt, HIGHEST_MARK)
        return gold_for(invented, prompt)

    with ScriptedEndpoint(answer) as endpoint:
        outcome = run_program(
            task, endpoint.url, "--no_preflight", params={"extra": invented.extra}, env=env
        )
    assert outcome.returncode == 0, outcome.stderr
    document = outcome.document()
    assert document["validity"]["instances"]["scored"] >= len(CASES)
    full = HIGHEST_MARK if known.helm.judges else 1.0
    score = outcome.scores()[known.helm.main_metric]
    assert score == pytest.approx(full), document["validity"]
    other_data = [
        note for note in document["validity"]["notes"] if "another version of the data?" in note
    ]
    assert bool(other_data) is (known.about.instances is not None)  # these are not the real ones
    corrected = outcome.scores().get(f"{known.helm.main_metric}.corrected")
    assert corrected in (None, full)
