"""Turns published benchmarks into HELM's instances, and registers their run specs when imported.

HELM's own code asks and scores the questions. Multiple-choice questions use HELM's joint
multiple-choice adapters and exact match. Questions that ask for a short answer about a picture use
the adapter and the metrics of HELM's vqa_rad, except BLEU and CIDEr: HELM's BLEU needs data that
NLTK downloads, and CIDEr needs a package that HELM does not always install.
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
from helm.benchmark.scenarios import scenario as helm_scenario
from helm.common.media_object import MediaObject, MultimediaObject

from eval_factory.helm_plugin.conversation_scenario import (
    download_missing_files,
    plain_adapter,
    raise_if_problems,
)
from eval_factory.helm_plugin.further_askings import register_expander
from eval_factory.tasks.choice_question import ChoiceQuestion
from eval_factory.tasks.published_choices import (
    EVERY_TIER,
    questions_of_tier,
    read_choice_file,
)
from eval_factory.tasks.published_forms import PUBLISHED_FORMS

CHOICE_INSTRUCTIONS = (
    "Answer the medical question with the letter of the one right option and nothing else."
)
SHORT_ANSWER_INSTRUCTIONS = {
    "en": "Answer the question using a single word or sentence.",
    "zh": "请用一个词或一句话回答问题",
}
"""A language -> the instruction. The English text is the instruction of HELM's vqa_rad."""
PICTURES = "pictures"  # the name of the folder with the pictures, within the scenario's data
FIRST_LINE = r"\A(.*?)[^\S\n]*(?:\n|\Z)"
r"""A pattern for the label in an answer: the first line without white space at its end, such as "B"
in "B  \nbecause ...". `[^\S\n]` is white space but no line break.

HELM's adapter for choices with pictures sends no stop sequence, so lines may follow the label.
"""


class ChoiceScenario(helm_scenario.Scenario):  # type: ignore[misc]
    """The HELM scenario of one published set of questions."""

    tags = ("question_answering", "biomedical", "multiple_choice")

    def __init__(
        self, name: str, published: str, tier: str = EVERY_TIER, data_path: str | None = None
    ) -> None:
        """Make the scenario.

        Args:
            name: the name of the task, under which HELM stores the scenario's data.
            published: the name of the form in which the files are published, such as `medexqa`. A
                colon and the name of a part follow if only this part is downloaded, such as
                `careqa:en`.
            tier: the tier of the questions to ask, such as `expert` (AfriMed-QA), or their language
                (SLAKE); `EVERY_TIER` for all questions.
            data_path: the user's own file in this form, which is read instead of a download. It may
                be a folder if the questions of this form are in several files.
        """
        super().__init__()
        self.name = name
        self.description = f"Published questions ({name})"
        self._published = published
        self._tier = tier
        self._data_path = data_path

    def get_instances(self, output_path: str) -> list[helm_scenario.Instance]:
        form, _, part = self._published.partition(":")
        picture_folder = Path(output_path) / PICTURES
        instances: list[helm_scenario.Instance] = []
        files = self._question_files(output_path, form, part)
        for file in files:
            content = read_choice_file(file, form, picture_folder)
            raise_if_problems(file, content.problems)
            # Ids are unique only within a file.
            id_prefix = f"{file.stem}-" if len(files) > 1 else ""
            instances += [
                _instance(question, id_prefix, picture_folder)
                for question in questions_of_tier(content.rows, self._tier)
            ]
        return instances

    def _question_files(self, output_path: str, form: str, part: str) -> list[Path]:
        """Return the files with the questions, which are downloaded if the user has no own files.

        Args:
            output_path: the folder in which HELM stores the scenario's data.
            form: the name of the form in which the files are published.
            part: the part of the published files; empty if there are no parts.
        """
        pattern = PUBLISHED_FORMS[form].files
        if self._data_path is None:
            files = download_missing_files(output_path, self.name, part)
            folder_or_file = Path(output_path)
        else:
            files = [Path(self._data_path)]
            folder_or_file = Path(self._data_path)
        if not pattern or folder_or_file.is_file():
            return files
        # The folder also contains files without questions. The pattern selects question files.
        return sorted(folder_or_file.glob(pattern))


