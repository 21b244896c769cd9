"""Which metrics of pictures a machine can compute, known before a picture is paid."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.helm import picture_metrics
from eval_factory.helm.environments import Environment
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.picture_metrics import metrics_of
from facts import says


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder without weights, and an environment that has every package."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVAL_FACTORY_HEIM", str(tmp_path / "heim"))
    monkeypatch.setattr(Environment, "has_module", lambda _self, _name: True)
    return tmp_path / "home"


def plan_of(task: str, **flags: object) -> Plan:
    given = {
        "config.type": task,
        "config.output_dir": "x",
        "target.api_endpoint.url": "http://h/v1",
        "target.api_endpoint.model_id": "m",
        "target.api_endpoint.type": "images" if "helm:" in task else "chat",
        **flags,
    }
    return make_plan(build_evaluation(RunRequest(flags=given), load_framework(), {}))


def shown(plan: Plan, env: dict[str, str]) -> dict[str, str]:
    reasons = picture_metrics.uncomputed_metrics(plan, env)
    return {metric.shown: reason for metric, reason in reasons.items()}


def put(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


@pytest.mark.usefixtures("home")
def test_each_is_named_with_size_and_source_and_where_it_is_looked_for() -> None:
    found = shown(plan_of("helm:radiology"), {})
    assert set(found) == {"CLIPScore", "aesthetics", "watermarks", "nudity"}
    says(found["CLIPScore"], "clip-vit-large-patch14", "1.7 GB", "https://huggingface.co/")
    says(found["watermarks"], "49 MB", "46 MB", "heim-weights/watermark_model_v1.pt")


def test_what_is_here_is_computed(home: Path, tmp_path: Path) -> None:
    plan = plan_of("helm:radiology")
    put(home / ".NudeNet" / "classifier_model.onnx")
    put(tmp_path / "heim-weights" / "watermark_model_v1.pt")
    assert set(shown(plan, {})) == {"CLIPScore", "aesthetics", "watermarks"}
    put(home / ".cache" / "torch" / "hub" / "checkpoints" / "efficientnet_b3_ra2-cf984f9c.pth")
    assert set(shown(plan, {})) == {"CLIPScore", "aesthetics"}
    snapshot = Path("models--openai--clip-vit-large-patch14/snapshots/abc/config.json")
    put(tmp_path / "hub" / snapshot)
    assert "CLIPScore" in shown(plan, {})
    assert set(shown(plan, {"HF_HUB_CACHE": str(tmp_path / "hub")})) == {"aesthetics"}


def test_a_package_that_is_missing_costs_its_metrics_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "has_module", lambda _self, name: name != "detectron2")
    put(home / ".NudeNet" / "classifier_model.onnx")
    found = shown(plan_of("helm:detection:skill=count"), {})
    assert found["objects"] == "not installed: detectron2"
    assert "nudity" not in found


@pytest.mark.usefixtures("home")
def test_nothing_is_left_out_where_no_picture_is_scored() -> None:
    assert shown(plan_of("pubmed_qa"), {}) == {}
    made = plan_of("helm:radiology", **{"config.params.extra.only_generate": True})
    assert shown(made, {}) == {}


@pytest.mark.parametrize(
    ("run_spec", "arguments", "some", "others"),
    [
        ("radiology", {}, {"CLIPScore", "fractal dimension"}, {"gender", "PSNR", "objects"}),
        ("mental_disorders", {}, {"gender", "skin tone"}, {"PSNR"}),
        ("mscoco", {}, {"PSNR", "CLIPScore"}, {"FID and inception score", "people's critiques"}),
        ("mscoco", {"compute_fid": "True"}, {"FID and inception score"}, {"PSNR", "CLIPScore"}),
        ("logos", {"run_human_eval": "true"}, {"people's critiques"}, {"people's view of realism"}),
    ],
)
def test_which_run_has_which(
    run_spec: str, arguments: dict[str, str], some: set[str], others: set[str]
) -> None:
    names = {metric.shown for metric in metrics_of(run_spec, arguments)}
    assert some <= names
    assert not others & names
