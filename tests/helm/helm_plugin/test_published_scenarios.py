"""Published sets with pictures by HELM's own adapters: their prompts are those of what they are compared with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.adaptation.adapters.multimodal.generation_multimodal_adapter import GenerationMultimodalAdapter
from helm.benchmark.adaptation.adapters.multimodal.multiple_choice_joint_multimodal_adapter import (
    MultipleChoiceJointMultimodalAdapter,
)
from helm.benchmark.adaptation.adapters.multiple_choice_joint_adapter import MultipleChoiceJointAdapter
from helm.benchmark.metrics.evaluate_reference_metrics import _apply_output_mapping_pattern
from helm.benchmark.run_expander import RUN_EXPANDERS
from helm.benchmark.run_spec import _REGISTERED_RUN_SPEC_FUNCTIONS as REGISTERED
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.run_specs.vlm_run_specs import get_vqa_rad_spec
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.object_spec import create_object

from eval_factory.helm_plugin import choice_scenario
from published_rows import (
    medxpertqa_mm_row,
    medxpertqa_row,
    path_vqa_rows,
    slake_rows,
    write_json,
    write_json_lines,
    write_parquet,
    write_zip,
)
from seeing_endpoint import picture

RED, CLEAR = picture("red"), picture("blue", mode="RGBA")


def spec_of(name: str, **arguments: str) -> RunSpec:
    return REGISTERED[name](**arguments)


def instances(spec: RunSpec, folder: Path) -> list[Instance]:
    return list(create_object(spec.scenario_spec).get_instances(str(folder / "out")))


def prompt(kind: Any, spec: RunSpec, instance: Instance) -> str:
    """The texts of it."""
    adapter = kind.__new__(kind)  # no model's window: nothing is cut
    adapter.adapter_spec = spec.adapter_spec
    adapter.window_service = SimpleNamespace(truncate_from_right=lambda text, _: text)
    made = adapter.construct_prompt([], instance, include_output=False, reference_index=None)
    return str(getattr(made, "multimedia_object", made).text)


def test_medxpertqa_is_asked_with_pictures_as_it_is_without(tmp_path: Path) -> None:
    write_zip(tmp_path / "images.zip", {"images/a.jpeg": RED, "images/b.jpeg": CLEAR})
    write_json_lines(tmp_path / "MM/test.jsonl", [medxpertqa_mm_row(1, ["a.jpeg", "b.jpeg"])])
    file = write_json_lines(tmp_path / "text.jsonl", [medxpertqa_row(1, choices=5)])
    seen, read = spec_of("medxpertqa_mm", data_path=str(tmp_path)), spec_of("medxpertqa_text", data_path=str(file))
    (with_pictures,), (text,) = instances(seen, tmp_path), instances(read, tmp_path)
    as_text = prompt(MultipleChoiceJointAdapter, read, text)
    assert prompt(MultipleChoiceJointMultimodalAdapter, seen, with_pictures) == as_text
    assert as_text.startswith(f"{choice_scenario.INSTRUCTIONS}\n\nQuestion: What is right in case 1?\nA. Choice A1\n")
    assert (seen.metric_specs, seen.adapter_spec.max_tokens) == (read.metric_specs, read.adapter_spec.max_tokens)
    assert with_pictures.references == text.references


@pytest.mark.parametrize(
    ("answer", "read"), [("B", "B"), ("B \nSo", "B"), ("B\n\nSo", "B"), ("B. x", "B. x"), ("So\nB", "So"), ("", "")]
)
def test_a_letter_is_read_up_to_the_line_break_at_which_the_text_set_stops(answer: str, read: str) -> None:
    assert _apply_output_mapping_pattern(choice_scenario.FIRST_LINE, answer) == read


def test_short_answers_are_asked_as_vqa_rad_asks(tmp_path: Path) -> None:
    write_zip(tmp_path / "imgs.zip", {"imgs/xmlab1/source.jpg": RED})
    write_json(tmp_path / "test.json", slake_rows(1, "red"))
    spec, theirs = spec_of("slake", data_path=str(tmp_path)), get_vqa_rad_spec()
    assert spec.adapter_spec == theirs.adapter_spec
    first, second = instances(spec, tmp_path)
    assert (
        prompt(GenerationMultimodalAdapter, spec, first)
        == "Answer the question using a single word or sentence.\nIs the disc red?"
    )
    assert {one.input.multimedia_content.media_objects[0].content_type for one in (first, second)} == {"image/png"}
    (chinese,) = instances(spec_of("slake", data_path=str(tmp_path), language="zh"), tmp_path)
    assert chinese.references[0].output.text == "红色"
    measured = spec.metric_specs[0].args["names"]
    assert set(measured) < set(theirs.metric_specs[0].args["names"])
    assert not {"bleu_1", "bleu_4", "cider"} & set(measured), "which need packages or data"


def test_vqa_rad_from_its_files_keeps_the_pictures_bytes(tmp_path: Path) -> None:
    """HELM's scenario ends at a picture with transparency."""
    write_parquet(tmp_path / "data/test-00000-of-00001-x.parquet", path_vqa_rows("blue", CLEAR))
    write_parquet(tmp_path / "data/train-00000-of-00001-x.parquet", path_vqa_rows("red", RED))
    (spec,) = RUN_EXPANDERS["own_pictures"](str(tmp_path)).expand(get_vqa_rad_spec())
    assert (spec.name, spec.metric_specs) == ("vqa_rad", get_vqa_rad_spec().metric_specs)
    closed, opened = instances(spec, tmp_path)
    assert isinstance(closed.input, Input)
    (shown, _), (again, _) = (one.input.multimedia_content.media_objects for one in (closed, opened))
    assert Path(shown.location).read_bytes() == CLEAR
    assert shown.location == again.location
    assert opened.references[0].output.text == "blue"