def _instance(
    question: ChoiceQuestion, id_prefix: str, picture_folder: Path
) -> helm_scenario.Instance:
    """Return HELM's instance of a question; its pictures come before its text."""
    references = []
    for index, choice in enumerate(question.choices):
        is_right = index == question.right
        tags = [helm_scenario.CORRECT_TAG] if is_right else []
        references.append(helm_scenario.Reference(helm_scenario.Output(text=choice), tags=tags))
    question_input = helm_scenario.Input(text=question.question)
    if question.pictures:
        media_objects = []
        for file_name in question.pictures:
            file = picture_folder / file_name
            content_type = f"image/{file.suffix[1:]}"  # such as "image/png"
            media_objects.append(MediaObject(content_type=content_type, location=str(file)))
        media_objects.append(MediaObject(content_type="text/plain", text=question.question))
        question_input = helm_scenario.Input(multimedia_content=MultimediaObject(media_objects))
    return helm_scenario.Instance(
        question_input,
        references,
        helm_scenario.TEST_SPLIT,
        id=f"{id_prefix}{question.id}",
        extra_data=question.extra_data(),
    )


def _scenario_spec(
    name: str, published: str, data_path: str | None, tier: str = EVERY_TIER
) -> helm_scenario.ScenarioSpec:
    args = {"name": name, "published": published, "tier": tier, "data_path": data_path}
    return helm_scenario.ScenarioSpec(class_name=f"{__name__}.{ChoiceScenario.__name__}", args=args)


_CHOICE_ADAPTER = get_multiple_choice_adapter_spec(
    method=adapters.ADAPT_MULTIPLE_CHOICE_JOINT,
    instructions=CHOICE_INSTRUCTIONS,
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
    # HELM's vqa_rad has the same limit of tokens.
    adapter = plain_adapter(adapters.ADAPT_GENERATION_MULTIMODAL, max_tokens=20)
    return replace(adapter, instructions=SHORT_ANSWER_INSTRUCTIONS[language])


_SHORT_ANSWER_METRICS = (
    "exact_match",
    "quasi_exact_match",
    "quasi_leave_articles_exact_match",
    "f1_score",
    "rouge_l",
)


def _run_spec(
    run_name: str,
    scenario: helm_scenario.ScenarioSpec,
    adapter: AdapterSpec = _CHOICE_ADAPTER,
    metrics: Sequence[str] | None = None,
) -> RunSpec:
    """Return a run spec.

    Args:
        run_name: the name of the task, and after a colon the task's parameter, if there is one.
        scenario: the scenario of the run.
        adapter: the adapter of the run.
        metrics: the names of HELM's basic metrics; None for the exact-match metrics.
    """
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
    """Register the run spec of a published set that has no subsets to choose from.

    Args:
        name: the name of the task and of its run spec.
        published: the name of the form in which the set is published.
        adapter: the adapter of the run.
        metrics: the names of HELM's basic metrics; None for the exact-match metrics.
    """

    @run_spec_function(name)  # type: ignore[untyped-decorator]
    def run_spec_of_set(data_path: str | None = None) -> RunSpec:
        return _run_spec(name, _scenario_spec(name, published, data_path), adapter, metrics)


_register("medxpertqa_text", published="medxpertqa")
_register("metamedqa", published="metamedqa")
_register("medexqa", published="medexqa")
_register("m_arc", published="m_arc")
# LongHealth's task 1, over all documents of a patient
_register("longhealth", published="longhealth")
_register("medxpertqa_mm", published="medxpertqa_mm", adapter=_CHOICES_WITH_PICTURES_ADAPTER)
_register(
    "path_vqa",
    published="path_vqa",
    adapter=_short_answer_adapter("en"),
    metrics=_SHORT_ANSWER_METRICS,
)


@run_spec_function("careqa")  # type: ignore[untyped-decorator]
def careqa(language: str = "en", data_path: str | None = None) -> RunSpec:
    """Return the run spec of CareQA's closed questions in one language."""
    scenario = _scenario_spec("careqa", f"careqa:{language}", data_path)
    return _run_spec(f"careqa:language={language}", scenario)


@run_spec_function("medconceptsqa")  # type: ignore[untyped-decorator]
def medconceptsqa(subset: str = "atc_hard", data_path: str | None = None) -> RunSpec:
    """Return the run spec of MedConceptsQA for one vocabulary of codes at one difficulty.

    `subset` names the vocabulary and the difficulty, such as `atc_hard`.
    """
    scenario = _scenario_spec("medconceptsqa", f"medconceptsqa:{subset}", data_path)
    return _run_spec(f"medconceptsqa:subset={subset}", scenario)


@run_spec_function("afrimed_qa")  # type: ignore[untyped-decorator]
def afrimed_qa(subset: str = "expert", data_path: str | None = None) -> RunSpec:
    """Return the run spec of AfriMed-QA's multiple-choice questions.

    `subset` names the tier of the questions; `all` for all tiers.
    """
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
    # The published files of vqa_rad and of path_vqa have the same form.
    scenario = _scenario_spec(run_spec.groups[0], published="path_vqa", data_path=folder)
    return replace(run_spec, scenario_spec=scenario)


register_expander("own_pictures", _with_own_pictures)
