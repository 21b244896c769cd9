"""Turns published benchmarks into HELM's instances, and registers their run specs when imported.

HELM's own code asks and scores the questions. Multiple-choice questions use HELM's joint
multiple-choice adapter and exact match. Questions about pictures with short answers use the adapter
of HELM's vqa_rad, and those metrics of vqa_rad that need no package besides HELM's own packages.
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
"""The instruction in each language. The English text is the instruction of HELM's vqa_rad."""
PICTURES = "pictures"  # the name of a folder within the scenario's data
FIRST_LINE = r"\A(.*?)[^\S\n]*(?:\n|\Z)"
"""Finds the label in an answer: the text before the first line break. HELM's adapter for choices
with pictures sends no stop sequence, so more lines may follow the label.
"""


class ChoiceScenario(helms.Scenario):  # type: ignore[misc]
    """The HELM scenario of one published set of questions."""

    tags = ("question_answering", "biomedical", "multiple_choice")

    def __init__(
        self, name: str, published: str, tier: str = EVERY_TIER, data_path: str | None = None
    ) -> None:
        """Make the scenario.

        Args:
            name: the name of the task, under which HELM stores the scenario's data.
            published: the published form that the files have, and after a colon the part of the
                published files, if there are several parts.
            tier: the tier or the language of the questions to ask.
            data_path: the user's own file of that form, read instead of a download; for a set with
                pictures also a folder.
        """
        super().__init__()
        self.name = name
        self.description = f"Published questions ({name})"
        self._published = published
        self._tier = tier
        self._data_path = data_path

    def get_instances(self, output_path: str) -> list[helms.Instance]:
        form, _, part = self._published.partition(":")
        pattern = FORMS[form].files
        picture_folder = Path(output_path) / PICTURES
        instances = list[helms.Instance]()
        if self._data_path is None:
            files = downloaded(output_path, self.name, part)
        else:
            files = [Path(self._data_path)]
        is_single_file = self._data_path is not None and Path(self._data_path).is_file()
        # A folder also holds files without questions: the pattern selects the question files.
        if pattern and not is_single_file:
            files = sorted(Path(self._data_path or output_path).glob(pattern))
        for file in files:
            content = read_choice_file(file, form, picture_folder)
            refuse(file, content.problems)
            id_prefix = f"{file.stem}-" if len(files) > 1 else ""
            instances += [
                _instance(question, id_prefix, picture_folder)
                for question in questions_of_tier(content.rows, self._tier)
            ]
        return instances


def _instance(question: ChoiceQuestion, id_prefix: str, picture_folder: Path) -> helms.Instance:
    references = [
        helms.Reference(
            helms.Output(text=text), tags=[helms.CORRECT_TAG] if number == question.right else []
        )
        for number, text in enumerate(question.choices)
    ]
    question_input = helms.Input(text=question.question)
    if question.pictures:
        files = [picture_folder / file_name for file_name in question.pictures]
        pictures = [
            MediaObject(content_type=f"image/{file.suffix[1:]}", location=str(file))
            for file in files
        ]
        text = MediaObject(content_type="text/plain", text=question.question)
        question_input = helms.Input(multimedia_content=MultimediaObject([*pictures, text]))
    return helms.Instance(
        question_input,
        references,
        helms.TEST_SPLIT,
        id=f"{id_prefix}{question.id}",
        extra_data=question.extra_data(),
    )


def _scenario_spec(
    name: str, published: str, data_path: str | None, tier: str = EVERY_TIER
) -> helms.ScenarioSpec:
    args = {"name": name, "published": published, "tier": tier, "data_path": data_path}
    return helms.ScenarioSpec(class_name=f"{__name__}.{ChoiceScenario.__name__}", args=args)


_CHOICE_ADAPTER = get_multiple_choice_adapter_spec(
    method=adapters.ADAPT_MULTIPLE_CHOICE_JOINT,
    instructions=INSTRUCTIONS,
    input_noun="Question",
    output_noun="Answer",
    max_tokens=5,
    max_train_instances=0,
)
_CHOICES_WITH_PICTURES_ADAPTER = replace(
    _CHOICE_ADAPTER,
    method=adapters.ADAPT_MULTIPLE_CHOICE_JOINT_MULTIMODAL,
    output_mapping_pattern=FIRST_LINE,
)


