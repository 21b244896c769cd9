"""Conversations as HELM's instances, and the run spec that asks them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from helm.common.object_spec import create_object

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm_plugin.conversation_scenario import conversations, input_of_turns
from facts import naming

TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A or B?"}]


def test_a_conversation_becomes_an_instance_with_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HELM's own asks torch, which is not installed
    device = SimpleNamespace(get_torch_device_name=lambda: "cpu")
    monkeypatch.setitem(sys.modules, "helm.common.gpu_utils", device)
    data = tmp_path / "rows.jsonl"
    file = tmp_path / "given.yaml"
    full = {
        "id": "a",
        "messages": TURNS,
        "correct_answer": "B",
        "incorrect_answers": ["A"],
        "cluster": "n",
    }
    data.write_text(
        "".join(json.dumps(row) + "\n" for row in (full, {**full, "id": "b", "cluster": "m"})),
        "utf-8",
    )
    shape = {
        "name": "mine",
        "description": "d",
        "prompt_file": str(data),
        "dataset_file": str(data),
        "max_tokens": 9,
        "has_clusters": True,
        "metrics": [{"name": "exact_match"}],
    }
    file.write_text(yaml.safe_dump(shape), "utf-8")
    spec = conversations(str(file))
    assert (spec.name, spec.groups, spec.annotators) == ("mine", ["mine"], [])
    adapter = spec.adapter_spec
    assert (adapter.method, adapter.max_tokens, adapter.num_outputs, adapter.temperature) == (
        "chat",
        9,
        1,
        0.0,
    )
    assert [
        adapter.input_prefix,
        adapter.input_suffix,
        adapter.output_prefix,
        adapter.output_suffix,
    ] == [""] * 4
    assert (adapter.max_train_instances, adapter.stop_sequences) == (0, [])
    assert "exact_match" in str(spec.metric_specs)
    scenario = create_object(spec.scenario_spec)
    one, two = scenario.get_instances(str(tmp_path))
    assert (one.id, one.split, one.extra_data, two.id) == ("a", "test", {"cluster": "n"}, "b")
    assert one.input.messages == TURNS
    assert one.input.text == "system: Be brief.\n\nuser: A or B?"
    assert [(reference.output.text, reference.tags) for reference in one.references] == [
        ("B", ["correct"]),
        ("A", []),
    ]
    data.write_text(json.dumps({"messages": TURNS}) + "\n", "utf-8")
    (bare,) = scenario.get_instances(str(tmp_path))
    assert (bare.id, bare.extra_data, bare.references) == (None, None, [])
    data.write_text("{", "utf-8")
    with pytest.raises(PrerequisiteError, match=naming("line 1", "is not JSON")):
        scenario.get_instances(str(tmp_path))
    assert input_of_turns(tuple(TURNS)).messages[0] is not TURNS[0]
    assert input_of_turns(tuple(TURNS[1:])).text == "A or B?"


@pytest.mark.parametrize(
    ("metric", "answers"), [("exact_match", ["B", "A"]), ("rouge_1", ["B. cough", "A. fever"])]
)
def test_right_answers_of_a_known_form_become_the_letters_of_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, answers: list[str]
) -> None:
    device = SimpleNamespace(get_torch_device_name=lambda: "cpu")
    monkeypatch.setitem(sys.modules, "helm.common.gpu_utils", device)
    data = tmp_path / "rows.jsonl"
    turn = {"role": "user", "content": "Which?\nA. fever\nB. cough"}
    rows = [{"messages": [turn], "correct_answer": right} for right in ("B. cough", "A. fever")]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    shape = {
        "name": "mine",
        "description": "d",
        "prompt_file": str(data),
        "dataset_file": str(data),
        "max_tokens": 9,
        "metrics": [{"name": metric}],
    }
    file = tmp_path / "given.yaml"
    file.write_text(yaml.safe_dump(shape), "utf-8")
    scenario = create_object(conversations(str(file)).scenario_spec)
    instances = scenario.get_instances(str(tmp_path))
    assert [instance.references[0].output.text for instance in instances] == answers
