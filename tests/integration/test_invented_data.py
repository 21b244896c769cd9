"""Every benchmark whose data we do not have, on small invented data in its form: full marks for the gold answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eval_factory.tasks.framework import load_framework
from integration.invented import CASES, MAKERS, gold_for
from integration.jury_endpoint import judgement
from integration.support import TASK_DATA, Run
from scripted_endpoint import ScriptedEndpoint

HIGHEST_MARK = 5
NEEDS_FILES = {"medalign", "ehrshot", "medbullets_freetext"}
"""tiktoken's vocabulary, nltk's sentence tokenizer."""
LIKE_ANOTHER = {
    "shc_cdi_med", "shc_conf_med", "shc_ent_med", "shc_gip_med", "shc_privacy_med", "shc_ptbm_med",
    "med_dialog_healthcaremagic",
}  # fmt: skip
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
        outcome = run_program(task, endpoint.url, "--no_preflight", params={"extra": invented.extra}, env=env)
    assert outcome.returncode == 0, outcome.stderr
    document = outcome.document()
    assert document["validity"]["instances"]["scored"] >= len(CASES)
    full = HIGHEST_MARK if known.helm.judges else 1.0
    score = outcome.scores()[known.helm.main_metric]
    assert score == pytest.approx(full), document["validity"]
    other_data = [note for note in document["validity"]["notes"] if "another version of them?" in note]
    assert bool(other_data) is (known.about.instances is not None)  # these are not the real ones
    corrected = outcome.scores().get(f"{known.helm.main_metric}.corrected")
    assert corrected in (None, full)


def test_options_that_are_the_letters_are_noted(run_program: Run, tmp_path: Path) -> None:
    """Always B: HELM's quasi_prefix_exact_match is right even where A is."""
    invented = MAKERS["shc_bmt_med"](tmp_path / "own data", tmp_path)
    with ScriptedEndpoint(lambda _prompt: "B") as endpoint:
        outcome = run_program("shc_bmt_med", endpoint.url, params={"extra": invented.extra})
    assert outcome.returncode == 0, outcome.stderr
    assert (outcome.scores()["exact_match"], outcome.scores()["quasi_prefix_exact_match"]) == (0.5, 1.0)
    assert any(note.startswith("3 of 6 instances: HELM's quasi") for note in outcome.document()["validity"]["notes"])


def test_every_task_was_tried() -> None:
    """On real data, or on invented ones."""
    jury_on_real_data = {"aci_bench", "medi_qa", "mtsamples_replicate", "mtsamples_procedures"}
    tried = {*MAKERS, *TASK_DATA, *jury_on_real_data, "sample_medical_qa"}
    elsewhere = {"med_dialog", "custom"}  # its two subsets; test_custom.py
    elsewhere |= {
        "healthbench",
        "healthbench_hard",
        "healthbench_consensus",
        "healthbench_professional",
    }  # test_rubrics.py
    elsewhere |= {"medxpertqa_text", "longhealth"}  # test_published_choices.py
    # By hand, each once: one benchmark more through helm-run takes seconds of every test run.
    elsewhere |= {"careqa", "afrimed_qa", "metamedqa", "med_qa", "med_mcqa"}
    elsewhere |= {"mmlu_pro_health", "healthqa_br", "mmlu_clinical_afr"}
    assert tried | elsewhere == set(load_framework().names())
    assert all(task.about.tried is not None for task in load_framework().evaluations)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        ("no folder", r"there is no such folder"),
        ("wrong level", r"test.findings.tok: there is no such file; in .* there is: own/"),
        ("a file", r"is a file, not the folder"),
    ],
)
def test_a_wrong_layout_is_said_before_anything_is_asked(
    break_it: str, message: str, run_program: Run, tmp_path: Path
) -> None:
    MAKERS["mimic_rrs"](tmp_path / "data" / "own", tmp_path)
    (tmp_path / "file").write_text("x")
    path = {"no folder": "nowhere", "wrong level": "data", "a file": "file"}[break_it]
    with ScriptedEndpoint(lambda _prompt: "x") as endpoint:
        outcome = run_program("mimic_rrs", endpoint.url, params={"extra": {"data_path": path}})
        assert not endpoint.requests
        assert not endpoint.probes
    assert outcome.returncode == 3
    assert re.search(message, outcome.stderr)
    assert "data_path/test.impression.tok" in outcome.stderr


def test_missing_sentence_tokenizer_is_said(run_program: Run, tmp_path: Path) -> None:
    invented = MAKERS["medbullets_freetext"](tmp_path, tmp_path / "out" / "helm" / "scenarios")
    env = {"NLTK_DATA": str(tmp_path), "HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:9"}
    with ScriptedEndpoint(lambda prompt: gold_for(invented, prompt)) as endpoint:
        outcome = run_program(
            "medbullets_freetext", endpoint.url, "--no_preflight", env={**env, "NO_PROXY": "127.0.0.1"}
        )
    assert outcome.returncode == 3
    assert "need NLTK's resource punkt_tab" in outcome.stderr
