"""The rows are the page's, the installed HELM has each schema; and where a leaderboard's conf is from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import yaml

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.tasks.run_specs import load_index
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import Entry, read_entries, without_models
from facts import each_says, naming, says


def test_finding() -> None:
    row = (
        registry.load_catalogue()
        .leaderboards[0]
        .model_copy(update={"schema_file": "schema_of_next_year.yaml"})
    )
    assert registry.schema_path(row) is None
    assert any(
        "schema_of_next_year.yaml: HELM" in line and "not have this file" in line
        for line in row.need_lines()
    )
    assert registry.find_leaderboard("AIR-Bench").name == "air_bench"
    assert registry.find_leaderboard("classic-before-0.2.4").num_train_trials == 3
    stanford = registry.find_leaderboard("medhelm_private_stanford")
    assert (stanford.name, stanford.conf) == (
        "medhelm_private_stanford",
        "run_entries_medhelm_private_stanford.conf",
    )
    assert not stanford.needs_organization
    assert registry.find_leaderboard("medhelm-private").needs_organization
    with pytest.raises(ConfigError, match="did you mean 'safety'"):
        registry.find_leaderboard("safty")
    with pytest.raises(ConfigError, match=naming("'medhelm_private_../x'")):
        registry.find_leaderboard("medhelm_private_../x")


def test_what_is_mended_of_a_schema_stands_in_it() -> None:
    """In 0.5.16 HELM ends at ViLLM's: the columns of one of its groups have no name."""
    for row in registry.load_catalogue().leaderboards:
        file = registry.schema_path(row)
        assert file
        assert all(wrong in file.read_text("utf-8") for wrong in row.schema_changes), row.name
        groups = yaml.load(registry.schema_text(row, file), yaml.CSafeLoader)["run_groups"]
        assert not [
            one["name"] for one in groups if one.get("metric_groups") and not one.get("environment")
        ]


def test_a_schema_has_the_groups_and_metrics_of_helms_own_runs() -> None:
    """Of SLPHelm it has others, and HELM's tables of it are empty."""
    row = registry.find_leaderboard("slphelm")
    lite = registry.find_leaderboard("lite")
    file = registry.schema_path(row)
    of_lite = registry.schema_path(lite)
    assert file
    assert of_lite
    assert registry.schema_text(lite, of_lite) == of_lite.read_text("utf-8")
    before, after = (
        yaml.safe_load(text) for text in (file.read_text("utf-8"), registry.schema_text(row, file))
    )
    assert len(before["run_groups"]) == len(after["run_groups"])
    slphelm, *groups = after["run_groups"]
    assert slphelm["subgroups"] == [group["name"] for group in groups]
    run_specs = load_index().run_specs
    metrics = {metric["name"] for metric in after["metrics"]}
    for group in groups:
        (main,) = run_specs[group["name"]].main_metrics
        assert group["environment"]["main_name"] == main
        assert main in metrics


