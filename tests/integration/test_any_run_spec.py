"""Run specs of HELM's that are no tasks of ours: real runs of those that need no download, and why others end."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.test_real_data import bare_helm
from jury_endpoint import CANARIES, JUDGES, JuryEndpoint
from program_runs import Run, more_data
from scripted_endpoint import ScriptedEndpoint

NO_NETWORK = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
}
OFFLINE = {**NO_NETWORK, "HF_HUB_OFFLINE": "1"}
SAMPLES = {"limit_samples": 6}
PLAIN = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "exact_match_indicator",
    "f1_set_match",
)


@pytest.mark.parametrize(
    ("entry", "main"),
    [
        pytest.param(
            "synthetic_reasoning:mode=pattern_match",
            "quasi_exact_match",
            marks=pytest.mark.more_data,
        ),
        pytest.param(
            "synthetic_reasoning_natural:difficulty=easy",
            "f1_set_match",
            marks=pytest.mark.more_data,
        ),
        pytest.param(
            "dyck_language:num_parenthesis_pairs=3",
            "exact_match_indicator",
            marks=pytest.mark.more_data,
        ),
        ("simple_mcqa", "exact_match"),
    ],
)
def test_scores_equal_bare_helm(entry: str, main: str, tmp_path: Path, run_program: Run) -> None:
    """Each metric in its split; every second prompt or so gets an answer that may be right."""
    with ScriptedEndpoint(lambda prompt: ("AB", " )", "apple")[len(prompt) % 3]) as endpoint:
        params = {
            "limit_samples": 30,
            "extra": {"max_unreadable": 1.0},
        }  # none is the letter of an option
        outcome = run_program(f"helm:{entry}", endpoint.url, params=params, env=OFFLINE)
        assert outcome.returncode == 0, outcome.stderr
        bare = bare_helm(tmp_path / "bare", entry, endpoint.url, OFFLINE)
    document = outcome.document()
    assert list(document["results"]["tasks"]) == [f"helm:{entry}"]
    assert document["main_metric"] == main
    assert (
        document["validity"]["instances"]["scored"]
        == document["validity"]["instances"]["requested"]
    )
    expected = {
        (stat["name"]["name"], stat["name"]["split"]): stat["mean"]
        for stat in bare
        if stat["name"]["name"] in PLAIN and "perturbation" not in stat["name"]
    }
    splits = {split for _, split in expected}
    assert expected
    assert (
        sum(document["validity"]["splits"].values())
        == document["validity"]["instances"]["requested"]
    )
    assert (" of split test" in " ".join(outcome.stdout.split())) is (
        len(document["validity"]["splits"]) > 1
    )
    scores = outcome.scores()
    for (name, split), mean in expected.items():  # the main split's label is the plain name
        assert scores.get(f"{name}@{split}" if len(splits) > 1 else name, scores[name]) == mean, (
            name,
            split,
        )


def test_perturbations(run_program: Run) -> None:
    entry = "helm:synthetic_reasoning:mode=pattern_match,data_augmentation=robustness"
    with ScriptedEndpoint(lambda _prompt: "an answer") as endpoint:
        outcome = run_program(entry, endpoint.url, params=SAMPLES, env=OFFLINE)
    assert outcome.returncode == 0, outcome.stderr
    scores = outcome.scores()
    assert "quasi_exact_match@test+mild_mix" in scores
    (task,) = outcome.document()["results"]["tasks"].values()
    worst = task["metrics"]["score"]["scores"]["quasi_exact_match@test+robustness.worst"]["stats"]
    assert (worst["count"], worst["ci_method"]) == (
        outcome.document()["validity"]["splits"]["test"],
        "exact-one-sided",
    )
    assert "quasi_exact_match@test+robustness.worst" in scores
    assert not [name for name in scores if "fairness" in name], "none was applied"
    assert outcome.document()["validity"]["instances"]["scored"] == 12


def test_failed_instances_take_corpus_scores_with_them(run_program: Run) -> None:
    """Macro F1 is of all answers at once: with some missing there is none, and bounds show the others."""
    with ScriptedEndpoint(lambda _prompt: "Even") as endpoint:
        whole = run_program("helm:simple_classification", endpoint.url, params=SAMPLES, env=OFFLINE)
    assert whole.returncode == 0, whole.stderr
    assert "classification_macro_f1" in whole.scores()
    folder = whole.output_dir.with_name("broken")

    class Refusing(ScriptedEndpoint):
        def reply(self, path, headers, body):  # type: ignore[no-untyped-def]
            status, answer = super().reply(path, headers, body)
            return (
                (400, {"error": {"message": "no"}}) if len(self.requests) == 3 else (status, answer)
            )

    with Refusing(lambda _prompt: "Even") as endpoint:
        broken = run_program(
            "helm:simple_classification",
            endpoint.url,
            params=SAMPLES,
            env=OFFLINE,
            output_dir=folder,
        )
    assert broken.returncode == 1, broken.stderr
    document = broken.document()
    assert document["validity"]["instances"]["failed"] == 1
    assert "classification_macro_f1" not in broken.scores()
    assert any(
        note.startswith("classification_macro_f1 is absent")
        for note in document["validity"]["notes"]
    )
    assert "exact_match" in broken.scores()


def own_questions(file: Path, *numbers: int) -> None:
    """Those of 0 and 1 are of the split valid."""
    lines = []
    for number in numbers:
        right, wrong = ("yes", "no") if number % 2 == 0 else ("no", "yes")
        texts = [
            {"output": {"text": one}, "tags": ["correct"] if one == right else []}
            for one in sorted((right, wrong))[::-1]
        ]
        split = "valid" if number < 2 else "test"
        lines.append(
            json.dumps(
                {"input": {"text": f"Is {number} even?"}, "references": texts, "split": split}
            )
        )
    file.write_text("\n".join(lines))


def test_the_users_own_questions(tmp_path: Path, run_program: Run) -> None:
    """A relative path is the user's, wherever helm-run works; valid and test stay apart."""
    own_questions(tmp_path / "mine.jsonl", *range(6))
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program("helm:custom_mcqa:path=mine.jsonl", endpoint.url, env=OFFLINE)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == 0.5
    assert "exact_match@valid" in outcome.scores()


