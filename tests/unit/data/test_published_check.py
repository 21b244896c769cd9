from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.data.importing import import_folder, look_through_folder, looked_through
from eval_factory.data.pull import pull
from eval_factory.data.sources import Sources, load_sources
from invented_bundle import Origin
from published_rows import afrimed_row, careqa_row, medxpertqa_row, write_csv, write_json, write_json_lines


def test_what_is_found_in_a_file_or_a_folder(tmp_path: Path) -> None:
    rows = [afrimed_row(2), afrimed_row(3), afrimed_row(4, question_type="saq")]
    file = write_csv(tmp_path / "a.csv", rows)
    assert looked_through(file, "afrimed_qa", "x") == "2 questions in a.csv (1 rows that are none are left out)"
    assert looked_through(write_csv(tmp_path / "b.csv", rows[:2]), "afrimed_qa", "x") == "2 questions in b.csv"
    write_json(tmp_path / "careqa" / "CareQA_es.json", [careqa_row(1)])
    assert list(look_through_folder(tmp_path, load_sources())) == ["careqa: 1 questions in CareQA_es.json"]


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "a.jsonl", [{**medxpertqa_row(number), "label": "?"} for number in range(12)])
    with pytest.raises(PrerequisiteError) as raised:
        looked_through(file, "medxpertqa", "https://x/a.jsonl")
    first, second, *_, last = str(raised.value).splitlines()
    assert first == "https://x/a.jsonl: is not of the form medxpertqa"
    assert second == "  line 1, column label: must be one of A, B, C, D, E, F, G, H, I, J"
    assert last == "  2 more mistakes in it"


def test_an_import_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_json(tmp_path / "given" / "scenarios" / "careqa" / "CareQA_en.json", [{**careqa_row(1), "cop": 7}])
    told = r"CareQA_en.json: is not of the form careqa\n  row 1, column cop: must be"
    with pytest.raises(PrerequisiteError, match=told):
        import_folder(tmp_path / "given", tmp_path / "bundle", load_sources(), print)
    assert not (tmp_path / "bundle").exists()


def of_one_file(origin: Origin, content: bytes) -> Sources:
    origin.altered["/q/a.json"] = (200, content, {})
    task = {"scenario": "one", "files": [{"path": "a.json", "url": "{raw}/q/a.json", "form": "careqa"}]}
    table = {"format": 1, "origins": {"raw": "https://x"}, "tasks": {"one": task}, "tiktoken": {}, "nltk": {}}
    return Sources.model_validate(table).with_origins({"raw": origin.url})


def test_a_pull_says_how_many_questions_came(tmp_path: Path, origin: Origin) -> None:
    said: list[str] = []
    content = write_json(tmp_path / "a.json", [careqa_row(1), careqa_row(2)]).read_bytes()
    pull(["one"], tmp_path / "b", of_one_file(origin, content), said.append)
    assert "one: pulled; 2 questions in a.json; 1 file" in said


def test_a_pull_of_another_form_is_refused(tmp_path: Path, origin: Origin) -> None:
    with pytest.raises(PrerequisiteError, match=r"one: not pulled, nothing was written: .*is not of the form careqa"):
        pull(["one"], tmp_path / "b", of_one_file(origin, b'[{"question": "x"}]'), lambda _line: None)
    assert not (tmp_path / "b").exists()
