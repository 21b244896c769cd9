"""Confs of other people's models become one model's."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.workflows.leaderboard.conf_entries import (
    Entry,
    conf_text,
    missing_data_paths,
    read_entries,
    rewritten,
)

MODEL = "endpoint/mine"
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
    return [entry.description for entry in rewritten(read_entries(text, "x.conf"), MODEL, reasoning=reasoning)]


def test_an_entry_per_model_becomes_one() -> None:
    assert descriptions(MEDHELM) == [
        "first:model=endpoint/mine",
        "second:subject=x,model=endpoint/mine,data_path=/no/such/folder/",
        "second:subject=y,model=endpoint/mine,data_path=/no/such/folder/",
    ]


def test_the_lowest_priority_number_counts() -> None:
    assert [entry.priority for entry in rewritten(read_entries(MEDHELM, "x"), MODEL)] == [1, 1, 1]
    always = [Entry("a", (("model", "x/y"),), 3), Entry("a", (("model", "x/z"),), None)]
    (entry,) = rewritten(always, MODEL)
    assert entry.priority is None
    assert entry.runs_at(1)


def test_the_entries_of_reasoning_models() -> None:
    assert descriptions(MEDHELM, reasoning=True)[0] == "first:num_output_tokens=4000,model=endpoint/mine"
    backwards = [
        Entry("a", (("num_output_tokens", "4000"), ("model", "x/y"))), Entry("a", (("model", "x/z"),)),
    ]  # fmt: skip
    assert rewritten(backwards, MODEL)[0].description == "a:model=endpoint/mine"
    assert rewritten(backwards, MODEL, reasoning=True)[0].argument("num_output_tokens") == "4000"


def test_groups_of_models_are_one_model_and_nothing_else_changes() -> None:
    assert descriptions(LITE) == [
        "narrative_qa:model=endpoint/mine,follow=instruct",
        "code:model=endpoint/mine,dataset=x",
        "commonsense:model=endpoint/mine",
        "synthetic:model=endpoint/mine,num_output_tokens=default_sweep",
        "synthetic:model=endpoint/mine",
        "plain:model=endpoint/mine",
    ]


def test_order_of_arguments_is_no_difference_but_groups_are() -> None:
    same = [Entry("a", (("x", "1"), ("model", "text"))), Entry("a", (("model", "text"), ("x", "1")))]
    assert len(rewritten(same, MODEL)) == 1
    assert len(rewritten([Entry("a", (), 1), Entry("a", (), 1, ("g",))], MODEL)) == 2


def test_what_is_written_is_read_by_helm_and_by_us(tmp_path: Path) -> None:
    from pyhocon import ConfigFactory

    for text in (MEDHELM, LITE):
        entries = rewritten(read_entries(text, "x.conf"), MODEL)
        written = conf_text(entries)
        assert read_entries(written, "y.conf") == entries
        parsed = ConfigFactory.parse_string(written)
        assert [entry["description"] for entry in parsed["entries"]] == [entry.description for entry in entries]


def test_values_keep_their_equals_signs() -> None:
    (entry,) = rewritten([Entry("a", (("prompt", "x=y"), ("model", "text")))], MODEL)
    (again,) = read_entries(conf_text([entry]), "x")
    assert again.argument("prompt") == "x=y"


def test_data_that_are_not_there(tmp_path: Path) -> None:
    there = Entry("a", (("data_path", str(tmp_path)),))
    entries = [*rewritten(read_entries(MEDHELM, "x"), MODEL), there]
    assert missing_data_paths(entries) == ["/no/such/folder/"]


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
