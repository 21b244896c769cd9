"""Questions about pictures in HELM's files: which repeat each other, which answer is whose, what is read of a disk."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.results import InstanceRecord, TaskResult
from eval_factory.endpoint import media
from eval_factory.helm.output import read_run
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.collect import collect
from eval_factory.scoring.request_states import media_of
from facts import says
from seeing_endpoint import picture, tone
from unit.scoring.test_collect import state, write_run
from unit.scoring.test_records import keep

WHERE_IT_RAN = "/another/machine/helm/scenarios/x"


@pytest.fixture
def here(tmp_path: Path) -> Plan:
    made = plan({"config.output_dir": str(tmp_path / "out")})
    folder = made.rundir.helm / "scenarios" / "x"
    folder.mkdir(parents=True)
    for name, colour in (("0", "red"), ("1", "blue"), ("2", "red")):
        (folder / f"{name}.jpg").write_bytes(picture(colour))
    return made


def about(number: int, location: str) -> dict[str, Any]:
    """The same question, and gold answer, about a picture."""
    content = [
        {"content_type": "image/jpeg", "location": location},
        {"content_type": "text/plain", "text": "Is it red?"},
    ]
    made = state(number, "yes")
    made["instance"]["input"] = {"text": "", "multimedia_content": {"media_objects": content}}
    instructions = {"content_type": "text/plain", "text": "One word."}
    made["request"] |= {
        "prompt": "",
        "multimodal_prompt": {"media_objects": [instructions, *content]},
    }
    return made


def result_of(here: Plan, *states: dict[str, Any]) -> tuple[TaskResult, list[InstanceRecord]]:
    folder = here.rundir.helm / "runs" / "s" / "r"
    shutil.rmtree(folder, ignore_errors=True)
    write_run(folder, list(states), {"exact_match": [1.0] * len(states)})
    result = collect(here, [folder], run_id="run", wall_s=1.0, git_hash=None)
    return result, list(result.instances)


def test_a_question_about_another_picture_repeats_nothing(here: Plan) -> None:
    states = [about(number, f"{WHERE_IT_RAN}/{number}.jpg") for number in range(3)]
    result, records = result_of(here, *states[:2])
    assert not [note for note in result.validity.notes if "repeat" in note]
    assert len({record.prompt for record in records}) == 2
    assert (
        result.provenance.prompts_sha256
        != result_of(here, *states[1:])[0].provenance.prompts_sha256
    )
    result, _ = result_of(here, *states)
    (repeated,) = [note for note in result.validity.notes if "repeat" in note]
    says(repeated, "1 of 3 instances")


def test_a_record_names_each_file_where_the_folder_is_now(here: Plan, tmp_path: Path) -> None:
    """By what it is, whatever it is called; also where HELM's folder is a link, as while a result is verified."""
    sound = tone(440)
    (here.rundir.helm / "scenarios" / "x" / "1.jpg").write_bytes(sound)
    _, records = result_of(
        here, about(0, f"{WHERE_IT_RAN}/1.jpg"), about(1, f"{tmp_path}/gone.jpg"), state(2, "yes")
    )
    heard = {
        "type": "audio/wav",
        "sha256": sha256(sound).hexdigest(),
        "bytes": len(sound),
        "file": "helm/scenarios/x/1.jpg",
    }
    gone = {"type": "image/jpeg", "sha256": None, "bytes": None, "file": None}
    assert [record.media for record in records] == [(heard,), (gone,), ()]
    (tmp_path / "helm").symlink_to(here.rundir.helm)
    states = read_run(tmp_path / "helm" / "runs" / "s" / "r").request_states()
    assert [media_of(one, tmp_path / "helm") for one in states] == [
        record.media for record in records
    ]
    own = [
        {"location": str(here.rundir.helm / "scenarios" / "x" / "1.jpg")},
        {"text": "Is it red?"},
    ]
    assert media.records_of(own, tmp_path / "another") == [{**heard, "file": None}], (
        "it lies outside"
    )


def test_an_answer_is_found_where_the_folder_is_now(here: Plan) -> None:
    own = str(here.rundir.helm / "scenarios" / "x" / "1.jpg")
    asked = about(1, own)
    keep(here, asked, content="no")
    _, records = result_of(
        here, about(0, f"{WHERE_IT_RAN}/0.jpg"), about(1, "helm/scenarios/x/1.jpg")
    )
    assert [record.prompt_tokens for record in records] == [None, 3]
    assert all(record.turns == () for record in records)


@pytest.mark.parametrize(
    "location", ["{outside}", "/helm/scenarios/../../../{name}", "https://h/x.png", "", "/dev/zero"]
)
def test_no_file_elsewhere_is_read(location: str, here: Plan, tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes(picture("red"))
    link = here.rundir.helm / "scenarios" / "x" / "link.png"
    link.symlink_to(outside)
    for one in (location.format(outside=outside, name=outside.name), f"{WHERE_IT_RAN}/link.png"):
        _, (record,) = result_of(here, about(0, one))
        assert "sha256" not in record.prompt
        assert "Is it red?" in record.prompt
