"""Messages about a user's own data before anything is asked: invented data in each layout, with a mistake."""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest

from builders import evaluation
from eval_factory.config.own_data import own_data_faults
from eval_factory.tasks.framework import load_framework
from facts import says
from invented_benchmarks import MAKERS

Break = Callable[[Path], object]
OWN = [
    name
    for name in MAKERS
    if (task := load_framework().task(name)) and "data_path" in task.helm.parameters
]


def faults_of(task: str, extra: dict[str, str]) -> str:
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    found = evaluation({"config.type": task, **flags})
    return "\n".join(own_data_faults(found))


@pytest.mark.parametrize("task", OWN)
def test_good_data_are_good(task: str, tmp_path: Path) -> None:
    assert faults_of(task, MAKERS[task](tmp_path / "own", tmp_path / "scenarios").extra) == ""


def _clear(*rows: tuple[Any, Any]) -> Break:
    def write(folder: Path) -> None:
        book = openpyxl.Workbook()
        for row in [("text", "result_human"), *rows]:
            book.active.append(row)
        book.save(folder / "unemployment.xlsx")

    return write


def _write(name: str, text: str | bytes) -> Break:
    return lambda folder: (folder / name).write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )


def _table(name: str, separator: str = "\t", **changes: Any) -> Break:
    """Change the first row of a table."""

    def write(folder: Path) -> None:
        frame = pd.read_csv(folder / name, sep=separator, dtype=str)
        for column, value in changes.items():
            frame.loc[0, column] = value
        frame.to_csv(folder / name, sep=separator, index=False, quoting=csv.QUOTE_MINIMAL)

    return write