LITE = registry.find_leaderboard("lite")
WITHOUT_ORGANIZATION = registry.find_leaderboard("medhelm_private")
ADDRESS = f"https://raw.githubusercontent.com/stanford-crfm/helm/v1.2.3/src/helm/benchmark/presentation/{LITE.conf}"
HINT = (
    "copy the conf to this machine, and give it with --conf FILE (or --data_dir DIR, with "
    "DIR/presentation/)"
)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Downloads, of which each gives a text."""
    found: list[tuple[str, Any]] = []

    def get(address: str, timeout: object = None) -> Any:
        found.append((address, timeout))
        return SimpleNamespace(text="downloaded", raise_for_status=lambda: None)

    monkeypatch.setattr(requests, "get", get)
    monkeypatch.setattr(registry, "helm_version", lambda: "1.2.3")
    return found


def bundle(folder: Path) -> Path:
    file = folder / "bundle" / "presentation" / LITE.conf
    file.parent.mkdir(parents=True)
    file.write_text("bundled é", "utf-8")
    return folder / "bundle"


def test_a_file_is_before_all_else(tmp_path: Path, asked: list[tuple[str, Any]]) -> None:
    file = tmp_path / "my.conf"
    file.write_text("mine é", "utf-8")
    assert registry.conf_of(LITE, file=file, data_dir=bundle(tmp_path)) == ("mine é", str(file))
    assert registry.conf_of(WITHOUT_ORGANIZATION, file=file, data_dir=None) == ("mine é", str(file))
    assert asked == []


def test_a_bundle_without_it_says_how_to_get_it(
    tmp_path: Path, asked: list[tuple[str, Any]]
) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        registry.conf_of(LITE, file=None, data_dir=tmp_path)
    each_says(
        str(caught.value).splitlines(),
        [f"{tmp_path / 'presentation' / LITE.conf} does not exist"],
        [
            f"eval-factory data pull leaderboards --to {tmp_path}",
            f"{LITE.conf} of HELM's",
            "--conf FILE",
        ],
    )
    assert asked == []


def test_it_is_downloaded_at_the_tag_of_the_installed_helm(asked: list[tuple[str, Any]]) -> None:
    assert registry.conf_of(LITE, file=None, data_dir=None) == ("downloaded", ADDRESS)
    with pytest.raises(
        ConfigError, match=r"add the organization(.|\n)*\(medhelm_private_stanford\)"
    ):
        registry.conf_of(WITHOUT_ORGANIZATION, file=None, data_dir=None)
    assert asked == [(ADDRESS, 20.0)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (requests.ConnectionError("no route"), "ConnectionError"),
        (requests.HTTPError("404", response=SimpleNamespace(status_code=404)), "HTTP 404"),  # type: ignore[arg-type]
        (requests.HTTPError("no response"), "HTTPError"),
    ],
)
def test_a_download_that_fails_says_what_to_do(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(
        requests,
        "get",
        lambda *_, **__: SimpleNamespace(raise_for_status=fails, text="an error page"),
    )
    with pytest.raises(PrerequisiteError) as caught:
        registry.conf_of(LITE, file=None, data_dir=None)
    says(str(caught.value), "cannot be downloaded", ADDRESS)
    assert f" {reason} from" in str(caught.value)
    assert str(caught.value).splitlines()[1] == f"  {HINT}"


MEDHELM = """
# In the form of MedHELM's confs: an entry for each model of a study.
entries: [
  ### A category ###
  {description: "first:model=google/gemini,model_deployment=hospital/gemini", priority: 2},
  {description: "first:model=openai/gpt-4o,model_deployment=hospital/gpt-4o", priority: 1},
  {description: "first:num_output_tokens=4000,model=openai/o3,model_deployment=hospital/o3", priority: 3},
  {description: "first:num_output_tokens=9000,model=openai/o5,model_deployment=hospital/o5", priority: 3},
  {description: "second:subject=x,model=google/gemini,model_deployment=hospital/gemini,data_path=/no/such/folder/", priority: 1},
  {description: "second:subject=y,model=google/gemini,model_deployment=hospital/gemini,data_path=/no/such/folder/", priority: 1}
  # {description: "third:model=google/gemini", priority: 1}
]
"""
LITE_CONF = """
entries: [
  {description: "narrative_qa:model=text,follow=instruct", priority: 1}
  {description: "code:model=text_code,dataset=x", priority: 4, groups: ["coding"]}
  {description: "commonsense:model=full_functionality_text", priority: 2}
  {description: "synthetic:model=text,num_output_tokens=default_sweep", priority: 2}
  {description: "synthetic:model=text", priority: 2}
  {description: "plain"}
]
"""


def descriptions(text: str, *, reasoning: bool = False) -> list[str]:
    return [
        entry.description
        for entry in without_models(read_entries(text, "x.conf"), reasoning=reasoning)
    ]


def test_an_entry_per_model_becomes_one_with_the_lowest_priority_number() -> None:
    of_two = [f"second:subject={subject},data_path=/no/such/folder/" for subject in "xy"]
    assert descriptions(MEDHELM) == ["first", *of_two]
    assert [entry.priority for entry in without_models(read_entries(MEDHELM, "x"))] == [1, 1, 1]
    always = [Entry("a", (("model", "x/y"),), 3), Entry("a", (("model", "x/z"),), None)]
    (entry,) = without_models(always)
    assert entry.priority is None


def test_the_entries_of_reasoning_models() -> None:
    assert descriptions(MEDHELM, reasoning=True)[0] == "first:num_output_tokens=4000"
    backwards = [
        Entry("a", (("num_output_tokens", "4000"), ("model", "x/y"))),
        Entry("a", (("model", "x/z"),)),
    ]
    assert without_models(backwards)[0].description == "a"
    assert without_models(backwards, reasoning=True)[0].argument("num_output_tokens") == "4000"


def test_groups_of_models_are_one_model_and_nothing_else_changes() -> None:
    synthetic = ["synthetic:num_output_tokens=default_sweep", "synthetic"]
    others = ["narrative_qa:follow=instruct", "code:dataset=x", "commonsense"]
    assert descriptions(LITE_CONF) == [*others, *synthetic, "plain"]


def test_order_of_arguments_is_no_difference_but_groups_are() -> None:
    same = [
        Entry("a", (("x", "1"), ("model", "text"))),
        Entry("a", (("model", "text"), ("x", "1"))),
    ]
    assert len(without_models(same)) == 1
    assert len(without_models([Entry("a", (), 1), Entry("a", (), 1, ("g",))])) == 2


def test_an_entry_that_stands_for_several_runs_is_one_for_each() -> None:
    several = Entry("a", (("x", "1"), ("max_train_instances", "melt"), ("model", "text")), 2)
    found = without_models([several, Entry("a", (("x", "1"), ("max_train_instances", "5")), 1)])
    assert [(entry.description, entry.priority) for entry in found] == [
        ("a:x=1,max_train_instances=0", 2),
        ("a:x=1,max_train_instances=1", 2),
        ("a:x=1,max_train_instances=5", 1),
    ]


def test_judges_and_what_is_asked_for_are_the_indexs() -> None:
    assert Entry("harm_bench", ()).judges == ("openai/gpt-4o-2024-05-13",)
    chosen = (("annotator_model", "mistral/m"), ("annotator_model_deployment", "mistral/m-v2"))
    assert Entry("air_bench_2024", chosen).judges == ("mistral/m-v2",)
    assert Entry("nonsense", ()).judges == ()
    assert (
        Entry("msr_vtt", ()).unmet_need,
        Entry("pubmed_qa", ()).unmet_need,
        Entry("nonsense", ()).unmet_need,
    ) == (
        "videos",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("just a text", "it is not HOCON"),
        ("a: 1", "no list `entries`"),
        ('entries: ["x"]', "entry 1 has no description"),
        ('entries: [{description: "a:model"}]', "'model' is not key=value"),
        ('entries: [{description: "a", priority: high}]', "priority is not a number"),
        ('entries: [{description: "a", groups: "g"}]', "groups are not a list"),
        ('entries: [{description: "a", prority: 1}]', "HELM knows no key prority"),
    ],
)
def test_what_is_no_conf(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.conf: ") as caught:
        read_entries(text, "x.conf")
    assert said in str(caught.value)
