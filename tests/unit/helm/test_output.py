"""HELM's large files, read entry by entry."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import HelmError
from eval_factory.helm import output
from eval_factory.helm.names import RUN_RECORD_FILE
from eval_factory.helm.output import HelmRun, RunRecord, StoredRunSpec, read_run_record


def run_of(folder: Path) -> HelmRun:
    return HelmRun(folder=folder, run_spec=StoredRunSpec(name="r"), stats=[])


def state(identifier: str, text: str) -> dict[str, Any]:
    references = [{"output": {"text": "}"}, "tags": []}]
    instance = {"id": identifier, "input": {"text": "{\n    }\n"}, "references": references}
    result = {
        "success": True,
        "completions": [{"text": text, "tokens": [{"text": "a"}, {"text": "b"}]}],
    }
    return {
        "instance": instance,
        "train_trial_index": 0,
        "request": {"stop": [], "more": {}},
        "result": result,
    }


def write(folder: Path, document: Any) -> None:
    (folder / "scenario_state.json").write_text(json.dumps(document, indent=2))


def texts_of(run: HelmRun) -> list[str]:
    return [entry.result.completions[0].text for entry in run.request_states() if entry.result]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_every_entry(tmp_path: Path, number: int) -> None:
    texts = ["plain", "    },\n    {\n", "half a character \ud83d"][:number]
    states = [state(f"id{i}", text) for i, text in enumerate(texts)]
    adapter_spec = {"method": "m", "request_states": [{"not": "these"}]}
    document = {
        "adapter_spec": adapter_spec,
        "request_states": states,
        "annotator_specs": [{"class_name": "c"}],
    }
    write(tmp_path, document)
    run = run_of(tmp_path)
    for _ in range(2):
        assert texts_of(run) == texts


@pytest.mark.parametrize("mean", [0.5, math.nan])  # JSON knows no such number
def test_numbers_as_ids(tmp_path: Path, mean: float) -> None:
    entries = [
        {
            "instance_id": 7,
            "train_trial_index": 0,
            "stats": [{"name": {"name": "m"}, "count": 1, "mean": mean}],
        }
    ]
    (tmp_path / "per_instance_stats.json").write_text(json.dumps(entries, indent=2))
    (entry,) = run_of(tmp_path).per_instance_stats()
    assert (entry.instance_id, str(entry.stats[0]["mean"])) == ("7", str(mean))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("", "not indented"),
        (json.dumps({"request_states": [state("a", "b")]}), "not indented"),
        (json.dumps({"other": []}, indent=2), "not indented"),
        (
            json.dumps({"request_states": [state("a", "b")] * 2}, indent=2)[:-300],
            "ends in the middle",
        ),
        (
            json.dumps({"request_states": [{"instance": {"id": "a patient's text"}}]}, indent=2),
            "unexpected values",
        ),
    ],
    ids=["no file", "empty", "in one line", "no such list", "cut", "another form"],
)
def test_what_cannot_be_read_is_said_without_the_data(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    if text is not None:
        (tmp_path / "scenario_state.json").write_text(text)
    with pytest.raises(HelmError, match=reason) as caught:
        list(run_of(tmp_path).request_states())
    assert "patient" not in str(caught.value)


@pytest.mark.parametrize("block", [1, 7, 100, 1_000_000])
def test_blocks_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """What stands behind the list may look like entries, and is none."""
    monkeypatch.setattr(output, "BLOCK_SIZE", block)
    texts = ["a", "b" * 500, "}", ""]
    states = [state(f"id{number}", text) for number, text in enumerate(texts)]
    others = [{"class_name": {"more": 1}}, {"class_name": {}}]
    write(tmp_path, {"request_states": states, "annotator_specs": others})
    assert texts_of(run_of(tmp_path)) == texts
    assert [one.instance.id for one in run_of(tmp_path).request_states()] == [
        "id0",
        "id1",
        "id2",
        "id3",
    ]


@pytest.mark.parametrize(
    ("spare", "read_again"), [(0, False), (-1, True)], ids=["small", "one byte too large"]
)
def test_a_small_run_is_read_once(
    tmp_path: Path, monkeypatch: Any, spare: int, read_again: bool
) -> None:
    write(tmp_path, {"request_states": [state("id0", "first")]})
    monkeypatch.setattr(
        output, "SMALL_FILE_SIZE", (tmp_path / "scenario_state.json").stat().st_size + spare
    )
    run = run_of(tmp_path)
    assert texts_of(run) == ["first"]
    write(tmp_path, {"request_states": [state("id0", "other")]})
    assert texts_of(run) == ["other" if read_again else "first"]
    assert run == run_of(tmp_path)


def test_what_helm_run_wrote_down_of_itself(tmp_path: Path) -> None:
    assert read_run_record(tmp_path) == RunRecord()
    file = tmp_path / RUN_RECORD_FILE
    file.write_text(json.dumps({"patches": ["a"], "judge_prompts": {"a": ["1", "2"]}, "newer": 1}))
    assert read_run_record(tmp_path) == RunRecord(patches=["a"], judge_prompts={"a": ("1", "2")})
    for text in ("[1]", '{"patches": "a"}'):
        file.write_text(text)
        with pytest.raises(HelmError):
            read_run_record(tmp_path)
