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
from helm.benchmark.model_deployment_registry import register_model_deployments_from_path
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import GeneratedOutput, Request, RequestResult

from builders import evaluation
from eval_factory.core.errors import EndpointRefusedError
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.command import model_deployments
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.plan.preflight import probe
from eval_factory.plan.run_plan import EndpointPlan, make_plan
from facts import naming
from seeing_endpoint import SeeingEndpoint, content_of, picture

HELMS_JUDGE = "openai/gpt-4o-2024-05-13"  # of simple_safety_tests

JUDGES = 'Rate {RESPONSE} to {QUESTION}\n<rubric_criteria>\n{"accuracy": ["score", "explanation"]}\n</rubric_criteria>\n'


def judge(prompt: str) -> str:
    """Good where it sees a red disc; in the forms of all annotators."""
    good = prompt.startswith("[red]")
    said = f"<reasoning>{'good' if good else 'bad'}</reasoning><score>{float(good)}</score>"
    return json.dumps(
        {
            "criteria_met": good,
            "explanation": said,
            "accuracy": {"score": 1 + good, "explanation": said},
        }
    )


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SeeingEndpoint]:
    monkeypatch.setattr(LLMAsJuryAnnotator, "annotate", LLMAsJuryAnnotator.annotate)
    monkeypatch.setattr(AnnotationExecutor, "process", AnnotationExecutor.process)
    for name in ("ask_judges_in_parallel", "isolate_unscorable_annotations"):
        patch_named(name).apply()
    (tmp_path / "red.png").write_bytes(picture("red"))
    (tmp_path / "blue.png").write_bytes(picture("blue"))
    with SeeingEndpoint(judge) as endpoint:
        yield endpoint


def judge_at(server: SeeingEndpoint, folder: Path, **extra: Any) -> EndpointPlan:
    """Of a table with pictures that a jury rates."""
    jury = {"name": "jury_score", "prompt_file": "judge.txt"}
    about = {
        "name": "mine",
        "description": "d",
        "prompt_file": "p.txt",
        "dataset_file": "t.csv",
        "metrics": [jury],
    }
    texts = {"p.txt": "{question}", "t.csv": "question,image\nQ?,red.png\n", "judge.txt": JUDGES}
    for name, text in {**texts, "benchmark.yaml": json.dumps(about)}.items():
        (folder / name).write_text(text)
    extra |= {
        "benchmark": str(folder / "benchmark.yaml"),
        "judges": [{"name": "j", "model_id": "m"}],
    }
    here = {"type": "custom", "output_dir": "x"}
    target = {"api_endpoint": {"url": server.url, "model_id": "m"}}
    (folder / "run.yml").write_text(
        json.dumps({"config": {**here, "params": {"extra": extra}}, "target": target})
    )
    flags = {"config.type": "custom", "target.api_endpoint.url": server.url}
    return make_plan(evaluation(flags, file=folder / "run.yml")).judges[0]


def annotated(kind: str, asked: EndpointPlan, folder: Path, *colours: str) -> list[Any]:
    """Return what a new helm-run finds of the same answer to the same question about each disc."""
    endpoints = (replace(asked, helm_name="j/m"), replace(asked, helm_name=HELMS_JUDGE))
    (file := folder / "deployments.yaml").write_text(
        model_deployments(endpoints, cache_db=str(folder / "cache.db"))
    )
    register_model_deployments_from_path(str(file))
    jury = {
        "name": "jury",
        "prompt_template": "Rate {RESPONSE} to {QUESTION}",
        "annotator_models": {"j": AnnotatorModelInfo("j/m", "j/m")},
        "annotation_criteria": {"accuracy": {"score", "explanation"}},
    }
    specs = {
        "jury": AnnotatorSpec(f"{LLMAsJuryAnnotator.__module__}.LLMAsJuryAnnotator", jury),
        "rubric": AnnotatorSpec(names.RUBRIC_ANNOTATOR_CLASS, {"judges": {"j": "j/m"}}),
        "helms": AnnotatorSpec(
            "helm.benchmark.annotation.simple_safety_tests_annotator.SimpleSafetyTestsAnnotator"
        ),
    }
    session.session_for(folder).clients.clear()  # those of a new process have the cache alone
    said = RequestResult(
        success=True, embedding=[], completions=[GeneratedOutput("A", 0.0, [])], cached=True
    )
    rubrics = [{"criterion": "c", "points": 1, "tags": []}]
    states = list[RequestState]()
    for colour in colours:
        disc = MediaObject("image/png", location=str(folder / f"{colour}.png"))
        shown = MultimediaObject([MediaObject("text/plain", text="Q?"), disc])
        asks = Input("Q?", shown, [{"role": "user", "content": "Q?"}])
        instance = Instance(asks, [], split="test", id=colour, extra_data={"rubrics": rubrics})
        of_model = Request(model="a/b", model_deployment="a/b", multimodal_prompt=shown)
        states.append(RequestState(instance, None, None, 0, None, of_model, said, 0, False))
    executor = AnnotationExecutor(AnnotationExecutionSpec(str(folder / "env"), parallelism=2))
    found = executor.execute(ScenarioState(AdapterSpec(), states, [specs[kind]])).request_states
    return [next(iter((one.annotations or {}).values())) for one in found]


@pytest.mark.parametrize("kind", ["jury", "rubric", "helms"])
def test_judges_see_the_pictures_and_are_asked_once(
    kind: str, server: SeeingEndpoint, tmp_path: Path
) -> None:
    asked = judge_at(server, tmp_path, judges_see_images=True)
    found = annotated(kind, asked, tmp_path, "red", "blue")
    assert ["good" in str(one) for one in found] == [True, False], (
        "two requests: the texts are the same"
    )
    assert [[part["type"] for part in parts] for parts in server.parts] == [
        ["image_url", "text"]
    ] * 2
    assert {content_of(parts[0]) for parts in server.parts} == {
        file.read_bytes() for file in tmp_path.glob("*.png")
    }
    assert annotated(kind, asked, tmp_path, "red", "blue") == found
    assert len(server.parts) == 2, "nobody is asked twice"
    blind = annotated(kind, judge_at(server, tmp_path), tmp_path, "red", "blue")
    assert (len(server.requests), len(server.parts)) == (3, 2), "one text, one request"
    assert server.requests[-1]["messages"] == [
        {"role": "user", "content": server.parts[0][1]["text"]}
    ]
    assert not any("good" in str(one) for one in blind)


def test_a_judgement_that_cannot_be_used_is_asked_for_again(
    server: SeeingEndpoint, tmp_path: Path
) -> None:
    asked = judge_at(server, tmp_path, judges_see_images=True)
    server.answer = lambda _prompt: "good"
    for runs in (1, 2):
        (found,) = annotated("jury", asked, tmp_path, "red")
        assert "unusable judgement" in found[names.NOT_JUDGED_FIELD]["j"]
        assert [parts[0]["type"] for parts in server.parts] == ["image_url"] * 2 * runs


def test_a_judge_that_takes_text_only_is_found_out_before(
    server: SeeingEndpoint, tmp_path: Path
) -> None:
    server.is_blind = True
    text_only = judge_at(server, tmp_path, max_image_side=64)
    assert (text_only.max_image_side, probe(text_only, {}, Redactor(), print)) == (None, None)
    asked = judge_at(server, tmp_path, judges_see_images=True, max_image_side=64)
    assert asked.max_image_side == 64
    with pytest.raises(EndpointRefusedError, match=naming("judge j: ", "refused a picture")):
        probe(asked, {}, Redactor(), print)