def _parquet(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Break:
    return lambda folder: change(pd.read_parquet(folder / name)).to_parquet(folder / name)


LABELS = "labels/guo_icu/labels.parquet"
HEADER = "prompt,context,label\n"
XML = '<PatientMatching><TEXT>x</TEXT><TAGS><{tag} met="{met}"/></TAGS></PatientMatching>'

BROKEN: list[tuple[str, str, Break, str]] = [
    (
        "clear",
        "cell without a label",
        _clear(("note", 1), ("note", None)),
        "row 3, column result_human: must be 1, 0 or 2",
    ),
    (
        "clear",
        "label in words",
        _clear(("note", "yes")),
        "row 2, column result_human: must be 1, 0 or 2",
    ),
    ("clear", "no note", _clear((None, 1)), "row 2, column text: is empty"),
    ("clear", "header only", _clear(), "unemployment.xlsx: has no row that can be asked"),
    (
        "clear",
        "no spreadsheet",
        _write("unemployment.xlsx", "text,result_human\n"),
        "unemployment.xlsx: cannot be read",
    ),
    (
        "shc_bmt_med",
        "label",
        _write("own.csv", HEADER + "a,b,A\na,c,yes\n"),
        "own.csv: row 2 (line 3), column label: must be A or B",
    ),
    (
        "shc_bmt_med",
        "column",
        _write("own.csv", "prompt,contxt,label\na,b,A\n"),
        "has no column context; it has prompt, contxt, label",
    ),
    ("shc_bmt_med", "C", _write("own.csv", HEADER + "a,b,C\n"), "column label: must be A or B"),
    (
        "shc_bmt_med",
        "short row",
        _write("own.csv", HEADER + "a,b\n"),
        "row 1 (line 2): has no text in column label",
    ),
    (
        "shc_bmt_med",
        "header only",
        _write("own.csv", HEADER),
        "own.csv: has no row that can be asked",
    ),
    ("shc_bmt_med", "empty", _write("own.csv", ""), "own.csv: is empty"),
    (
        "shc_bmt_med",
        "mark",
        _write("own.csv", "\ufeff" + HEADER + "a,b,A\n"),
        "starts with a byte-order mark, and HELM then finds no",
    ),
    (
        "shc_bmt_med",
        "latin-1",
        _write("own.csv", HEADER.encode() + "a,naïve,A\n".encode("latin-1")),
        "own.csv: line 2: is not UTF-8",
    ),
    (
        "shc_bmt_med",
        "gzip",
        _write("own.csv", gzip.compress(HEADER.encode())),
        "own.csv: is compressed by gzip, not text; unpack it first",
    ),
    (
        "shc_ent_med",
        "no labels",
        _write("own.csv", HEADER + "a,b,\n"),
        "has no row that can be asked (with label)",
    ),
    ("starr_patient_instructions", "no QC", _table("starr.csv", ",", QC="FALSE"), ""),
    (
        "chw_care_plan",
        "no notes",
        _write("plans.csv", "MO Note,x\nNA,1\n,2\n"),
        "has no row that can be asked (with MO Note)",
    ),
    (
        "mental_health",
        "no gold",
        _table("dialogues.csv", ",", gold_counselor_response=""),
        "row 1, column gold_counselor_response: is empty",
    ),
    ("mimic_bhc", "empty", _write("bhc.jsonl", ""), "bhc.jsonl: is empty"),
    ("mimic_bhc", "a list", _write("bhc.jsonl", "[1, 2]\n"), "line 1 is not an object"),
    (
        "mimic_bhc",
        "blank line",
        _write("bhc.jsonl", '{"input": "a", "target": "b"}\n\n'),
        "line 2 is not JSON",
    ),
    (
        "mimic_bhc",
        "another key",
        _write("bhc.jsonl", '{"input": "a", "summary": "b"}\n'),
        "line 1: has no text in column target",
    ),
    (
        "mimic_bhc",
        "all empty",
        _write("bhc.jsonl", '{"input": null, "target": "b"}\n'),
        "has no row that can be asked",
    ),
    (
        "mimic_rrs",
        "lengths",
        _write("test.impression.tok", "x\n"),
        "test.findings.tok: has 6 lines, and test.impression.tok has 1",
    ),
    (
        "mimic_rrs",
        "nothing",
        _write("test.impression.tok", "\n" * 6),
        "has no line that has text both in this file and in test.impression.tok",
    ),
    (
        "mimic_rrs",
        "latin-1",
        _write("test.impression.tok", b"\xef\n" * 6),
        "test.impression.tok: line 1: is not UTF-8",
    ),
    (
        "n2c2_ct_matching",
        "no tag",
        _write("test/2.xml", XML.format(tag="ABDOMINAL", met="met")),
        "2.xml: has no element TAGS/ENGLISH",
    ),
    (
        "n2c2_ct_matching",
        "value",
        _write("test/2.xml", XML.format(tag="ENGLISH", met="yes")),
        "its met must be met or not met",
    ),
    ("n2c2_ct_matching", "no XML", _write("test/2.xml", "not xml"), "2.xml: is not XML"),
    (
        "medalign",
        "no records",
        lambda folder: shutil.rmtree(folder / "medalign_ehr_xml"),
        "medalign_ehr_xml/*: there is no such file",
    ),
    (
        "medalign",
        "no question",
        _table("clinician-reviewed-model-responses.tsv", question=""),
        "row 1, column question: is empty",
    ),
    (
        "medalign",
        "no answers",
        lambda folder: _all_annotators(folder, "Annotator_2"),
        "has no row that can be asked (whose annotator_num is Annotator_1)",
    ),
    (
        "ehrshot",
        "no rows",
        _parquet(LABELS, lambda labels: labels[:0]),
        "labels.parquet: has no rows",
    ),
    (
        "ehrshot",
        "no label",
        _parquet(LABELS, lambda labels: labels.assign(boolean_value=None)),
        "row 1, column boolean_value: is empty",
    ),
    (
        "ehrshot",
        "times",
        _parquet(LABELS, lambda labels: labels.astype({"prediction_time": str})),
        "column prediction_time: must hold timestamps",
    ),
    (
        "mimiciv_billing_code",
        "no text",
        lambda folder: _feather_without_text(folder),
        "codes.feather: row 2, column text: is empty",
    ),
    (
        "dischargeme",
        "cut off",
        lambda folder: _cut_off(folder, "radiology.csv.gz"),
        "radiology.csv.gz: cannot be read: EOFError",
    ),
]


def _all_annotators(folder: Path, name: str) -> None:
    file = folder / "clinician-instruction-responses.tsv"
    file.write_text(file.read_text().replace("Annotator_1", name))


def _feather_without_text(folder: Path) -> None:
    frame = pd.read_feather(folder / "codes.feather")
    frame.loc[1, "text"] = None
    frame.to_feather(folder / "codes.feather")


def _cut_off(folder: Path, name: str) -> None:
    file = folder / "files" / "discharge-me" / "1.3" / "test_phase_1" / name
    file.write_bytes(file.read_bytes()[:-12])


@pytest.mark.parametrize(
    ("task", "break_it", "message"),
    [
        pytest.param(task, break_it, message, id=f"{task}: {what}")
        for task, what, break_it, message in BROKEN
    ],
)
def test_a_mistake_is_named_with_the_layout(
    task: str, break_it: Break, message: str, tmp_path: Path
) -> None:
    extra = MAKERS[task](tmp_path / "own", tmp_path / "scenarios").extra
    break_it(tmp_path / "own")
    found = faults_of(task, extra)
    if not message:  # one bad row among good ones, which HELM leaves out
        assert not found
        return
    assert message in found
    assert found.startswith("config.params.extra.data_path: ")
    assert f"{task} needs:\n  data_path" in found


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "there is no such folder"),
        ("file", "is a file, not the folder"),
        ("data", "test.findings.tok: there is no such file"),
    ],
)
def test_a_path_that_leads_elsewhere(path: str, said: str, tmp_path: Path) -> None:
    MAKERS["mimic_rrs"](tmp_path / "data" / "own", tmp_path / "scenarios")
    (tmp_path / "file").touch()
    assert said in faults_of("mimic_rrs", {"data_path": str(tmp_path / path)})