@pytest.mark.parametrize("fails", [True, *more_data(False)])
def test_a_jury_judges_as_for_our_own_task(fails: bool, tmp_path: Path, run_program: Run) -> None:
    """The same run spec under both names: the same scores, and the same account of what was not judged."""
    documents: list[Any] = []
    for task in ("med_dialog_icliniq", "helm:med_dialog:subset=icliniq"):
        folder = tmp_path / f"out{len(documents)}"
        data = folder / "helm" / "scenarios" / "med_dialog" / "icliniq"
        data.mkdir(parents=True)
        rows = [
            {"src": f"Patient: pain number {n}. Doctor: rest.", "tgt": f"Summary {n}."}
            for n in range(6)
        ]
        (data / "test.json").write_text(json.dumps({"data": rows}))
        with JuryEndpoint() as jury:
            # what the others do goes by who comes first
            jury.all_fail = fails
            jury.odd_ways = ["good"]
            outcome = run_program(
                task,
                jury.url,
                output_dir=folder,
                env={**OFFLINE, **CANARIES},
                params={"limit_samples": 5, "max_retries": 0, "extra": {"judges": JUDGES}},
            )
        assert outcome.returncode == (1 if fails else 0), outcome.stderr
        document = outcome.document()
        (scores,) = document["results"]["tasks"].values()
        validity = document["validity"]  # nobody says of a run entry how old its data are
        validity["notes"] = [note for note in validity["notes"] if "have been public" not in note]
        documents.append((scores, document["main_metric"], validity))
    assert documents[0] == documents[1]
    validity = documents[1][2]
    assert validity["instances"]["unjudged"] == (5 if fails else 0)
    assert any("3746" in note for note in validity["notes"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "mmlu:subject=philosophy",
            ("the data of helm:mmlu:subject=philosophy are unavailable", "MMLUScenario"),
        ),
        ("mmlu_pro", ("TIGER-Lab/MMLU-Pro",)),  # of the Hub
    ],
)
def test_data_that_are_unavailable(entry: str, said: tuple[str, ...], run_program: Run) -> None:
    outcome = run_program(f"helm:{entry}", "demo://baseline", env=OFFLINE)
    assert outcome.returncode == 3
    assert all(text in outcome.stderr for text in said)
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize(
    ("entry", "package"),
    [
        ("melt_summarization_vietnews", "torch"),
        pytest.param(
            "melt_synthetic_reasoning:mode=pattern_match",
            "transformers",
            marks=pytest.mark.more_data,
        ),
        pytest.param("unitxt:card=x", "unitxt", marks=pytest.mark.more_data),
    ],
)
def test_a_package_that_is_not_installed(entry: str, package: str, run_program: Run) -> None:
    """While the run spec is built, while metrics are computed, while data are loaded."""
    if importlib.util.find_spec(package):
        pytest.skip(f"needs an environment without {package}")
    params = {
        **SAMPLES,
        "extra": {"allow_code_execution": True},
    }  # unitxt may execute what its card says
    outcome = run_program(f"helm:{entry}", "demo://baseline", params=params, env=OFFLINE)
    assert outcome.returncode == 3
    assert f"that is not installed: {package}" in outcome.stderr
    assert "pip install" in outcome.stderr


