"""What failed inside helm-run becomes the right exit code and says what to do."""

from __future__ import annotations

import pytest

from eval_factory.core.errors import ConfigError, EvalFactoryError, HelmError, PrerequisiteError
from eval_factory.core.logs import ASKING, JUDGING, LOADING, SCORING
from eval_factory.workflows.helm_run import (
    ended_before_it_ran,
    explained_failure,
    how_helm_run_ended,
    raised_at_the_end,
)
from unit.builders import plan


@pytest.mark.parametrize(
    ("error", "phase", "kind", "said"),
    [
        ("URLError: <urlopen error>", LOADING, PrerequisiteError, "the data of pubmed_qa are unavailable: URLError"),
        ("GatedRepoError: 401", LOADING, PrerequisiteError, "the data of pubmed_qa"),
        ("ConnectionError: no", SCORING, PrerequisiteError, "while it is scoring"),
        ("ModuleNotFoundError: No module named 'sacrebleu.metrics'", SCORING, PrerequisiteError, "-m pip install 'sacrebleu~=2.2'"),
        ("ModuleNotFoundError: No module named 'torch'", LOADING, PrerequisiteError, "-m pip install 'torch<3.0.0,>=1.13.1'"),
        (
            "ModuleNotFoundError: this metric needs torch", SCORING,
            PrerequisiteError, "not installed: torch",
        ),
        (
            "OptionalDependencyNotInstalled: Optional dependency gdown is not installed. Please run", LOADING,
            PrerequisiteError, "-m pip install 'gdown~=5.1'",
        ),
        (
            "LookupError: ****\n  Resource \x1b[93mpunkt_tab\x1b[0m not found.\n  Please use the NLTK Downloader", SCORING,
            PrerequisiteError, "NLTK's resource punkt_tab",
        ),
        (
            "LookupError: **** Resource \\x1b[93mpunkt\\x1b[0m not found. Please use the NLTK Downloader", SCORING,
            PrerequisiteError, "NLTK's resource punkt,",
        ),
        ("LookupError: unknown encoding", SCORING, HelmError, "HELM failed while pubmed_qa ran"),
        ("NoInstancesError: found no instances", LOADING, PrerequisiteError, "the data of pubmed_qa"),
        ("DownloadError: https://x could not be downloaded", LOADING, PrerequisiteError, "the data of pubmed_qa"),
        ("TypeError: got an unexpected keyword argument 'x'", LOADING, HelmError, "TypeError"),  # a defect, of no user's
        ("ValueError: odd", LOADING, HelmError, "ValueError: odd"),
        ("OpenAIError: Missing credentials", JUDGING, HelmError, "OpenAIError"),
        ("KeyError: 'x'", ASKING, HelmError, "KeyError"),
    ],
)  # fmt: skip
def test_explained(error: str, phase: str, kind: type[EvalFactoryError], said: str) -> None:
    failure = explained_failure(plan(), error, phase)
    assert type(failure) is kind
    assert said in str(failure)


def test_what_cannot_be_built_is_not_advised() -> None:
    """HELM's own words advise an extra of its own, and some of these do not build."""
    said = (
        "OptionalDependencyNotInstalled: Optional dependency odd_one is not installed."
        ' Please run `pip install "crfm-helm[summarization]"`'
    )
    text = str(explained_failure(plan(), said, LOADING))
    assert "crfm-helm[" not in text
    assert "pip install odd_one\n" in text
    assert "look for the one that holds this module" in text
    assert "could not import" in str(explained_failure(plan(), "ImportError: cannot import name 'x' from 'y'", SCORING))


def test_judges_that_helm_asks_itself() -> None:
    failure = explained_failure(plan({"config.type": "helm:harm_bench"}), "OpenAIError: Missing credentials", JUDGING)
    assert isinstance(failure, PrerequisiteError)
    assert "openai/gpt-4o-2024-05-13" in str(failure)


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (
            ["Traceback", '  File "x.py"', "ModuleNotFoundError: No module named 'torch'"],
            "ModuleNotFoundError: No module named 'torch'",
        ),
        (["urllib.error.URLError: <urlopen error>"], "URLError: <urlopen error>"),
        (
            ["helm.common.optional_dependencies.OptionalDependencyNotInstalled: Optional"],
            "OptionalDependencyNotInstalled: Optional",
        ),
        (["AssertionError"], "AssertionError"),
        (["KeyError: 'all'", "and a second line"], "KeyError: 'all' and a second line"),
        (["Exception: Unitxt card or recipe must be specified"], "Exception: Unitxt card or recipe must be specified"),
        (["all is well", "Error rate: 3"], None),
        ([], None),
    ],
)
def test_the_end_of_a_traceback(tail: list[str], found: str | None) -> None:
    assert raised_at_the_end(tail) == found


def test_a_run_spec_that_helm_does_not_build() -> None:
    here = plan({"config.type": "helm:legalbench:subset=all"})
    wrong = ended_before_it_ran(here, 1, ["Traceback", "AssertionError: Unknown subset: all"])
    assert isinstance(wrong, ConfigError)
    assert "AssertionError: Unknown subset: all" in str(wrong)
    missing = ended_before_it_ran(here, 1, ["Traceback", "ModuleNotFoundError: No module named 'torchvision'"])
    assert isinstance(missing, PrerequisiteError)
    unreachable = ended_before_it_ran(here, 1, ["urllib.error.URLError: <urlopen error>"])
    assert isinstance(unreachable, PrerequisiteError)


def test_an_argument_that_a_scenario_does_not_take() -> None:
    here = plan({"config.type": "helm:mmlu:subject=anatomy,tokenizer=x/y"})
    error = "TypeError: MMLUScenario.__init__() got an unexpected keyword argument 'tokenizer'"
    failure = explained_failure(here, error, LOADING)
    assert isinstance(failure, ConfigError)
    assert "eval-factory ls helm:mmlu" in str(failure)
    assert isinstance(explained_failure(here, error, ASKING), HelmError)


def test_a_task_of_ours_is_not_the_users_mistake() -> None:
    failure = ended_before_it_ran(plan(), -9, ["ValueError: odd"])
    assert isinstance(failure, HelmError)
    assert str(failure).startswith("helm-run was killed by signal 9:\n  | ValueError: odd\n  log: ")


def test_an_end_without_words_is_said_in_one_sentence() -> None:
    """A suite shows the first line, or the first two where that ends with a colon."""
    for tail in ([], ["", " "]):
        killed = str(ended_before_it_ran(plan(), -9, tail))
        assert killed.startswith("helm-run was killed by signal 9 and printed nothing\n  log: ")
        assert how_helm_run_ended("helm-run", 0, tail) == "helm-run ended with 0 and printed nothing"
    assert how_helm_run_ended("helm-run", 1, ["", "a", "b"]) == "helm-run ended with 1:\n  | a\n  | b"
