"""Published benchmarks as HELM's instances, and their run specs. Importing this registers them.

What asks and scores them is HELM's own: its joint multiple-choice adapter and exact match; of short
answers about pictures the adapter of its vqa_rad, and those of vqa_rad's metrics that need no
package beside HELM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helm.benchmark.adaptation import adapter_spec as adapters
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.common_adapter_specs import get_multiple_choice_adapter_spec
from helm.benchmark.metrics.common_metric_specs import (
    get_basic_metric_specs,
    get_exact_match_metric_specs,
)
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios import scenario as helms
from helm.common.media_object import MediaObject, MultimediaObject

from eval_factory.helm_plugin.conversation_scenario import downloaded, plain_adapter, refuse
from eval_factory.helm_plugin.further_askings import register_expander
from eval_factory.tasks.choice_question import ChoiceQuestion
from eval_factory.tasks.published_choices import (
    EVERY_TIER,
    FORMS,
    questions_of_tier,
    read_choice_file,
)

INSTRUCTIONS = (
    "Answer the medical question with the letter of the one right option and nothing else."
)
SHORT_ANSWER = {
    "en": "Answer the question using a single word or sentence.",
    "zh": "请用一个词或一句话回答问题",
}
"""The instruction in each language; in English that of HELM's vqa_rad."""
PICTURES = "pictures"  # a folder among the scenario's data
FIRST_LINE = r"\A(.*?)[^\S\n]*(?:\n|\Z)"
"""HELM's adapter of choices beside pictures sends no stop sequence: the label is what stands
before a line break.
"""


class ChoiceScenario(helms.Scenario):  # type: ignore[misc]
    """The questions of a published set."""

    tags = ("question_answering", "biomedical", "multiple_choice")

    def __init__(
        self, name: str, published: str, tier: str = EVERY_TIER, data_path: str | None = None
    ) -> None:
        """Take which file is `published` (its form is the part before a colon), or the `data_path`
        that is read instead: a file of that form, or a folder of a set with pictures.
        """
        super().__init__()
        self.name = name
        self.description = f"Published questions ({name})"
        self._published = published
        self._tier = tier
        self._own = data_path

    def get_instances(self, output_path: str) -> list[helms.Instance]:
        form, _, part = self._published.partition(":")
        pattern = FORMS[form].files
        pictures = Path(output_path) / PICTURES
        instances = list[helms.Instance]()
        files = downloaded(output_path, self.name, part) if self._own is None else [Path(self._own)]
        if pattern and not (self._own and Path(self._own).is_file()):  # other files lie beside them
            files = sorted(Path(self._own or output_path).glob(pattern))
        for file in files:
            read = read_choice_file(file, form, pictures)
            refuse(file, read.problems)
            of_file = f"{file.stem}-" if len(files) > 1 else ""
            instances += [
                _instance(question, of_file, pictures)
                for question in questions_of_tier(read.rows, self._tier)
            ]
        return instances


def _instance(question: ChoiceQuestion, of_file: str, pictures: Path) -> helms.Instance:
    references = [
        helms.Reference(
            helms.Output(text=text), tags=[helms.CORRECT_TAG] if number == question.right else []
        )
        for number, text in enumerate(question.choices)
    ]
    question_input = helms.Input(text=question.question)
    if question.pictures:
        files = [pictures / file_name for file_name in question.pictures]
        shown = [
            MediaObject(content_type=f"image/{file.suffix[1:]}", location=str(file))
            for file in files
        ]
        text = MediaObject(content_type="text/plain", text=question.question)
        question_input = helms.Input(multimedia_content=MultimediaObject([*shown, text]))
    name = f"{of_file}{question.id}"
    extra = question.extra_data()
    return helms.Instance(question_input, references, helms.TEST_SPLIT, id=name, extra_data=extra)


def _scenario(
    name: str, published: str, data_path: str | None, tier: str = EVERY_TIER
) -> helms.ScenarioSpec:
    args = {"name": name, "published": published, "tier": tier, "data_path": data_path}
    return helms.ScenarioSpec(class_name=f"{__name__}.{ChoiceScenario.__name__}", args=args)