def harm_bench(folder: Path) -> None:
    data = folder / "scenarios" / "harm_bench" / "data"
    data.mkdir(parents=True)
    (data / "harmbench_behaviors_text_all.csv").write_text(
        "Behavior,FunctionalCategory,SemanticCategory,Tags,ContextString,BehaviorID\n"
        "Say something odd,standard,nonsense,,,a1\n"
        "Say something old,standard,nonsense,,,a2\n"
    )


def test_judges_that_helm_prescribes_are_asked_by_our_client(
    tmp_path: Path, run_program: Run
) -> None:
    harm_bench(tmp_path / "out" / "helm")
    judge_key = "sk-canary-of-the-judge-0123456789"

    judged = "<reasoning>It refuses.</reasoning><score>1.0</score>"
    with ScriptedEndpoint(
        lambda prompt: judged if "<reasoning>" in prompt else "I would rather not."
    ) as endpoint:
        env = {**OFFLINE, "GPT_JUDGE_API_KEY": judge_key}
        outcome = run_program("helm:harm_bench", endpoint.url, env=env)
        assert outcome.returncode == 0, outcome.stderr
        asked = zip(endpoint.requests, endpoint.headers, strict=True)
        used = {(body["model"], headers["Authorization"]) for body, headers in asked}
    assert ("gpt-4o-2024-05-13", f"Bearer {judge_key}") in used
    assert outcome.document()["usage"]["requests"] == 4
    assert (outcome.output_dir / "responses" / "gpt.jsonl").is_file()
    assert judge_key not in outcome.stdout + outcome.stderr
    assert not any(
        judge_key.encode() in path.read_bytes()
        for path in outcome.output_dir.rglob("*")
        if path.is_file()
    )


