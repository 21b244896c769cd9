"""Tests of what --dry_run shows."""

from __future__ import annotations

from pathlib import Path

import yaml

from builders import MINIMAL, evaluation
from eval_factory import api
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.reasoned import reasoned_tasks
from eval_factory.workflows.dry_run import preview
from facts import each_says


def sections(text: str) -> dict[str, str]:
    """Heading -> what follows it."""
    parts = [part.partition("\n") for part in text.split("\n\n# ")]
    return {heading.removeprefix("# "): body for heading, _, body in parts}


def test_the_configuration_is_whole_and_the_command_can_be_pasted() -> None:
    here = evaluation({"config.params.limit_samples": 7})
    shown = sections(preview(here, ["helm-run", "-c", "a b", "$x"], shows_nulls=True))
    assert list(shown) == ["rendered configuration", "values that are not defaults", "command"]
    assert yaml.safe_load(shown["rendered configuration"]) == here.as_dict()
    assert shown["command"] == "helm-run -c 'a b' '$x'\n"


def test_values_that_are_not_defaults_have_their_source(tmp_path: Path) -> None:
    """In the order of their names, in columns; those of the framework and of the task are not listed."""
    file = tmp_path / "x.yml"
    file.write_text(
        yaml.safe_dump({"config": {"params": {"limit_samples": 7, "temperature": None}}})
    )
    request = RunRequest(
        run_config=file, flags=MINIMAL, overrides=("config.params.extra.min_coverage=0.5",)
    )
    here = build_evaluation(request, load_framework(), {})
    lines = sections(preview(here, []))["values that are not defaults"].splitlines()
    each_says(
        lines,
        ["config.output_dir flag: /results/x"],
        ["config.params.extra.min_coverage --overrides: 0.5"],
        ["config.params.limit_samples run config: 7"],
        ["config.type flag: pubmed_qa"],
        ["target.api_endpoint.model_id flag: org/model"],
        ["target.api_endpoint.url flag: https://host.example/v1"],
    )


def test_what_is_noted_of_the_task_is_shown() -> None:
    here = evaluation({"config.type": "helm:harm_bench"})
    notes = sections(preview(here, []))["notes"]
    assert notes.splitlines() == [f"#   {note}" for note in here.task.about.notes]
    assert here.task.about.notes


def test_nulls_that_nobody_set_are_folded() -> None:
    here = evaluation()
    shown = yaml.safe_load(sections(preview(here, []))["rendered configuration"])
    whole = here.as_dict()
    assert whole["config"]["params"]["top_p"] is None
    assert "top_p" not in shown["config"]["params"]
    assert shown["target"]["api_endpoint"]["model_id"] == "org/model"


JUDGED = {**MINIMAL, "config.type": "aci_bench"}


def test_the_generated_files_are_shown_as_a_run_writes_them() -> None:
    text = api.dry_run(flags=JUDGED, env={}).text
    shown = sections(text)
    names = [name for name in shown if name.startswith("generated: ")]
    files = ["model_deployments.yaml", "model_metadata.yaml", "judges.yaml"]
    assert names == [f"generated: model_configs/{name}" for name in files]
    (metadata,) = [yaml.safe_load(shown[name]) for name in names[1:2]]
    assert metadata["models"][0]["name"].startswith("endpoint/")
    assert len(metadata["models"]) == 4
    assert shown["command"].count("helm-run") == 1


def test_a_difference_shows_what_a_change_does() -> None:
    after = {**MINIMAL, "config.params.limit_samples": 7}
    against = api.Options(diff={})
    text = api.dry_run({}, flags=after, env={}, options=against).text
    assert text.startswith("# no difference")
    document = {"config": {"params": {"limit_samples": 7}}}
    changed = api.dry_run(document, flags=MINIMAL, env={}, options=against).text.splitlines()
    assert "-    limit_samples: null" in changed
    assert "+    limit_samples: 7" in changed
    assert any(line.startswith("+") and "--max-eval-instances 7" in line for line in changed)


def test_a_difference_says_what_would_stop_the_run_that_is_asked_for(tmp_path: Path) -> None:
    against = api.Options(diff={})
    assert api.dry_run({}, flags=MINIMAL, env={}, options=against).would_stop == ()
    stops = {"config": {"params": {"extra": {"stop_when": {"differs_from": str(tmp_path)}}}}}
    from_there = api.Options(diff=stops)
    assert api.dry_run({}, flags=MINIMAL, env={}, options=from_there).would_stop == ()
    (stop,) = api.dry_run(stops, flags=MINIMAL, env={}, options=against).would_stop
    assert stop.startswith("config.params.extra.stop_when.differs_from: ")


def test_reasoned_prompts_are_shown_with_what_goes_out_and_comes_in() -> None:
    here = evaluation({"config.type": "med_qa", "config.params.extra.answer_style": "reasoned"})
    shown = sections(preview(here, []))["reasoned"]
    assert reasoned_tasks()["med_qa"].request in shown
    assert "(with answers)" in shown
    assert "2048" in shown