_CHOICES = get_multiple_choice_adapter_spec(
    method=adapters.ADAPT_MULTIPLE_CHOICE_JOINT,
    instructions=INSTRUCTIONS,
    input_noun="Question",
    output_noun="Answer",
    max_tokens=5,
    max_train_instances=0,
)
_CHOICES_BESIDE_PICTURES = replace(
    _CHOICES,
    method=adapters.ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL,
    output_mapping_pattern=FIRST_LINE,
)


def _short_answers(language: str) -> AdapterSpec:
    return replace(
        plain_adapter(adapters.ADAPT_GENERATION_MULTIMODAL, 20), instructions=SHORT_ANSWER[language]
    )


_OF_SHORT_ANSWERS = (
    "exact_match",
    "quasi_exact_match",
    "quasi_leave_articles_exact_match",
    "f1_score",
    "rouge_l",
)


def _run_spec(
    run_name: str,
    scenario: helms.ScenarioSpec,
    adapter: AdapterSpec = _CHOICES,
    metrics: Sequence[str] | None = None,
) -> RunSpec:
    return RunSpec(
        name=run_name,
        scenario_spec=scenario,
        adapter_spec=adapter,
        metric_specs=get_exact_match_metric_specs()
        if metrics is None
        else get_basic_metric_specs(list(metrics)),
        groups=[run_name.partition(":")[0]],
    )


def _register(
    name: str, published: str, adapter: AdapterSpec = _CHOICES, metrics: Sequence[str] | None = None
) -> None:
    """The run spec of one published set."""

    @run_spec_function(name)  # type: ignore[untyped-decorator]
    def whole_set(data_path: str | None = None) -> RunSpec:
        return _run_spec(name, _scenario(name, published, data_path), adapter, metrics)


_register("medxpertqa_text", "medxpertqa")
_register("metamedqa", "metamedqa")
_register("medexqa", "medexqa")
_register("m_arc", "m_arc")
_register("longhealth", "longhealth")  # task 1 over all documents of a patient
_register("medxpertqa_mm", "medxpertqa_mm", _CHOICES_BESIDE_PICTURES)
_register("path_vqa", "path_vqa", _short_answers("en"), _OF_SHORT_ANSWERS)


@run_spec_function("careqa")  # type: ignore[untyped-decorator]
def careqa(language: str = "en", data_path: str | None = None) -> RunSpec:
    """CareQA, the closed questions."""
    return _run_spec(
        f"careqa:language={language}", _scenario("careqa", f"careqa:{language}", data_path)
    )


@run_spec_function("medconceptsqa")  # type: ignore[untyped-decorator]
def medconceptsqa(subset: str = "atc_hard", data_path: str | None = None) -> RunSpec:
    """MedConceptsQA, the codes of one vocabulary at one level."""
    scenario = _scenario("medconceptsqa", f"medconceptsqa:{subset}", data_path)
    return _run_spec(f"medconceptsqa:subset={subset}", scenario)


@run_spec_function("afrimed_qa")  # type: ignore[untyped-decorator]
def afrimed_qa(subset: str = "expert", data_path: str | None = None) -> RunSpec:
    """AfriMed-QA, its multiple-choice questions."""
    return _run_spec(
        f"afrimed_qa:subset={subset}", _scenario("afrimed_qa", "afrimed_qa", data_path, tier=subset)
    )


@run_spec_function("slake")  # type: ignore[untyped-decorator]
def slake(language: str = "en", data_path: str | None = None) -> RunSpec:
    """SLAKE, the questions of one language."""
    scenario = _scenario("slake", "slake", data_path, tier=language)
    return _run_spec(
        f"slake:language={language}", scenario, _short_answers(language), _OF_SHORT_ANSWERS
    )


def _with_own_pictures(run_spec: RunSpec, folder: str) -> RunSpec:
    """Expand `own_pictures=FOLDER`: vqa_rad over its published Parquet files, with the pictures'
    own bytes.

    HELM's scenario saves each as JPEG and ends at one that cannot be: transparent, with a palette,
    of 16 bits.
    """
    return replace(run_spec, scenario_spec=_scenario(run_spec.groups[0], "path_vqa", folder))


register_expander("own_pictures", _with_own_pictures)