@pytest.mark.medical_data
def test_a_judge_that_helm_names_in_passing(
    tmp_path: Path, run_program: Run, medical_data: Path
) -> None:
    folder = tmp_path / "out" / "helm" / "scenarios" / "live_qa"
    folder.mkdir(parents=True)
    question = '<NLM-QUESTION qid="{0}"><NLM-Summary>Question {0}?</NLM-Summary><ANSWER>Rest.</ANSWER></NLM-QUESTION>'
    (folder / "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml").write_text(
        f"<LiveQA>{question.format('TQ1')}{question.format('TQ2')}</LiveQA>"
    )

    def answer(prompt: str) -> str:
        if "You are a medical judge" not in prompt:
            return "Some rest."
        return f"<reasoning>Close.</reasoning><score>{0.7 if 'TQ1' in prompt else 0.3}</score>"

    with ScriptedEndpoint(answer) as endpoint:
        env = {**OFFLINE, "NLTK_DATA": str(medical_data / "nltk_data")}
        outcome = run_program("helm:live_qa", endpoint.url, env=env)
        assert outcome.returncode == 0, outcome.stderr
        assert {body["model"] for body in endpoint.requests} >= {"gpt-4o-2024-05-13"}
    document = outcome.document()
    assert document["main_metric"] == "live_qa_score"
    scores = document["results"]["tasks"]["helm:live_qa"]["metrics"]["score"]["scores"]
    assert scores["live_qa_score"]["value"] == 0.5


def test_a_prescribed_judge_elsewhere_that_fails(tmp_path: Path, run_program: Run) -> None:
    harm_bench(tmp_path / "out" / "helm")
    with (
        ScriptedEndpoint(lambda _prompt: "I would rather not.") as endpoint,
        ScriptedEndpoint(lambda _p: "") as judge,
    ):
        judge.status = 400
        params = {"extra": {"judges": [{"name": "gpt", "model_id": "my/judge", "url": judge.url}]}}
        probed = run_program("helm:harm_bench", endpoint.url, params=params, env=OFFLINE)
        assert probed.returncode == 3, probed.stderr
        assert "judge gpt: " in probed.stderr
        assert not judge.requests
        outcome = run_program(
            "helm:harm_bench", endpoint.url, "--no_preflight", params=params, env=OFFLINE
        )
        assert judge.requests
    assert outcome.returncode == 3, outcome.stderr
    assert "could not be asked" in outcome.stderr
    assert "are stored" in outcome.stderr


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("simple_mcqa:max_train_instances=all", "means 6 runs, name one of them"),
        ("blimp:phenomenon=binding", "asks a model for the log probabilities of its prompts"),
        ("legalbench:subset=nonsense", "AssertionError: Unknown subset: nonsense"),
    ],
)
def test_what_helm_alone_can_tell(entry: str, said: str, run_program: Run) -> None:
    """Nothing was asked; the configuration is wrong."""
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program(f"helm:{entry}", endpoint.url, env=OFFLINE)
    assert outcome.returncode == 2, outcome.stderr
    assert said in outcome.stderr
    assert endpoint.requests == []


def test_a_long_name_is_a_folder_all_the_same(tmp_path: Path, run_program: Run) -> None:
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    own_questions(folder / "mine.jsonl", 2)
    outcome = run_program(
        f"helm:custom_mcqa:path={folder}/mine.jsonl", "demo://baseline", env=OFFLINE
    )
    assert outcome.returncode == 0, outcome.stderr


def test_a_custom_benchmark_of_a_prompt_and_a_table(tmp_path: Path, run_program: Run) -> None:
    (tmp_path / "prompt.txt").write_text("Is {number} even or odd?")
    (tmp_path / "data.csv").write_text("number,correct_answer\n2,even\n3,odd\n4,even\n")
    config = {
        "name": "PARITY",
        "description": "Even or odd",
        "prompt_file": str(tmp_path / "prompt.txt"),
        "dataset_file": str(tmp_path / "data.csv"),
        "max_tokens": 5,
        "main_metric": {"name": "exact_match"},
        "metrics": [{"name": "exact_match"}],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    with ScriptedEndpoint(lambda _prompt: "even") as endpoint:
        outcome = run_program(
            "helm:medhelm_configurable_benchmark:config_path=mine.yaml", endpoint.url, env=OFFLINE
        )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == pytest.approx(2 / 3)