def _short_answer_adapter(language: str) -> AdapterSpec:
    return replace(
        plain_adapter(adapters.ADAPT_GENERATION_MULTIMODAL, 20), instructions=SHORT_ANSWER[language]
    )


_SHORT_ANSWER_METRICS = (
    "exact_match",
    "quasi_exact_match",
    "quasi_leave_articles_exact_match",
    "f1_score",
    "rouge_l",
)


def _run_spec(
    run_name: str,
    scenario: helms.ScenarioSpec,
    adapter: AdapterSpec = _CHOICE_ADAPTER,
    metrics: Sequence[str] | None = None,
) -> RunSpec:
    if metrics is None:
        metric_specs = get_exact_match_metric_specs()
    else:
        metric_specs = get_basic_metric_specs(list(metrics))
    return RunSpec(
        name=run_name,
        scenario_spec=scenario,
        adapter_spec=adapter,
        metric_specs=metric_specs,
        groups=[run_name.partition(":")[0]],
    )


def _register(
    name: str,
    published: str,
    adapter: AdapterSpec = _CHOICE_ADAPTER,
    metrics: Sequence[str] | None = None,
) -> None:
    """Register the run spec of a published set that HELM asks as a whole."""

    @run_spec_function(name)  # type: ignore[untyped-decorator]
    def whole_set(data_path: str | None = None) -> RunSpec:
        return _run_spec(name, _scenario_spec(name, published, data_path), adapter, metrics)


_register("medxpertqa_text", "medxpertqa")
_register("metamedqa", "metamedqa")
_register("medexqa", "medexqa")
_register("m_arc", "m_arc")
_register("longhealth", "longhealth")  # LongHealth's task 1, over all documents of a patient
_register("medxpertqa_mm", "medxpertqa_mm", _CHOICES_WITH_PICTURES_ADAPTER)
_register("path_vqa", "path_vqa", _short_answer_adapter("en"), _SHORT_ANSWER_METRICS)


@run_spec_function("careqa")  # type: ignore[untyped-decorator]
def careqa(language: str = "en", data_path: str | None = None) -> RunSpec:
    """Return the run spec of CareQA's closed questions in one language."""
    scenario = _scenario_spec("careqa", f"careqa:{language}", data_path)
    return _run_spec(f"careqa:language={language}", scenario)


@run_spec_function("medconceptsqa")  # type: ignore[untyped-decorator]
def medconceptsqa(subset: str = "atc_hard", data_path: str | None = None) -> RunSpec:
    """Return the run spec of MedConceptsQA for the codes of one vocabulary at one level."""
    scenario = _scenario_spec("medconceptsqa", f"medconceptsqa:{subset}", data_path)
    return _run_spec(f"medconceptsqa:subset={subset}", scenario)


@run_spec_function("afrimed_qa")  # type: ignore[untyped-decorator]
def afrimed_qa(subset: str = "expert", data_path: str | None = None) -> RunSpec:
    """Return the run spec of AfriMed-QA's multiple-choice questions of one tier."""
    scenario = _scenario_spec("afrimed_qa", "afrimed_qa", data_path, tier=subset)
    return _run_spec(f"afrimed_qa:subset={subset}", scenario)


@run_spec_function("slake")  # type: ignore[untyped-decorator]
def slake(language: str = "en", data_path: str | None = None) -> RunSpec:
    """Return the run spec of SLAKE's questions in one language."""
    scenario = _scenario_spec("slake", "slake", data_path, tier=language)
    adapter = _short_answer_adapter(language)
    return _run_spec(f"slake:language={language}", scenario, adapter, _SHORT_ANSWER_METRICS)


def _with_own_pictures(run_spec: RunSpec, folder: str) -> RunSpec:
    """Expand `own_pictures=FOLDER`: read vqa_rad from its published Parquet files in this folder.

    The model is then shown the original bytes of each picture. HELM's own scenario saves each
    picture as JPEG, and fails at a picture that JPEG cannot hold: a picture with transparency, with
    a palette, or of 16 bits.
    """
    scenario = _scenario_spec(run_spec.groups[0], "path_vqa", folder)
    return replace(run_spec, scenario_spec=scenario)


register_expander("own_pictures", _with_own_pictures)
