from __future__ import annotations

import os
from pathlib import Path

import datasets
import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data.bundle import compare_files, read_file_list, read_manifest
from eval_factory.data.importing import describe_choice_file, describe_choice_files, import_folder
from eval_factory.data.pull import pull
from eval_factory.data.sources import Sources, load_sources
from facts import each_says, naming, says
from invented_bundle import Origin, digest, folder_to_import, scripted, sources
from published_rows import (
    afrimed_row,
    careqa_row,
    medxpertqa_row,
    write_csv,
    write_json,
    write_json_lines,
)


def test_a_folder_becomes_a_bundle(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    root = tmp_path / "bundle"
    said: list[str] = []
    before = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    manifest = import_folder(given, root, sources(), said.append)
    assert (datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()) == before
    assert manifest.tasks == ["questions", "notes", "calc"]
    assert not compare_files(root, read_manifest(root))
    assert read_file_list(root / "file_lists/notes.json") == [
        "B - 2.txt",
        "a 1.txt",
    ]  # by bytes, as git sorts
    (entry,) = manifest.hub
    assert entry.folder == f"hf/datasets/org___some-calc/default/0.0.0/{'0' * 40}"
    assert entry.revision is None
    info = (root / entry.folder / "dataset_info.json").read_text("utf-8")
    assert str(tmp_path) not in info
    says(said, "org/Some-Calc: prepared", "revision is not known")


@pytest.mark.parametrize(
    "kind",
    [
        "altered",
        "missing",
        "not in SHA256SUMS",
        "is a link",
        "'scenarios/pipe' is not a plain file",
    ],
)
def test_what_the_sums_do_not_vouch_for_is_not_imported(kind: str, tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    note = given / "scenarios/notes/a 1.txt"
    if kind == "altered":
        note.write_text("PLAN: rune")
    elif kind == "missing":
        note.unlink()
    elif "pipe" in kind:  # not waited for
        os.mkfifo(given / "scenarios/pipe")
        (given / "SHA256SUMS").unlink()
    elif kind == "is a link":
        note.rename(tmp_path / "note")
        note.symlink_to(tmp_path / "note")
    else:
        (given / "scenarios/notes/z.txt").write_text("x")
    with pytest.raises(PrerequisiteError, match=kind):
        import_folder(given, tmp_path / "bundle", sources(), print)
    assert not (tmp_path / "bundle").exists()


def test_a_link_without_sums_is_refused_with_no_word_of_sums(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    (given / "SHA256SUMS").unlink()
    note = given / "scenarios/notes/a 1.txt"
    note.rename(tmp_path / "note")
    note.symlink_to(tmp_path / "note")
    with pytest.raises(PrerequisiteError, match=r"link: scenarios/notes/a 1\.txt") as raised:
        import_folder(given, tmp_path / "bundle", sources(), print)
    assert "SHA256SUMS" not in str(raised.value)


def test_a_listed_file_that_is_not_imported_is_checked(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    with (given / "SHA256SUMS").open("a") as file:
        file.write(f"{digest(b'')}  README.md\n")
    (given / "README.md").touch()
    manifest = import_folder(given, tmp_path / "bundle", sources(), print)
    assert not [file for file in manifest.files if "readme" in file.path.lower()]
    (given / "README.md").write_text("altered")
    with pytest.raises(PrerequisiteError, match=r"altered: README\.md"):
        import_folder(given, tmp_path / "other", sources(), print)


def test_empty_folders_are_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "given/scenarios").mkdir(parents=True)
    with pytest.raises(ConfigError, match="any of scenarios") as raised:
        import_folder(tmp_path / "given", tmp_path / "bundle", sources(), print)
    assert "none of" not in str(raised.value)


ODD_NAMES = {
    "case": ("K.txt", "differ in case only"),
    "no UTF-8": (os.fsdecode(b"\xff.txt"), r"'scenarios/odd/\\udcff\.txt' is not UTF-8"),
    "newline": ("a\nb.txt", r"'scenarios/odd/a\\nb\.txt' is not a plain relative path"),
    "backslash": ("a\\b.txt", "is not a plain relative path"),
    "too long": ("n" * 250, "too long"),
    "clash": (
        "scenarios/notes/A 1.txt",
        "cannot contain the new files: '.*' and '.*' differ in case only",
    ),
}


@pytest.mark.parametrize("kind", ODD_NAMES)
@pytest.mark.parametrize("over", [False, True])
def test_a_name_that_a_bundle_cannot_hold_is_said_and_nothing_is_left(
    kind: str, over: bool, tmp_path: Path
) -> None:
    given = folder_to_import(tmp_path / "given")
    root = tmp_path / "bundle"
    if over:
        import_folder(given, root, sources(), print)
    (given / "SHA256SUMS").unlink()
    name, message = ODD_NAMES[kind]
    if kind == "clash":  # with what the bundle holds
        (given / "scenarios/notes/a 1.txt").rename(given / name)
    else:
        (given / "scenarios/odd").mkdir()
        for file in ("k.txt", name):
            (given / "scenarios/odd" / file).write_text("x")
    if kind == "clash" and not over:
        import_folder(given, root, sources(), print)
        return
    with pytest.raises(PrerequisiteError, match=message):
        import_folder(given, root, sources(), print)
    assert root.exists() == over
    assert not over or not compare_files(root, read_manifest(root))


@pytest.mark.parametrize(
    ("encoding", "more", "said"),
    [
        ("utf-8-sig", "", None),
        ("utf-16", "", "SHA256SUMS: is not UTF-8 text"),
        ("utf-8", f"{digest(b'')}  ../../etc/passwd\n", "line 7"),
    ],
)
def test_a_sums_file_of_powershell_is_read_and_one_that_leads_elsewhere_is_not(
    encoding: str, more: str, said: str | None, tmp_path: Path
) -> None:
    given = folder_to_import(tmp_path / "given")
    sums = given / "SHA256SUMS"
    sums.write_bytes((sums.read_text() + more).replace("\n", "\r\n").encode(encoding))
    if said is None:
        import_folder(given, tmp_path / "bundle", sources(), print)
        return
    with pytest.raises(PrerequisiteError, match=said):
        import_folder(given, tmp_path / "bundle", sources(), print)
    assert not (tmp_path / "bundle").exists()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    with pytest.raises(ConfigError, match="nothing to import"):
        import_folder(tmp_path / "given", tmp_path / "bundle", sources(), print)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"thesis\.txt"):
        import_folder(folder_to_import(tmp_path / "given"), tmp_path / "mine", sources(), print)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_program_among_the_data_is_not_executed(tmp_path: Path) -> None:
    """Neither one of the data set's name, which the `datasets` package looks for, nor one that the table expects."""
    given = folder_to_import(tmp_path / "given")
    trace = tmp_path / "trace"
    (given / "SHA256SUMS").unlink()
    (given / "hub/org/Some-Calc/Some-Calc.py").write_text(scripted(trace))
    for expected in (False, True):
        table = sources()
        calc = table.tasks["calc"]
        hub = tuple(dataset.model_copy(update={"script": expected}) for dataset in calc.hub)
        table = table.model_copy(
            update={"tasks": {**table.tasks, "calc": calc.model_copy(update={"hub": hub})}}
        )
        root = tmp_path / f"bundle{expected}"
        manifest = import_folder(given, root, table, print)
        assert not trace.exists()
        assert "calc" in manifest.tasks
        assert not list(root.rglob("*.py"))


def test_a_program_without_data_is_refused(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    trace = tmp_path / "trace"
    (given / "SHA256SUMS").unlink()
    for name in ("README.md", "t.parquet"):
        (given / "hub/org/Some-Calc" / name).unlink()
    (given / "hub/org/Some-Calc/Some-Calc.py").write_text(scripted(trace))
    with pytest.raises(
        PrerequisiteError,
        match=naming("Some-Calc.py", "not executed", "as Parquet"),
    ):
        import_folder(given, tmp_path / "bundle", sources(), print)
    assert not trace.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_what_is_found_in_a_file_or_a_folder(tmp_path: Path) -> None:
    rows = [afrimed_row(2), afrimed_row(3), afrimed_row(4, question_type="saq")]
    file = write_csv(tmp_path / "a.csv", rows)
    says(describe_choice_file(file, "afrimed_qa", "x"), "2 questions", "a.csv", "1 rows")
    assert (
        describe_choice_file(write_csv(tmp_path / "b.csv", rows[:2]), "afrimed_qa", "x")
        == "2 questions in b.csv"
    )
    write_json(tmp_path / "careqa" / "CareQA_es.json", [careqa_row(1)])
    each_says(
        describe_choice_files(tmp_path, load_sources()), ["careqa: 1 questions", "CareQA_es.json"]
    )


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    file = write_json_lines(
        tmp_path / "a.jsonl", [{**medxpertqa_row(number), "label": "?"} for number in range(12)]
    )
    with pytest.raises(PrerequisiteError) as raised:
        describe_choice_file(file, "medxpertqa", "https://x/a.jsonl")
    first, second, *_, last = str(raised.value).splitlines()
    says(first, "https://x/a.jsonl", "form medxpertqa")
    says(second, "line 1", "column label", "A, B, C, D")
    says(last, "2 more mistakes")


def test_an_import_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_json(
        tmp_path / "given" / "scenarios" / "careqa" / "CareQA_en.json",
        [{**careqa_row(1), "cop": 7}],
    )
    told = r"CareQA_en.json: is not of the form careqa\n  row 1, column cop: must be"
    with pytest.raises(PrerequisiteError, match=told):
        import_folder(tmp_path / "given", tmp_path / "bundle", load_sources(), print)
    assert not (tmp_path / "bundle").exists()


def of_one_file(origin: Origin, content: bytes) -> Sources:
    origin.altered["/q/a.json"] = (200, content, {})
    task = {
        "scenario": "one",
        "files": [{"path": "a.json", "url": "{raw}/q/a.json", "form": "careqa"}],
    }
    table = {
        "format": 1,
        "origins": {"raw": "https://x"},
        "tasks": {"one": task},
        "tiktoken": {},
        "nltk": {},
    }
    return Sources.model_validate(table).with_origins({"raw": origin.url})


def test_a_pull_says_how_many_questions_came(tmp_path: Path, origin: Origin) -> None:
    said: list[str] = []
    content = write_json(tmp_path / "a.json", [careqa_row(1), careqa_row(2)]).read_bytes()
    pull(["one"], tmp_path / "b", of_one_file(origin, content), said.append)
    says(said, "one: pulled", "2 questions", "a.json", "1 file")


def test_a_pull_of_another_form_is_refused(tmp_path: Path, origin: Origin) -> None:
    with pytest.raises(
        PrerequisiteError,
        match=naming("one: not pulled", "nothing was written", "form careqa"),
    ):
        pull(["one"], tmp_path / "b", of_one_file(origin, b'[{"question": "x"}]'), print)
    assert not (tmp_path / "b").exists()
