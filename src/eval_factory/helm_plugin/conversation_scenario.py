"""Turns conversations of a custom benchmark into HELM's instances, which are sent turn by turn.

Importing this module registers the run spec of such a benchmark. HELM's configurable benchmark has
the same metrics and juries, but it can only send one prompt for each instance.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from helm.benchmark.adaptation.adapter_spec import ADAPT_CHAT, AdapterSpec
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios import scenario as helm_scenario
from helm.common import general
from helm.common.media_object import MediaObject, MultimediaObject

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.plain_yaml import load_packaged, parse_own_text
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.media import facts_of
from eval_factory.helm import names
from eval_factory.tasks.conversations import (
    CONVERSATION_RUN_SPEC,
    read_conversations,
    right_letters_of,
)
from eval_factory.tasks.custom_table import picture_file
from eval_factory.tasks.file_problems import first_problems
from eval_factory.tasks.rubric_case import conversation_text


def plain_adapter(method: str, max_tokens: int) -> AdapterSpec:
    """Return an adapter that sends the text of an instance unchanged, without examples.

    With `ADAPT_CHAT` as the method, the adapter sends the turns of the instance.
    """
    return AdapterSpec(
        method=method,
        input_prefix="",
        input_suffix="",
        output_prefix="",
        output_suffix="",
        max_train_instances=0,
        num_outputs=1,
        max_tokens=max_tokens,
        temperature=0.0,
        stop_sequences=[],
    )


def input_of_turns(messages: Sequence[Mapping[str, str]]) -> helm_scenario.Input:
    """Return an input with these turns, and with one text of all turns for code that reads no
    turns.
    """
    return helm_scenario.Input(
        text=conversation_text(messages), messages=[dict(turn) for turn in messages]
    )


def right_replies(answer: str | None) -> list[helm_scenario.Reference]:
    """Return a reference with the right answer; an empty list if no right answer is known."""
    if answer is None:
        return []
    return [
        helm_scenario.Reference(helm_scenario.Output(text=answer), tags=[helm_scenario.CORRECT_TAG])
    ]


def raise_if_problems(file: Path, problems: Sequence[str]) -> None:
    """Raise PrerequisiteError if reading the file found any problems."""
    if problems:
        raise PrerequisiteError([f"{file}: {problem}" for problem in first_problems(problems)])


def download_missing_files(output_path: str, task: str, part: str = "") -> list[Path]:
    """Download the missing published files of a task, and return the paths of all its files.

    `eval-factory data pull` downloads these files too.

    Args:
        output_path: the folder in which HELM stores the scenario's data.
        task: the name of the task in framework.yml.
        part: the part of the files to download. Files for which `data/sources.yml` names no part
            (`when`) belong to all parts.
    """
    table = load_packaged("data/sources.yml")
    url_by_file = {}
    for entry in table["tasks"][task]["files"]:
        part_of_file = entry.get("when")
        if part_of_file is None or part_of_file == part:
            url = entry["url"].format_map(table["origins"])
            url_by_file[Path(output_path) / entry["path"]] = url
    for file, url in url_by_file.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        general.ensure_file_downloaded(source_url=url, target_path=str(file))
    return list(url_by_file)


@cache
def picture_root(output_path: str) -> Path | None:
    """Return the folder to which the rows' picture names are relative; None without pictures.

    The folder is that of the user's table, whose path benchmark.yaml states as `pictures_beside`.
    `output_path` is the folder in which HELM stores the scenario's data.
    """
    # HELM stores the data three levels below eval-factory's output folder.
    root = Path(output_path).absolute().parents[2]
    file = RunDir(root).model_configs / names.BENCHMARK_FILE
    if not file.is_file():
        return None
    document = parse_own_text(file.read_text(encoding="utf-8"))
    if "pictures_beside" not in document:
        return None
    return Path(document["pictures_beside"]).parent


def with_pictures(
    question_input: helm_scenario.Input, pictures: Sequence[str], output_path: str
) -> helm_scenario.Input:
    """Return the input with copies of the pictures; without pictures, return the input unchanged.

    The pictures are copied into the output folder, so that the output folder can be moved. The name
    of a copy is the hash of its content, because the original name may hold a patient's name.
    """
    root = picture_root(output_path)
    if root is None or not pictures:
        return question_input
    copies = []
    for name in pictures:
        file = picture_file(root, name)
        facts = facts_of(file)
        copy = Path(output_path).absolute().parent / "pictures" / facts.sha256
        # A copy of another size is incomplete: an earlier run was stopped while it copied.
        if not copy.is_file() or copy.stat().st_size != facts.size:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        copies.append(MediaObject(content_type=str(facts.content_type), location=str(copy)))
    return replace(question_input, multimedia_content=MultimediaObject(copies))


class ConversationScenario(helm_scenario.Scenario):  # type: ignore[misc]
    """A HELM scenario of conversations, each with its right answer if the file states one."""

    tags = ("biomedical",)

    def __init__(
        self,
        name: str,
        description: str,
        dataset_file: str,
        maps_right_answers: bool = False,
    ) -> None:
        """Make the scenario.

        Args:
            name: the name of the benchmark.
            description: a sentence about the benchmark.
            dataset_file: the path of the user's file of conversations.
            maps_right_answers: True to replace each right answer, such as `B. text` or the number
                2, by the letter of the option.
        """
        super().__init__()
        self._maps_right_answers = maps_right_answers
        self.name = name
        self.description = description
        self._file = Path(dataset_file)

    def get_instances(self, output_path: str) -> list[helm_scenario.Instance]:
        content = read_conversations(self._file)
        raise_if_problems(self._file, content.problems)
        rows = content.rows
        if self._maps_right_answers:
            letters = right_letters_of(rows)
            rows = [replace(row, correct=letter) for row, letter in zip(rows, letters, strict=True)]
        instances = []
        for row in rows:
            question_input = with_pictures(input_of_turns(row.messages), row.pictures, output_path)
            wrong = [
                helm_scenario.Reference(helm_scenario.Output(text=answer), tags=[])
                for answer in row.incorrect
            ]
            references = [*right_replies(row.correct), *wrong]
            instances.append(
                helm_scenario.Instance(
                    question_input,
                    references,
                    helm_scenario.TEST_SPLIT,
                    id=row.id,
                    extra_data=dict(row.further_fields) if row.further_fields else None,
                )
            )
        return instances


@run_spec_function(CONVERSATION_RUN_SPEC)  # type: ignore[untyped-decorator]
def conversations(config_path: str) -> RunSpec:
    """Return the run spec of a custom benchmark of conversations.

    `config_path` is the benchmark's configuration in HELM's form, which eval-factory wrote.
    """
    from helm.benchmark.run_specs.medhelm.benchmark_config import get_benchmark_config_from_path

    document = get_benchmark_config_from_path(config_path)
    scenario = {
        "name": document.name,
        "description": document.description,
        "dataset_file": document.dataset_file,
    }
    # `exact_match` can only be 1 if the right answer has the form of the model's answer: a letter.
    if any(metric.name == "exact_match" for metric in document.metrics):
        # Problems of the file are reported by the scenario, which reads the file again.
        content = read_conversations(Path(document.dataset_file))
        if not content.problems and right_letters_of(content.rows):
            scenario["maps_right_answers"] = True
    return RunSpec(
        name=document.name,
        scenario_spec=helm_scenario.ScenarioSpec(
            class_name=f"{__name__}.{ConversationScenario.__name__}", args=scenario
        ),
        adapter_spec=plain_adapter(ADAPT_CHAT, document.max_tokens),
        annotators=document.get_annotator_specs(),
        metric_specs=document.get_metric_specs(),
        groups=[document.name],
    )
