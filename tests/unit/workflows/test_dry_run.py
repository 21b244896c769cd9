"""What --dry_run shows."""

from __future__ import annotations

from pathlib import Path

import yaml

from builders import MINIMAL, evaluation
from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.dry_run import preview


def sections(text: str) -> dict[str, str]:
    """Heading -> what follows it."""
    parts = [part.partition("\n") for part in text.split("\n\n# ")]
    return {heading.removeprefix("# "): body for heading, _, body in parts}


def test_the_configuration_is_whole_and_the_command_can_be_pasted() -> None:
    here = evaluation({"config.params.limit_samples": 7})
    shown = sections(preview(here, ["helm-run", "-c", "a b", "$x"]))
    assert list(shown) == ["rendered configuration", "values that are not defaults", "command"]
    assert yaml.safe_load(shown["rendered configuration"]) == here.as_dict()
    assert shown["command"] == "helm-run -c 'a b' '$x'\n"


def test_values_that_are_not_defaults_have_their_source(tmp_path: Path) -> None:
    """In the order of their names, in columns; those of the framework and of the task are not listed."""
    file = tmp_path / "x.yml"
    file.write_text(
        yaml.safe_dump({"config": {"params": {"limit_samples": 7, "temperature": None}}})
    )
    request = Request(
        run_config=file, flags=MINIMAL, overrides=("config.params.extra.min_coverage=0.5",)
    )
    here = build_evaluation(request, load_framework(), {})
    lines = sections(preview(here, []))["values that are not defaults"].splitlines()
    assert lines == [
        "#   config.output_dir                 flag: /results/x",
        "#   config.params.extra.min_coverage  --overrides: 0.5",
        "#   config.params.limit_samples       run config: 7",
        "#   config.type                       flag: pubmed_qa",
        "#   target.api_endpoint.model_id      flag: org/model",
        "#   target.api_endpoint.url           flag: https://host.example/v1",
    ]


def test_what_is_noted_of_the_task_is_shown() -> None:
    here = evaluation({"config.type": "helm:harm_bench"})
    notes = sections(preview(here, []))["notes"]
    assert notes.splitlines() == [f"#   {note}" for note in here.task.about.notes]
    assert here.task.about.notes
