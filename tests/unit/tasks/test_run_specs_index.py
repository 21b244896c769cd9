"""The index of run specs is the installed HELM's."""

from __future__ import annotations

from importlib import metadata

from eval_factory.helm.names import JURY_RUN_SPECS
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.published_forms import PUBLISHED_FORMS
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import HELM


def test_it_is_of_the_installed_helm_and_sorted() -> None:
    index = load_index()
    assert index.helm == metadata.version("crfm-helm") == HELM.version
    assert list(index.run_specs) == sorted(index.run_specs)
    assert len(index.run_specs) > 300
    assert {"model", "temperature", "num_output_tokens"} <= set(index.expanders)


def test_what_is_known_of_some() -> None:
    specs = load_index().run_specs
    assert (specs["mmlu"].required, specs["mmlu"].main_metrics) == (["subject"], ("exact_match",))
    assert specs["mmlu"].parameters["method"] == {"type": "str", "default": "multiple_choice_joint"}
    assert specs["boolq"].main_split == "valid"
    assert specs["math"].main_metrics == ("math_equiv_chain_of_thought", "math_equiv")
    assert specs["unitxt"].any_parameter
    zero_shot = ("medec", "medhelm_configurable_benchmark", "mmlu", "mental_health")
    assert [specs[name].zero_shot for name in zero_shot] == [True, True, False, False]
    asked = [specs[name].asks for name in ("vqa", "radiology", "msr_vtt", "mementos", "the_pile")]
    assert asked == [
        None,
        "image generation",
        "videos",
        "critiques of answers",
        "log probabilities",
    ]
    assert [specs[name].media for name in ("vqa_rad", "ami", "med_qa", "radiology")] == [
        "images",
        "sounds",
        None,
        None,
    ]
    assert specs["vqa_rad"].packages == ("pycocoevalcap",), (
        "which HELM imports after all answers came"
    )
    for name in ("harm_bench", "air_bench_2024", "live_qa"):
        assert specs[name].prescribed_judges == ("openai/gpt-4o-2024-05-13",)
    assert specs["alrage"].prescribed_judges == ("openai/gpt-4o-2024-11-20",)
    assert (specs["aci_bench"].has_jury, specs["aci_bench"].prescribed_judges) == (True, ())
    assert all(spec.description for spec in specs.values())
    assert {name for name, spec in specs.items() if spec.has_jury} <= JURY_RUN_SPECS, (
        "patched as one with a jury"
    )


def test_our_tasks_name_run_specs_and_main_metrics_that_helm_knows() -> None:
    specs = load_index().run_specs
    for task in load_framework().evaluations:
        published = task.helm.parameters.get("data_path")
        of_a_form = published is not None and any(
            entry.format in PUBLISHED_FORMS for entry in published.layout
        )
        if (
            task.name in ("sample_medical_qa", "custom", "script_concordance")
            or task.helm.rubric
            or of_a_form
        ):  # our own
            continue
        spec = specs[task.helm.run_spec]
        known = spec.main_metrics
        # the scenario says HELM Lite's; MedHELM's own schema another
        if task.name == "medhelm_med_qa":
            known = ("exact_match",)
        assert not known or task.helm.main_metric in known, task.name
        assert spec.scenario in (None, task.helm.scenario), task.name
        assert bool(task.helm.judges) == spec.has_jury, task.name
        given = {rule.helm_name or name for name, rule in task.helm.parameters.items()}
        assert set(spec.required) <= given <= set(spec.parameters), task.name
