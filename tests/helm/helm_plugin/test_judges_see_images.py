"""HELM's own executor of annotators and our client: what judges are shown with `extra.judges_see_images`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation.annotator import AnnotatorSpec
from helm.benchmark.annotation.model_as_judge import AnnotatorModelInfo, LLMAsJuryAnnotator
from helm.benchmark.annotation_executor import AnnotationExecutionSpec, AnnotationExecutor
from helm.benchmark.config_registry import register_configs_from_directory
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import GeneratedOutput, Request, RequestResult

from eval_factory.core.errors import EndpointRefusedError
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.model_files import model_deployments, model_metadata
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.plan.preflight import probe
from eval_factory.plan.run_plan import EndpointPlan
from seeing_endpoint import SeeingEndpoint, content_of, picture
from unit.builders import plan

HELMS_JUDGE = "openai/gpt-4o-2024-05-13"
"""Whom HELM's annotator of simple_safety_tests asks."""


def judge(prompt: str) -> str:
    """Good where it sees a red disc; in the form of each annotator."""
    good = "[red]" in prompt
    if "<score>" in prompt:
        return f"<reasoning>x</reasoning><score>{float(good)}</score>"
    return json.dumps(
        {"criteria_met": good, "accuracy": {"score": 5 if good else 1, "explanation": "x"}, "explanation": "x"}
    )


@pytest.fixture
def server() -> Iterator[SeeingEndpoint]:
    with SeeingEndpoint(judge) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _as_in_helm_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLMAsJuryAnnotator, "annotate", LLMAsJuryAnnotator.annotate)
    monkeypatch.setattr(AnnotationExecutor, "process", AnnotationExecutor.process)
    for name in ("ask_judges_in_parallel", "isolate_unscorable_annotations"):
        patch_named(name).apply()


def judge_at(server: SeeingEndpoint, folder: Path, **extra: Any) -> EndpointPlan:
    about = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}
    (folder / "benchmark.yaml").write_text(json.dumps(about))
    case = {"id": "1", "messages": [{"role": "user", "content": "Q?"}], "rubrics": [{"criterion": "c", "points": 1}]}
    (folder / "cases.jsonl").write_text(json.dumps(case) + "\n")
    extra |= {"benchmark": str(folder / "benchmark.yaml"), "judges": [{"name": "j", "model_id": "m"}]}
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    (made,) = plan({"config.type": "custom", "target.api_endpoint.url": server.url, **flags}).judges
    return made


def annotated(kind: str, asked: EndpointPlan, folder: Path, pictures: list[Path]) -> list[Any]:
    """What a new helm-run finds of the same answer to the same question about each picture."""
    endpoints = (replace(asked, helm_name="j/m"), replace(asked, helm_name=HELMS_JUDGE))
    (folder / "model_deployments.yaml").write_text(model_deployments(endpoints, cache_db=str(folder / "cache.db")))
    (folder / "model_metadata.yaml").write_text(model_metadata(endpoints))
    register_configs_from_directory(str(folder))
    jury = {
        "name": "jury", "prompt_template": "Rate {RESPONSE} to {QUESTION}", "annotator_models":
        {"j": AnnotatorModelInfo("j/m", "j/m")}, "annotation_criteria": {"accuracy": {"score", "explanation"}},
    }  # fmt: skip
    specs = {
        "jury": AnnotatorSpec(f"{LLMAsJuryAnnotator.__module__}.LLMAsJuryAnnotator", jury),
        "rubric": AnnotatorSpec(names.RUBRIC_ANNOTATOR_CLASS, {"judges": {"j": "j/m"}}),
        "helms": AnnotatorSpec("helm.benchmark.annotation.simple_safety_tests_annotator.SimpleSafetyTestsAnnotator"),
    }
    session.session_for(folder).clients.clear()  # those of a new process have the cache alone
    said = RequestResult(success=True, embedding=[], completions=[GeneratedOutput("A", 0.0, [])], cached=True)
    rubrics, messages = [{"criterion": "c", "points": 1, "tags": []}], [{"role": "user", "content": "Q?"}]
    states = []
    for number, file in enumerate(pictures):
        shown = MultimediaObject([MediaObject("text/plain", text="Q?"), MediaObject("image/png", location=str(file))])
        asks = Input("Q?", shown, messages)
        instance = Instance(asks, [], split="test", id=f"id{number}", extra_data={"rubrics": rubrics})
        of_model = Request(model="a/b", model_deployment="a/b", multimodal_prompt=shown)
        states.append(RequestState(instance, None, None, 0, None, of_model, said, 0, False))
    executor = AnnotationExecutor(AnnotationExecutionSpec(str(folder / "env"), parallelism=2))
    found = executor.execute(ScenarioState(AdapterSpec(method="generation"), states, [specs[kind]]))
    return [next(iter((one.annotations or {}).values())) for one in found.request_states]


def red_and_blue(folder: Path) -> list[Path]:
    for colour in ("red", "blue"):
        (folder / f"{colour}.png").write_bytes(picture(colour))
    return [folder / "red.png", folder / "blue.png"]


@pytest.mark.parametrize("kind", ["jury", "rubric", "helms"])
def test_judges_see_the_pictures_and_are_asked_once(kind: str, server: SeeingEndpoint, tmp_path: Path) -> None:
    files, asked = red_and_blue(tmp_path), judge_at(server, tmp_path, judges_see_images=True)
    found = annotated(kind, asked, tmp_path, files)
    marks = {
        "jury": lambda one: one["j"]["accuracy"]["score"] == 5,
        "rubric": lambda one: one["criteria"][0]["j"]["criteria_met"],
        "helms": lambda one: one["gpt_score"] == 1.0,
    }
    assert [marks[kind](one) for one in found] == [True, False], "two requests: the texts are the same"
    assert [[part["type"] for part in parts] for parts in server.parts] == [["image_url", "text"]] * 2
    assert {content_of(parts[0]) for parts in server.parts} == {file.read_bytes() for file in files}
    assert annotated(kind, asked, tmp_path, files) == found
    assert len(server.parts) == 2, "nobody is asked twice"
    blind = annotated(kind, judge_at(server, tmp_path), tmp_path, files)
    assert (len(server.requests), len(server.parts)) == (3, 2), "one text, one request"
    assert server.requests[-1]["messages"] == [{"role": "user", "content": server.parts[0][1]["text"]}]
    assert [marks[kind](one) for one in blind] == [False, False]


def test_a_judgement_that_cannot_be_used_is_asked_for_again(server: SeeingEndpoint, tmp_path: Path) -> None:
    (red, _), asked = red_and_blue(tmp_path), judge_at(server, tmp_path, judges_see_images=True)
    server.answer = lambda _prompt: "good"
    for runs in (1, 2):
        (found,) = annotated("jury", asked, tmp_path, [red])
        assert "unusable judgement" in found[names.NOT_JUDGED]["j"]
        assert [parts[0]["type"] for parts in server.parts] == ["image_url"] * 2 * runs


def test_a_judge_that_takes_text_only_is_found_out_before(server: SeeingEndpoint, tmp_path: Path) -> None:
    server.is_blind = True
    asked = judge_at(server, tmp_path, judges_see_images=True, max_image_side=64)
    assert (asked.max_image_side, judge_at(server, tmp_path, max_image_side=64).max_image_side) == (64, None)
    with pytest.raises(EndpointRefusedError, match=r"judge j: [^$]*refused a picture"):
        probe(asked, {}, Redactor(), lambda _line: None)
    assert probe(judge_at(server, tmp_path), {}, Redactor(), lambda _line: None) is None