def test_cells_are_never_quoted_and_a_run_entry_has_the_layout_of_our_task(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(HEADER + "a,secret one,secret two\n" * 30)
    found = faults_of("shc_bmt_med", {"data_path": str(file)})
    assert "secret" not in found
    says(found, "20 more mistakes")
    file.write_text(HEADER)
    of_entry = faults_of(f"helm:shc_bmt_med:data_path={file}", {})
    says(of_entry, f"config.type: data_path: {file}: ", "no row")


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("shc_bmt_med", "own", HEADER + "a,b,A\n"),
        ("shc_bmt_med", "own.csv", HEADER + 'a,"' + "x " * 200_000 + '",A\n'),
        ("shc_ent_med", "own.csv", HEADER + "a,b,\na,b,C\n"),
        ("chw_care_plan", "plans.csv", "\ufeffMO Note\nFever\n"),
        ("chw_care_plan", "plans.csv.gz", gzip.compress(b"MO Note\nFever\n", mtime=0)),
        (
            "starr_patient_instructions",
            "starr.csv",
            (
                "\ufeffid,QC,Diagnosis,ActualProcedure,HistoryPhysicalNoteText,OperativeNoteText,DischargeInstructionNoteText\n"
                "1,true,a,b,c,d,e\n2,FALSE,,,,,\n"
            ),
        ),
    ],
)
def test_what_helm_reads_is_not_refused(
    task: str, name: str, content: str | bytes, tmp_path: Path
) -> None:
    """No suffix, a long cell, rows that are not asked, a byte-order mark where it does no harm, gzip for pandas."""
    _write(name, content)(tmp_path)
    assert faults_of(task, {"data_path": str(tmp_path / name)}) == ""
