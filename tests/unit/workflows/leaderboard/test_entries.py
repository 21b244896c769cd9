"""Confs of other people's models become entries of any model."""

from __future__ import annotations

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.workflows.leaderboard.registry import Entry, of_any_model, read_entries

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
LITE = """
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
    return [entry.description for entry in of_any_model(read_entries(text, "x.conf"), reasoning=reasoning)]


def test_an_entry_per_model_becomes_one() -> None:
    assert descriptions(MEDHELM) == [
        "first",
        "second:subject=x,data_path=/no/such/folder/",
        "second:subject=y,data_path=/no/such/folder/",
    ]


def test_the_lowest_priority_number_counts() -> None:
    assert [entry.priority for entry in of_any_model(read_entries(MEDHELM, "x"))] == [1, 1, 1]
    always = [Entry("a", (("model", "x/y"),), 3), Entry("a", (("model", "x/z"),), None)]
    (entry,) = of_any_model(always)
    assert entry.priority is None
    assert entry.runs_at(1)


def test_the_entries_of_reasoning_models() -> None:
    assert descriptions(MEDHELM, reasoning=True)[0] == "first:num_output_tokens=4000"
    backwards = [
        Entry("a", (("num_output_tokens", "4000"), ("model", "x/y"))), Entry("a", (("model", "x/z"),)),
    ]  # fmt: skip
    assert of_any_model(backwards)[0].description == "a"
    assert of_any_model(backwards, reasoning=True)[0].argument("num_output_tokens") == "4000"


def test_groups_of_models_are_one_model_and_nothing_else_changes() -> None:
    assert descriptions(LITE) == [
        "narrative_qa:follow=instruct",
        "code:dataset=x",
        "commonsense",
        "synthetic:num_output_tokens=default_sweep",
        "synthetic",
        "plain",
    ]


def test_order_of_arguments_is_no_difference_but_groups_are() -> None:
    same = [Entry("a", (("x", "1"), ("model", "text"))), Entry("a", (("model", "text"), ("x", "1")))]
    assert len(of_any_model(same)) == 1
    assert len(of_any_model([Entry("a", (), 1), Entry("a", (), 1, ("g",))])) == 2


def test_an_entry_that_stands_for_several_runs_is_one_for_each() -> None:
    several = Entry("a", (("x", "1"), ("max_train_instances", "melt"), ("model", "text")), 2)
    found = of_any_model([several, Entry("a", (("x", "1"), ("max_train_instances", "5")), 1)])
    assert [(entry.description, entry.priority) for entry in found] == [
        ("a:x=1,max_train_instances=0", 2), ("a:x=1,max_train_instances=1", 2), ("a:x=1,max_train_instances=5", 1),
    ]  # fmt: skip


def test_judges_and_what_is_asked_for_are_the_indexs() -> None:
    assert Entry("harm_bench", ()).judges == ("openai/gpt-4o-2024-05-13",)
    chosen = (("annotator_model", "mistral/m"), ("annotator_model_deployment", "mistral/m-v2"))
    assert Entry("air_bench_2024", chosen).judges == ("mistral/m-v2",)
    assert Entry("nonsense", ()).judges == ()
    assert (Entry("vqa", ()).asks, Entry("pubmed_qa", ()).asks, Entry("nonsense", ()).asks) == ("images", None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("just a text", "it is not HOCON"),
        ("a: 1", "no list `entries`"),
        ('entries: ["x"]', "entry 1 has no description"),
        ('entries: [{description: "a:model"}]', "'model' is not key=value"),
        ('entries: [{description: "a", priority: high}]', "priority is no number"),
        ('entries: [{description: "a", groups: "g"}]', "groups are no list"),
        ('entries: [{description: "a", prority: 1}]', "HELM knows no prority"),
    ],
)
def test_what_is_no_conf(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.conf: ") as caught:
        read_entries(text, "x.conf")
    assert said in str(caught.value)
