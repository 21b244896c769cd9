"""A leaderboard as a suite: endpoints, judges and parameters of each run, from flags and a run config."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.helm.environments import Environment
from eval_factory.plan.run_plan import EndpointPlan, Plan, slug_of
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.board import (
    FLAGS,
    Board,
    LeaderboardRequest,
    make_board,
)
from eval_factory.workflows.leaderboard.registry import find_leaderboard
from facts import naming, says

GPT = "openai/gpt-4o-2024-05-13"
KEYS = {name: f"{name}-0123456789" for name in ("OPENAI_API_KEY", "MY_KEY", "JUDGE_KEY")}


def board(
    folder: Path, *entries: Any, config: Mapping[str, object] | None = None, **flags: Any
) -> Board:
    """Of entries with priority 1; `screen`, where it is given, is told what there is to say."""
    conf = folder / "x.conf"
    records = [
        one if isinstance(one, dict) else {"description": one, "priority": 1} for one in entries
    ]
    conf.write_text(json.dumps({"entries": records}))
    given = {
        "name": "lite",
        "conf": conf,
        "model": ("org/m",),
        "model_url": "https://h/v1",
        "output_dir": "out",
        **flags,
    }
    screen = given.pop("screen", io.StringIO())
    env = given.pop("env", KEYS)
    if config is not None:
        file = folder / "run.yml"
        file.write_text(yaml.safe_dump(dict(config)))
        given["run_config"] = file
    flags = {name: given.pop(name) for name in FLAGS if name in given}
    set_flags = {name: value for name, value in flags.items() if value is not None}
    return make_board(LeaderboardRequest(flags=set_flags, **given), env, screen)


def plans(made: Board) -> dict[str, Plan]:
    return {one.cell.evaluation: one.plan for one in made.cells if one.plan is not None}


def judges(made: Board) -> dict[str, EndpointPlan]:
    (plan,) = plans(made).values()
    return {judge.role: judge for judge in plan.endpoints if judge.role != "model"}


def extra(**values: object) -> dict[str, object]:
    return {"config": {"params": {"extra": values}}}


def test_each_entry_is_a_cell_of_each_model(tmp_path: Path) -> None:
    made = board(
        tmp_path, "pubmed_qa:model=text", "mmlu:subject=anatomy,model=x/y", model=("org/a", "b")
    )
    assert made.models == {slug_of("org/a"): "org/a", "b": "b"}
    names = [
        f"{target}/{task}"
        for task, target in product(("pubmed_qa", "mmlu-subject-anatomy"), made.models)
    ]
    assert [one.cell.name for one in made.cells] == names
    assert {one.plan.model.model_id for one in made.cells if one.plan} == {"org/a", "b"}
    assert {plan.task_name for plan in plans(made).values()} == {
        "helm:pubmed_qa",
        "helm:mmlu:subject=anatomy",
    }
    assert made.folder == Path("out").absolute()
    assert not made.folder.exists()
    grouped = {"description": "pubmed_qa:model=text", "priority": 1, "groups": ["g"]}
    made = board(tmp_path, "pubmed_qa:model=text", grouped)
    assert [entry.row_name for entry in made.entries["pubmed_qa"]] == [
        "pubmed_qa",
        "pubmed_qa:groups=g",
    ]
    assert len(made.cells) == 1, "entries that differ in their groups alone are one run"


def test_entries_are_chosen_by_priority_and_what_asks_for_more_is_left_out(tmp_path: Path) -> None:
    screen = io.StringIO()
    later = {"description": "boolq:model=text", "priority": 9}
    more = (
        "msr_vtt:model=vlm",
        "flickr30k:model=vlm,num_respondents=1",
        "mm_safety_bench:model=vlm,subset=sex",
    )
    translated = "a_okvqa:data_augmentation=hindi,model=vlm"
    asked = (
        "pubmed_qa:model=text",
        later,
        *more,
        translated,
        "a_okvqa:model=vlm",
        {"description": "med_qa"},
    )
    made = board(tmp_path, *asked, screen=screen)
    assert list(made.entries) == ["pubmed_qa", "a_okvqa", "med_qa"]
    video, *_ = made.not_run
    assert (video.entry.description, video.reason) == ("msr_vtt", "asks for videos")
    assert [one.exit_code for one in made.not_run] == [0] * 4
    says(screen.getvalue(), "8 entries", "8 distinct entries", "7 of priority 2")
    says(screen.getvalue(), "4 entries", "left out")
    says(
        screen.getvalue(),
        "videos (1)",
        "critiques of answers (1)",
        "Perspective API (1)",
        "by Google (1)",
    )


def test_what_cannot_be_run_costs_itself_only(tmp_path: Path) -> None:
    screen = io.StringIO()
    entries = (
        "pubmed_qa:model=text",
        "nonsense:model=text",
        "pubmed_qa:model=text,wrong=1",
        "msmarco:track=regular",
    )
    made = board(tmp_path, *entries, screen=screen)
    assert list(made.entries) == ["pubmed_qa"]
    found = {one.entry.description: (one.exit_code, one.reason) for one in made.not_run}
    assert (found["nonsense"][0], found["msmarco:track=regular"][0]) == (4, 3)
    says(found["nonsense"][1], "no run spec 'nonsense'")
    says(found["pubmed_qa:wrong=1"][1], "pubmed_qa", "no parameter 'wrong'")
    assert "pytrec_eval" in found["msmarco:track=regular"][1]
    assert "warning: cannot run nonsense: " in screen.getvalue()


def test_where_nothing_can_be_run_it_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="pytrec_eval"):
        board(tmp_path, "msmarco:track=regular")
    with pytest.raises(PrerequisiteError, match=naming("no API key", "UNSET is not set")):
        board(tmp_path, "pubmed_qa:model=text", api_key_name="UNSET")
    screen = io.StringIO()
    assert board(
        tmp_path, "pubmed_qa:model=text", api_key_name="UNSET", dry_run=True, screen=screen
    ).cells
    says(screen.getvalue(), "warning: ", "would stop")
    says(screen.getvalue(), "no API key", "environment variable UNSET")
    keyless = extra(
        judges=[{"name": "gpt", "model_id": "j", "url": "https://elsewhere/v1", "api_key": "UNSET"}]
    )
    with pytest.raises(PrerequisiteError, match=naming("no API key", "judge gpt")):
        board(tmp_path, "pubmed_qa:model=text", "harm_bench:model=text", config=keyless)


@pytest.mark.parametrize(
    ("entry", "packages"),
    [
        ("vqa:model=vlm", ("pycocoevalcap~=1.2",)),
        (
            "ultra_suite_asr_transcription:model=text",
            ("ffmpeg-python~=0.2.0", "jiwer~=3.0", "librosa~=0.10", "soundfile~=0.12"),
        ),
    ],
)
def test_a_package_for_pictures_or_sounds_is_named_before_anything_is_asked(
    entry: str, packages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "has_module", lambda _self, _name: False)
    with pytest.raises(PrerequisiteError) as caught:
        board(tmp_path, entry, name="vhelm")
    quoted = " ".join(f"'{package}'" for package in packages)
    assert f" {quoted}\n  nothing was asked" in str(caught.value)


def test_another_version_of_helm_runs_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "version_of", lambda _self, _package: "0.5.99")
    with pytest.raises(PrerequisiteError, match=r"0\.5\.99 is installed"):
        board(tmp_path, "mmlu:subject=anatomy", "ehr_sql:model=text")


def test_parameters_are_the_leaderboards_and_the_users(tmp_path: Path) -> None:
    row = find_leaderboard("classic_before_0_2_4")
    (plan,) = plans(board(tmp_path, "pubmed_qa:model=text", name=row.name)).values()
    params = plan.evaluation.run.config.params
    assert (params.limit_samples, params.extra.num_train_trials) == (
        row.max_eval_instances,
        row.num_train_trials,
    )
    made = board(
        tmp_path, "pubmed_qa:model=text", max_eval_instances=7, min_coverage=0.25, parallelism=3
    )
    assert made.max_eval_instances == 7
    (plan,) = plans(made).values()
    params = plan.evaluation.run.config.params
    assert (params.limit_samples, params.extra.min_coverage, plan.model.parallelism) == (7, 0.25, 3)
    limits = {"max_unreadable": 0.1, "max_judge_failures": 0.2, "max_model_mismatch": 0.3}
    made = board(
        tmp_path, "pubmed_qa:model=text", config=extra(**limits, max_requests=50, max_wall_s=60.0)
    )
    (plan,) = plans(made).values()
    held = plan.evaluation.run.config.params.extra
    assert {name: getattr(held, name) for name in limits} == limits
    assert made.suite is not None
    assert (made.suite.budget.max_requests, made.suite.budget.max_wall_s) == (50, 60.0), "a suite's"


def test_judges_are_those_of_the_entry(tmp_path: Path) -> None:
    assert judges(board(tmp_path, "pubmed_qa:model=text")) == {}
    (gpt,) = judges(board(tmp_path, "harm_bench:model=text")).values()
    assert (gpt.role, gpt.helm_name, gpt.url, gpt.model_id) == (
        "gpt",
        GPT,
        "https://h/v1",
        "gpt-4o-2024-05-13",
    )
    assert gpt.key_names == ("GPT_JUDGE_API_KEY", "OPENAI_API_KEY")
    jury = judges(board(tmp_path, "aci_bench:model=x/y"))
    assert {role: judge.model_id for role, judge in jury.items()} == {
        "gpt": "gpt-4o-2024-05-13",
        "llama": "meta/llama-3.3-70b-instruct",
        "claude": "claude-3-7-sonnet-20250219",
    }


def test_a_run_config_says_where_judges_are(tmp_path: Path) -> None:
    own = {
        "name": "gpt",
        "model_id": "my-judge",
        "url": "http://127.0.0.1:9/v1",
        "api_key": "JUDGE_KEY",
    }
    params = {"limit_samples": 7, "extra": {"judges": [own]}}
    endpoint = {"url": "https://of.the.file/v1", "model_id": "of/the-file", "api_key": "MY_KEY"}
    config = {
        "config": {"type": "pubmed_qa", "output_dir": "somewhere", "params": params},
        "target": {"api_endpoint": endpoint},
    }
    from_file: dict[str, Any] = {"model": (), "model_url": None, "output_dir": None}
    made = board(tmp_path, "aci_bench:model=x/y", config=config, parallelism=3, **from_file)
    (plan,) = plans(made).values()
    model = plan.model
    found = judges(made)
    assert (model.url, model.model_id) == (endpoint["url"], endpoint["model_id"])
    assert (model.parallelism, model.key_names) == (3, ("MY_KEY",))
    assert (found["gpt"].url, found["gpt"].model_id) == ("http://127.0.0.1:9/v1", "my-judge")
    assert found["gpt"].key_names == ("JUDGE_KEY",)  # the model's key goes to the model's host only
    assert found["claude"].url == "https://of.the.file/v1"
    assert {"JUDGE_KEY", "MY_KEY"} <= set(plan.evaluation.key_variables())
    assert (made.max_eval_instances, made.folder.name) == (7, "somewhere")
    with pytest.raises(ConfigError, match=naming("lite", "judge 'gpt5'", "gpt, llama, claude")):
        board(tmp_path, "aci_bench:model=x/y", config=extra(judges=[{**own, "name": "gpt5"}]))


def test_what_nobody_can_run_is_refused_but_for_another_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = find_leaderboard("lite").model_copy(update={"lacks": "pictures"})
    monkeypatch.setattr(registry, "find_leaderboard", lambda _name: pictures)
    with pytest.raises(ConfigError, match=naming("helm's")):
        board(tmp_path, "pubmed_qa:model=text", config=extra(upstream="medhelm"))
    with pytest.raises(ConfigError, match=naming("lite", "pictures")):
        board(tmp_path, "pubmed_qa", conf=None)
    assert board(tmp_path, "pubmed_qa").leaderboard is pictures
