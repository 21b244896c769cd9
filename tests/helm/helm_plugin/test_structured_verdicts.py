"""HELM's own executor of annotators and our client: `judges[].structured`."""

from __future__ import annotations

import hashlib
import json
import sqlite3
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
from helm.common.request import GeneratedOutput, Request, RequestResult

from builders import endpoint_settings
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.helm import names
from eval_factory.helm.verdict_schemas import criterion_templates
from eval_factory.helm_plugin import session
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.helm_plugin.rubric import criterion_judge
from eval_factory.scoring.stated_models import sampling_fields_of
from facts import says
from scripted_endpoint import ScriptedEndpoint

VERDICT = {
    "criteria_met": True,
    "explanation": "It does.",
    "accuracy": {"score": 4, "explanation": "It does."},
}


class Judge(ScriptedEndpoint):
    """Talks, unless it gets a schema."""

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__(lambda _prompt: "I would say that it does.")
        self.refusal = refusal

    def reply(self, path: str, headers: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        by_schema = body.get("response_format")
        if by_schema and self.refusal:
            self.requests.append(body)
            return 400, {"error": {"message": self.refusal}}
        self.answer = lambda _prompt: json.dumps(VERDICT) if by_schema else "I would say so."
        return super().reply(path, headers, body)


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLMAsJuryAnnotator, "annotate", LLMAsJuryAnnotator.annotate)
    monkeypatch.setattr(criterion_judge, "run_record", session.RunRecord())
    patch_named("ask_judges_in_parallel").apply()


def annotated(kind: str, folder: Path, *judges: EndpointSettings) -> Any:
    """The annotation of one answer."""
    deployments = []
    for judge in judges:
        args = {"cache_db": str(folder / "cache.db"), **judge.to_args()}
        deployments.append(
            {
                "name": f"{judge.role}/m",
                "model_name": f"{judge.role}/m",
                "tokenizer_name": "x",
                "max_sequence_length": 9999,
                "client_spec": {"class_name": names.CLIENT_CLASS, "args": args},
            }
        )
    (file := folder / "deployments.yaml").write_text(json.dumps({"model_deployments": deployments}))
    register_model_deployments_from_path(str(file))
    session.session_for(folder).clients.clear()  # a new process has the cache alone
    roles = [judge.role for judge in judges]
    jury = {
        "name": "jury",
        "prompt_template": "Rate {RESPONSE} to {QUESTION}",
        "annotator_models": {role: AnnotatorModelInfo(f"{role}/m", f"{role}/m") for role in roles},
        "annotation_criteria": {"accuracy": {"score", "explanation"}},
    }
    specs = {
        "jury": AnnotatorSpec(f"{LLMAsJuryAnnotator.__module__}.LLMAsJuryAnnotator", jury),
        "rubric": AnnotatorSpec(
            names.RUBRIC_ANNOTATOR_CLASS, {"judges": {role: f"{role}/m" for role in roles}}
        ),
    }
    output = GeneratedOutput("A", 0.0, [])
    said = RequestResult(success=True, embedding=[], completions=[output], cached=True)
    asks = Input("Q?", messages=[{"role": "user", "content": "Q?"}])
    rubrics = [{"criterion": "c", "points": 1, "tags": []}]
    instance = Instance(asks, [], split="test", id="one", extra_data={"rubrics": rubrics})
    of_model = Request(model="a/b", model_deployment="a/b", prompt="Q?")
    state = RequestState(instance, None, None, 0, None, of_model, said, 0, False)
    executor = AnnotationExecutor(AnnotationExecutionSpec(str(folder / "env"), parallelism=1))
    (found,) = executor.execute(ScenarioState(AdapterSpec(), [state], [specs[kind]])).request_states
    return next(iter((found.annotations or {}).values()))


def judge_at(server: Judge, role: str, *, structured: bool) -> EndpointSettings:
    return endpoint_settings(role=role, url=server.url, model_id="m", structured=structured)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("jury", ["accuracy"]), ("rubric", ["explanation", "criteria_met"])],
)
def test_a_judge_with_structured_gets_the_form_of_its_verdict(
    kind: str, fields: list[str], tmp_path: Path
) -> None:
    with Judge() as server:
        by_schema = judge_at(server, "by_schema", structured=True)
        plain = judge_at(server, "plain", structured=False)
        found = annotated(kind, tmp_path, by_schema, plain)
        formats = [body.get("response_format") for body in server.requests]
    (sent,) = [one for one in formats if one]
    assert (sent["type"], sent["json_schema"]["strict"]) == ("json_schema", True)
    assert list(sent["json_schema"]["schema"]["properties"]) == fields
    assert len(formats) == 3, "without the schema the verdict is asked for once more"
    assert "I would say" not in str(found)
    if kind == "jury":
        assert found["by_schema"]["accuracy"]["score"] == 4
        assert set(found[names.NOT_JUDGED_FIELD]) == {"plain"}
    else:
        (decided,) = found["criteria"]
        assert decided["by_schema"]["criteria_met"] is True
        assert "criteria_met" not in decided["plain"]
        recorded = vars(criterion_judge)["run_record"].entries["judge_prompts"]
        (template,) = criterion_templates(1, by_schema=True)
        assert recorded["rubric by schema"] == [hashlib.sha256(template.encode()).hexdigest()]
        (template,) = criterion_templates(1, by_schema=False)
        assert recorded["rubric"] == [hashlib.sha256(template.encode()).hexdigest()]


def test_where_the_endpoint_refuses_a_schema_it_is_asked_the_plain_way(tmp_path: Path) -> None:
    with Judge("This model does not support response format `json_schema`.") as server:
        judge = judge_at(server, "refusing", structured=True)
        found = annotated("jury", tmp_path, judge)
        assert "unusable judgement" in found[names.NOT_JUDGED_FIELD]["refusing"]
        formats = ["response_format" in body for body in server.requests]
        assert formats == [True, False, False], "refused, asked the plain way, asked once more"
        annotated("jury", tmp_path, judge)
        assert len(server.requests) == 6, "what could not be used is asked for again"
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        noted = "SELECT DISTINCT error FROM attempts WHERE outcome = 'answered'"
        ((said,),) = connection.execute(noted).fetchall()
    says(said, "judge refusing", "response_format", "structured")


def test_a_schema_stands_in_the_provenance_by_its_kind() -> None:
    body = {"model": "m", "messages": [], "n": 1, "response_format": {"type": "json_schema"}}
    assert sampling_fields_of(body) == {"n": 1, "response_format": "json_schema"}
    assert sampling_fields_of({"response_format": "b64_json"}) == {"response_format": "b64_json"}
