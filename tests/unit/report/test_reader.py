"""A result that is written and read again is the same; which runs a folder stands for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from builders import plan
from eval_factory.core import results
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import (
    AskedEndpoint,
    Comparability,
    Deviation,
    Floor,
    SpentByRole,
    TaskResult,
    Usage,
)
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.report import documents
from eval_factory.report.reader import (
    compared_runs,
    find_only_run,
    is_suite_folder,
    load_result,
    run_folders,
)
from eval_factory.report.write import write_reports
from facts import naming, says
from stored_results import right_or_wrong, written
from suite_folders import SAME, suite_folder
from unit.report.test_summary import spent


@pytest.fixture(scope="module")
def detailed(result: TaskResult) -> TaskResult:
    """A result that says something of everything."""
    jury = results.JuryReport(
        {"a": 4.5},
        None,
        {"a/b": 0.5},
        {"a": None},
        {"poor": 0, "good": 5},
        {"right": "it is"},
        length_correlation={"a": results.RankCorrelation(0.5, 0.25, 0.75, 40), "b": None},
    )
    score = result.scores["exact_match"]
    score = replace(
        score, stats=replace(score.stats, stddev=0.5, stderr=0.25, ci_low=0.25, ci_high=0.75)
    )
    scores = {
        "exact_match": score,
        "exact_match@valid+typos": replace(score, split="valid", perturbation="typos"),
        "NDCG@10": replace(score, metric="NDCG@10", higher_is_better=None, scale=None, unit=None),
        "of_no_split": replace(score, metric="of_no_split", split=None),
    }
    validity = replace(
        result.validity,
        judges={"a": results.JudgeCounts(4, 3, 1, same_family=True)},
        jury=jury,
        notes=("one", "two"),
        failures=(results.FailureCause("model", 1, "HTTP 500: no", None),),
        judgements=results.Judgements(4, 3),
        not_reportable=("for a reason",),
        floors={
            "exact_match": Floor("always A", 0.5, 4, {"empty": 0.0, "always A": 0.5}),
            "wer": Floor("empty", 0.5, 4, {"empty": 0.5}, lower_is_better=True),
        },
    )
    asked = AskedEndpoint(
        "org/model", "host.example", ({"temperature": 0.0},), 4, {"other": 1}, 1, None
    )
    judge = replace(asked, sampling=(), stated_models={}, other_model=0, prompt_sha256=("0" * 64,))
    provenance = replace(
        result.provenance,
        endpoints={"model": asked, "a": judge},
        dataset_revisions={"hub:a/b": "1" * 40},
        started_at="2001-09-09T01:46:40Z",
        ended_at="2001-09-09T01:47:10Z",
    )
    first, *others = result.instances
    all_figures = replace(
        score.stats,
        clusters=3,
        design_effect=1.5,
        effective_n=2.5,
        trials=2,
        trial_stddev=0.1,
        p_value=0.02,
        p_holm=0.04,
    )
    in_words = replace(score, metric="unknown", unit="words")
    of_groups = {
        "odd": {"exact_match": replace(score, stats=all_figures)},
        "even": {"exact_match": score, "unknown": in_words},
    }
    return replace(
        result,
        scores=scores,
        groups={"category": of_groups},
        validity=validity,
        provenance=provenance,
        instances=[replace(first, signs=("unparsed",), cluster="a note"), *others],
        comparability=Comparability(
            False, None, (Deviation("a", 1, "b", "c"), Deviation("d", "e", 0.5, "f")), ("g",)
        ),
    )


@pytest.fixture
def folder(detailed: TaskResult, tmp_path: Path) -> Path:
    rundir = RunDir(tmp_path / "written")
    rundir.create()
    of_run = plan().evaluation
    write_reports(
        detailed,
        rundir,
        config=of_run.as_dict(),
        command="helm-run -c x",
        redactor=Redactor(),
        responses={},
        user_config=of_run.as_given(),
    )
    return rundir.root


def test_it_is_the_same(detailed: TaskResult, folder: Path) -> None:
    stored = load_result(folder)
    assert list(stored.result.instances) == detailed.instances
    whole = replace(detailed, instances=(), something_to_ask=detailed.status == "partial")
    assert replace(stored.result, instances=()) == whole
    assert (stored.folder, stored.command) == (folder, "helm-run -c x")
    assert stored.config == {"type": "pubmed_qa", "output_dir": "/results/x"}
    assert stored.target["api_endpoint"]["model_id"] == "org/model"
    assert load_result(folder / "evaluation_config.yaml").result.scores == detailed.scores


BOARD = {"upstream": "crfm-helm 0.5.16"}


@pytest.mark.parametrize(
    ("stamp", "stored"),
    [
        (None, None),
        (Comparability(True), {"medhelm_settings": True, **BOARD}),
        (Comparability(None, "no"), {"medhelm_settings": None, "reason": "no", **BOARD}),
    ],
)
def test_a_stamp_without_deviations_is_one_line(
    stamp: Comparability | None,
    stored: dict[str, object] | None,
    result: TaskResult,
    tmp_path: Path,
) -> None:
    folder = written(tmp_path / "again", replace(result, comparability=stamp))
    file = folder / "evaluation_config.yaml"
    document = yaml.safe_load(file.read_text())
    assert document["comparability"] == stored
    assert load_result(folder).result.comparability == stamp
    del document["comparability"]  # of an earlier version
    file.write_text(yaml.safe_dump(document))
    assert load_result(folder).result.comparability is None


def test_a_document_that_is_made_of_what_was_read_is_the_same(folder: Path) -> None:
    stored = load_result(folder)
    given = {"config": stored.config, "target": stored.target}
    document = documents.evaluation_config_document(stored.result, given, stored.command)
    assert to_yaml(document) == (folder / "evaluation_config.yaml").read_text("utf-8")


def test_the_defaults_come_from_the_run_config_beside_it(folder: Path) -> None:
    whole = documents.run_config_document(
        plan({"config.params.parallelism": 9}).evaluation.as_dict(),
        "x",
        framework_name="helm",
        pkg_name="p",
    )
    whole["target"]["api_endpoint"]["model_id"] = "org/later"
    RunDir(folder).run_config.write_text(to_yaml(whole))
    stored = load_result(folder)
    assert stored.config["params"]["parallelism"] == 9
    assert stored.config["params"]["extra"]["min_coverage"] == 1.0
    assert stored.target["api_endpoint"]["adapter_config"]["use_nvcf"] is False
    # what the result says of itself is stronger
    assert stored.target["api_endpoint"]["model_id"] == "org/model"


@pytest.mark.parametrize("text", ["[", "1", "config: 1\ntarget: {}", "config: {}"])
def test_a_run_config_that_is_none_is_not_needed(text: str, folder: Path) -> None:
    RunDir(folder).run_config.write_text(text)
    assert load_result(folder).config == {"type": "pubmed_qa", "output_dir": "/results/x"}


@pytest.mark.parametrize(
    "usage",
    [
        Usage(
            SpentByRole(spent(7, 40), {"model": spent(7, 40)}),
            SpentByRole(spent(7, 40), {"model": spent(7, 40)}),
            1,
            2.0,
        ),
        Usage(
            SpentByRole(spent(7, 40), {"model": spent(7, 40)}),
            SpentByRole(spent(9, 40), {"model": spent(9, 40)}),
            2,
            2.0,
        ),
        Usage(
            SpentByRole(spent(7, 40), {"gpt": spent(4, 1)}), SpentByRole(spent(9, 40), {}), 3, 2.0
        ),
        Usage(SpentByRole(spent(0, None), {}), SpentByRole(spent(0, None), {}), 0, 2.0),
    ],
)
def test_usage_that_was_written_in_short_is_whole_again(
    usage: Usage, result: TaskResult, tmp_path: Path
) -> None:
    assert (
        load_result(written(tmp_path / "used", replace(result, usage=usage))).result.usage == usage
    )


@pytest.mark.parametrize("version", [1, 3, None, "x"])
def test_a_version_that_is_not_known_is_said(version: object, folder: Path) -> None:
    file = folder / "evaluation_config.yaml"
    document = yaml.safe_load(file.read_text())
    document["schema_version"] = version
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(
        PrerequisiteError, match=naming("cannot read the result", "schema_version: 2")
    ):
        load_result(folder)


def test_what_is_no_result_is_named(folder: Path, tmp_path: Path) -> None:
    file = folder / "evaluation_config.yaml"
    document = yaml.safe_load(file.read_text())
    document["validity"]["coverage"] = "all"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(
        PrerequisiteError,
        match=naming("cannot read the result", "validity.coverage: 'all'"),
    ):
        load_result(folder)
    file.write_text("{")
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        load_result(folder)
    with pytest.raises(PrerequisiteError, match=naming("no result", "a run ends")):
        load_result(tmp_path)


def test_lines_of_different_instances_are_not_taken_for_one(folder: Path) -> None:
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join([*lines[1:], lines[0]]))
    instances = load_result(folder).result.instances
    with pytest.raises(PrerequisiteError, match=r"differ at instance"):
        list(instances)
    for text in ("".join(lines[:-1]), json.dumps({"id": "x"}) + "\n", None):
        if text is None:
            (folder / "results.jsonl").unlink()
        else:
            (folder / "results.jsonl").write_text(text)
        with pytest.raises(PrerequisiteError, match=r"instances cannot be read"):
            list(instances)


VALUES = {"small/qa": SAME, "large/qa": SAME, "small/calc": SAME, "large/calc": SAME}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return suite_folder(tmp_path / "suite", VALUES)


def named(suite: Path, runs: list[Path]) -> list[str]:
    return [str(run.relative_to(suite)) for run in runs]


def test_a_run_is_itself_and_each_is_taken_once(tmp_path: Path) -> None:
    run = right_or_wrong(tmp_path / "a", "10")
    assert run_folders([run, str(run), tmp_path / "nothing"]) == [run, tmp_path / "nothing"]
    assert find_only_run(run, command="x") == run
    assert not is_suite_folder(run)


def test_a_suite_is_its_runs_in_the_order_of_its_table_and_a_target_its_own(suite: Path) -> None:
    right_or_wrong(suite / "small" / "of_another_suite", "10")
    (suite / ".suite" / "x").mkdir(parents=True)
    (suite / ".suite" / "x" / "evaluation_config.yaml").write_text("")
    assert is_suite_folder(suite)
    assert named(suite, run_folders([suite])) == list(VALUES)
    assert named(suite, run_folders([suite / "large", suite])) == [
        "large/calc",
        "large/qa",
        "small/qa",
        "small/calc",
    ]


def test_a_suite_whose_table_is_not_there_yet_is_what_has_a_result(suite: Path) -> None:
    (suite / "suite_results.yaml").unlink()
    assert named(suite, run_folders([suite])) == sorted(VALUES)
    for name in VALUES:
        (suite / name / "evaluation_config.yaml").unlink()
    with pytest.raises(
        PrerequisiteError, match=naming("has a result", "eval-factory suite status")
    ):
        run_folders([suite])


def test_a_result_that_lies_elsewhere_is_refused(suite: Path, tmp_path: Path) -> None:
    stranger = right_or_wrong(tmp_path / "stranger", "10")
    (suite / "small" / "qa" / "evaluation_config.yaml").unlink()
    (suite / "small" / "qa" / "evaluation_config.yaml").symlink_to(
        stranger / "evaluation_config.yaml"
    )
    with pytest.raises(PrerequisiteError):
        run_folders([suite])


def test_what_is_about_one_run_says_which_there_are(suite: Path) -> None:
    told = "reproduce: needs the folder of one run, and .* has 4 runs: give one of .*small/qa, .*large/qa"
    with pytest.raises(ConfigError, match=told):
        find_only_run(suite, command="reproduce")
    for name in list(VALUES)[1:]:
        (suite / name / "evaluation_config.yaml").unlink()
    assert find_only_run(suite, command="reproduce") == suite / "small/qa"


def test_runs_of_one_benchmark_are_compared_and_of_several_one_is_to_be_chosen(
    suite: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        compared_runs([suite])
    says(
        str(caught.value), f"eval-factory compare {suite}/small/qa {suite}/large/qa", "for qa alone"
    )
    says(str(caught.value), "suite_results.md")
    one = suite_folder(tmp_path / "one", {"a/qa": SAME, "b/qa": SAME})
    assert named(one, compared_runs([one])) == ["a/qa", "b/qa"]
    given = [suite / "small" / "qa", suite / "small" / "calc"]
    assert compared_runs(given) == given  # whoever names runs gets them compared, or the reasons
