"""A user's own benchmark: what is said of each mistake, and what is known of one that has none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import identity_of, make_plan
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.framework import Task, load_framework
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, jury_form_of
from facts import each_says, naming, says

DOCUMENT: dict[str, Any] = {
    "name": "mine",
    "description": "d",
    "prompt_file": "prompt.txt",
    "dataset_file": "data.csv",
    "metrics": [{"name": "exact_match"}],
}
PROMPT = "Say A or B.\n{question} {{json}}\n"
DATA = 'question,correct_answer,incorrect_answers\nOne?,A,"[""B""]"\nTwo?,B,"[""A""]"\n'
JUDGE_PROMPT = (
    "Rate {RESPONSE} to {QUESTION}; right is {GOLD_RESPONSE}. A visit costs $$5.\n"
    '<rubric_criteria>\n{"accuracy": ["score", "explanation"]}\n</rubric_criteria>\n{"accuracy": {"score": 3}}\n'
)
JURY = {"metrics": [{"name": "jury_score", "prompt_file": "judge.txt"}]}


def write(
    folder: Path,
    document: Any = None,
    prompt: str | bytes = PROMPT,
    data: str | bytes = DATA,
    judge: str | None = JUDGE_PROMPT,
) -> Path:
    """The files of a benchmark; what is given in `document` takes the place of DOCUMENT's, None takes it away."""
    for name, content in (("prompt.txt", prompt), ("data.csv", data), ("judge.txt", judge)):
        if content is not None:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    path = folder / "bench.yaml"
    merged = {**DOCUMENT, **(document or {})}
    path.write_text(
        yaml.safe_dump({name: value for name, value in merged.items() if value is not None})
    )
    return path


def problems(folder: Path, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        load_benchmark(write(folder, *args, **kwargs))
    return str(raised.value).replace(str(folder), "D")


def test_a_sound_one(tmp_path: Path) -> None:
    found = load_benchmark(write(tmp_path, {"max_tokens": 7}))
    assert (found.name, found.main_metric, found.instances, found.max_tokens) == (
        "mine",
        "exact_match",
        2,
        7,
    )
    assert found.prompt_file == tmp_path / "prompt.txt"
    (note,) = found.notes
    says(note, "1 of 2 rows", "data.csv (first")
    assert not found.has_jury
    assert found.sha256["data.csv"] == hashlib.sha256(DATA.encode()).hexdigest()
    assert sorted(found.sha256) == ["bench.yaml", "data.csv", "prompt.txt"]
    several = {"metrics": [{"name": "rouge_l"}, {"name": "exact_match"}]}
    assert (
        load_benchmark(write(tmp_path, several, data="question,correct_answer\nx,A\n")).main_metric
        == "rouge_l"
    )
    # of another editor
    long = DATA.replace("One?", "x" * 200_000).replace("\n", "\r\n").encode("utf-8-sig")
    assert load_benchmark(write(tmp_path, data=long)).instances == 2


def task_of(bench: Path) -> Task:
    return evaluation({"config.type": "custom", "config.params.extra.benchmark": str(bench)}).task


@pytest.mark.parametrize("document", [{}, JURY])
def test_a_column_names_the_sources_that_rows_share(
    document: dict[str, Any], tmp_path: Path
) -> None:
    data = "cluster,question,correct_answer\nnote 1,One?,A\nnote 1,Two?,B\n"
    bench = write(tmp_path, document, data=data)
    assert load_benchmark(bench).has_clusters
    cluster = task_of(bench).helm.cluster
    assert cluster is not None
    assert (cluster.field, cluster.what) == ("cluster", "column cluster")
    without = write(tmp_path, document, data="question,correct_answer\nOne?,A\n")
    assert not load_benchmark(without).has_clusters
    assert task_of(without).helm.cluster is None


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "name": "my bench",
        "descripton": "x",
        "max_tokens": 0,
        "metrics": [{"nam": "x"}],
    }
    said = problems(tmp_path, document)
    for expected in ("unknown key descripton", "max_tokens: must be", "unknown key metrics.0.nam"):
        assert expected in said
    document = {
        "metrics": [{"name": "exact_mach"}, {"name": "jury_score", "prompt_file": "judge.txt"}]
    }
    said = problems(
        tmp_path,
        document,
        prompt="{nothing}",
        data="question,correct_answer\nOne?,\n",
        judge="Rate.",
    )
    for expected in (
        "metrics.0.name: HELM's configurable",
        "D/judge.txt: must hold {RESPONSE}",
        "{nothing} is not a column of D/data.csv",
        "column correct_answer: is empty",
    ):
        assert expected in said
    without = problems(
        tmp_path, {"name": None, "prompt_file": 7, "dataset_file": None, "metrics": "x"}
    )
    keys = ["dataset_file", "metrics", "name", "prompt_file"]
    assert sorted(line.split(": ")[1] for line in without.splitlines()) == keys


@pytest.mark.parametrize(
    ("prompt", "row", "said"),
    [
        ("{question}", "  ,x", "column question"),
        ("{question} {context}", ",x", "column question"),
        ("{text} {context}", " , ", "column text and context"),
        ("{question} {context}", "One?,", None),
        ("{text} {context}", ",c", None),
    ],
)
def test_an_empty_question_is_a_mistake_and_an_empty_context_is_none(
    prompt: str, row: str, said: str | None, tmp_path: Path
) -> None:
    data = f"{'question' if 'question' in prompt else 'text'},context,correct_answer\nOne?,c,A\n{row},A\n"
    if said is None:
        assert load_benchmark(write(tmp_path, prompt=prompt, data=data)).instances == 2
        return
    says(problems(tmp_path, prompt=prompt, data=data), "D/data.csv: row 2", "(line 3)", "is empty")
    assert said in problems(tmp_path, prompt=prompt, data=data)


IN_THE_YAML: list[tuple[Any, str]] = [
    ({"promt_file": "x"}, "unknown key promt_file, did you mean 'prompt_file'?"),
    ({"name": None}, "name: is missing"),
    ({"name": "my bench"}, "name: must be letters, digits, - _ and ."),
    ({"name": 7}, "name: must be text (put it in quotes)"),
    ({"description": ""}, "description: must not be empty"),
    ({"max_tokens": 0}, "max_tokens: must be greater than or equal to 1"),
    ({"metrics": None}, "metrics: is missing"),
    ({"metrics": []}, "metrics: must not be empty"),
    ({"metrics": "exact_match"}, "metrics: must be a list"),
    ({"metrics": ["exact_match"]}, "metrics.0: must be a mapping such as {name: exact_match}"),
    ({"metrics": [{"name": "exact_mach"}]}, "no metric 'exact_mach', did you mean 'exact_match'?"),
    (
        {"metrics": [{"name": "zzz"}]},
        "no metric 'zzz'; its metrics: exact_match, jury_score, rouge_1",
    ),
    (
        {"metrics": [{"name": "rouge_l"}, {"name": "rouge_l"}]},
        "metrics.1.name: rouge_l is listed twice",
    ),
    (
        {"metrics": [{"name": "exact_match"}, {"name": "rouge_l"}]},
        "HELM's rouge_l counts an incorrect answer as right, like the correct one",
    ),
    ({"metrics": [{"name": "BERTScore-F"}]}, "only if torch finds a GPU"),
    (
        {"metrics": [{"name": "jury_score"}]},
        "metrics.0.prompt_file: is missing; jury_score needs the judges' prompt",
    ),
    (
        {"metrics": [{"name": "rouge_l", "prompt_file": "judge.txt"}]},
        "only jury_score has prompt_file and judges",
    ),
    (
        {"prompt_file": "no.txt"},
        "D/no.txt: there is no such file; D/bench.yaml names it as prompt_file",
    ),
    (
        {"dataset_file": "no.csv"},
        "D/no.csv: there is no such file; D/bench.yaml names it as dataset_file",
    ),
    ({"dataset_file": "."}, "D: cannot be read: Is a directory"),
    (
        {"metrics": [{"name": "jury_score", "prompt_file": "no.txt"}]},
        "D/no.txt: there is no such file; D/bench.yaml names it as the judges' prompt_file",
    ),
]
IN_THE_PROMPT: list[tuple[Any, str]] = [
    (
        "{qestion}",
        "D/prompt.txt: {qestion} is not a column of D/data.csv, did you mean 'question'?",
    ),
    (
        "{zzz}",
        "{zzz} is not a column of D/data.csv; it has question, correct_answer, incorrect_answers",
    ),
    ("a\n{question.x}", "line 2: {question.x} is not the name of a column"),
    ("{question}\n\n{}", "{} is not the name of a column"),
    ("{question!r}", "line 1: {question!r} is not the name of a column"),
    ("{question}\na } b", "D/prompt.txt: has an unmatched brace"),
    ("{question} {{\nx {", "has an unmatched brace"),
    ("no braces", "names no column in braces, so every instance would be the same"),
    (" \n", "D/prompt.txt: is empty"),
    (b"{question}\n\xe9", "D/prompt.txt: line 2: is not UTF-8; save the file as UTF-8"),
    ("\ufeff{question}", "begins with a byte order mark"),
    ("{question}\na\0b", "D/prompt.txt: line 2: holds a NUL character"),
    ("{question}".encode("utf-16"), "D/prompt.txt: is UTF-16, not UTF-8"),
]
IN_THE_TABLE: list[tuple[Any, str]] = [
    ("", "D/data.csv: has no rows; the first line names the columns"),
    ("question,correct_answer\n", "D/data.csv: has no rows below its first line"),
    (
        "question,corect_answer\nOne?,A\n",
        "has no column correct_answer, which exact_match needs, did you mean 'corect_answer'?",
    ),
    (
        "question,correct_answer\nOne?,A\nTwo?, \n",
        "row 2 (line 3), column correct_answer: is empty",
    ),
    ("question,question,correct_answer\n1,2,3\n", "line 1: two columns have the name 'question'"),
    ("question,,correct_answer\n1,2,3\n", "line 1: column 2 has no name"),
    (
        "question,correct_answer\nOne, two?,A\n",
        "row 1 (line 2): has 3 cells, but the first line names 2 columns",
    ),
    (
        'question,correct_answer\nOne?,A\n\n"a\r\nb","A\nTwo?,A\n' + "x,A\n" * 50_000,
        "row 2 (line 4): the row that begins here is not CSV (unexpected end of data): a quote that opens a cell is not closed",
    ),
    (
        'question,correct_answer\n"One?,A\nTwo?,A\n"Three?",A\n',
        "row 1 (line 2): the row that begins here is not CSV",
    ),
    (
        'question,"correct_answer\nOne?,A\n',
        "D/data.csv: line 1: the row that begins here is not CSV",
    ),
    ("question,correct_answer\nOne?,A\na\0b,A\n", "line 3: holds a NUL character"),
    ("question,correct\0_answer\nOne?,A\n", "D/data.csv: line 1: holds a NUL character"),
    (
        "question|correct_answer\nOne two?|A\n",
        "D/data.csv: its columns are separated by bars; save it as CSV with commas",
    ),
    ('{"question": "One?", "correct_answer": "A"}\n', "D/data.csv: is JSON, not CSV"),
    ('[\n  {"question": "One?"}\n]\n', "D/data.csv: is JSON, not CSV"),
    (
        b"PK\x03\x04\x14\x00\x06\x00\x08\x00 \xff",
        "D/data.csv: line 1: is not a workbook that can be read",
    ),
    (
        "id,question,correct_answer\n1,One?,A\n2,Two?,A\n1,Three?,A\n",
        "row 3 (line 4), column id: is the same as in row 1",
    ),
    ("id,question,correct_answer\n1,One?,A\n,Two?,A\n", "row 2 (line 3), column id: is empty"),
    (
        "cluster,question,correct_answer\na,One?,A\n ,Two?,A\n",
        "row 2 (line 3), column cluster: is empty; write the name of the source",
    ),
    (
        DATA + "Three?,A,B\n",
        'row 3 (line 4), column incorrect_answers: must be a JSON list of texts such as ["B", "C"], or [] for none',
    ),
    (DATA + "Three?,A,\n", "column incorrect_answers: must be a JSON list of texts"),
    (DATA + 'Three?,A,"{""B"": 1}"\n', "column incorrect_answers: must be a JSON list of texts"),
    (DATA + 'Three?,A,"[""B"", 3]"\n', "column incorrect_answers: must be a JSON list of texts"),
    (DATA + 'Three?,A,"[""B"", ""A ""]"\n', "column incorrect_answers: holds the correct_answer"),
    (
        'question,correct_answer\n"One\nand\na half?",A\nTwo?,\n',
        "row 2 (line 5), column correct_answer",
    ),
]
IN_THE_JUDGES_PROMPT: list[tuple[Any, str]] = [
    (
        JUDGE_PROMPT.replace("{RESPONSE}", "it"),
        "D/judge.txt: must hold {RESPONSE}, the answer to judge",
    ),
    (JUDGE_PROMPT.replace("$$5", "$5"), "D/judge.txt: line 1: write $$ for a dollar sign"),
    (
        JUDGE_PROMPT.replace("{QUESTION}", "{question}"),
        "line 1: {question} is not filled in by HELM",
    ),
    ("{RESPONSE}", "names no criteria; it needs a block such as <rubric_criteria>"),
    (
        "{RESPONSE}\n<rubric_criteria>{a}</rubric_criteria>",
        "line 2: the text in <rubric_criteria> is not a JSON object",
    ),
    ("{RESPONSE}<rubric_criteria>{}</rubric_criteria>", "<rubric_criteria> names no criterion"),
    (
        JUDGE_PROMPT.replace('"score", ', ""),
        "the criterion 'accuracy' must have a list of fields, 'score' among them",
    ),
    (
        JUDGE_PROMPT.replace('["score", "explanation"]', '"score"'),
        "the criterion 'accuracy' must have a list",
    ),
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(({"document": document}, said) for document, said in IN_THE_YAML),
        *(({"prompt": prompt}, said) for prompt, said in IN_THE_PROMPT),
        *(({"data": data}, said) for data, said in IN_THE_TABLE),
        *(({"document": JURY, "judge": judge}, said) for judge, said in IN_THE_JUDGES_PROMPT),
    ],
)
def test_a_mistake_is_said_with_its_place(
    tmp_path: Path, given: dict[str, Any], expected: str
) -> None:
    assert expected in problems(tmp_path, **given)


CHOICES = "{question}\nA. {a}\nB. {b}\nC. {c}\nLetter:"
COLUMNS = "question,a,b,c,correct_answer\n"


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ("ABC", {}),
        ("AE", {2: "E"}),
        ("E", {1: "E"}),
        (["A", "(B)", "B."], {}),  # each is mapped to its letter
        (["A", "(B)", "D."], {2: "(B)", 3: "D."}),
        (["A", "fever", "rash", " B "], {3: "rash"}),  # "fever" is an option's text
        (["A", "Y"], {2: "Y"}),
        (["Y", "N", "T"], {}),
        (["rash", "gout", "flu"], {1: "rash", 2: "gout", 3: "flu"}),
    ],
)
def test_a_right_answer_that_no_option_has_is_refused_with_its_row(
    answers: Any, wrong: dict[int, str], tmp_path: Path
) -> None:
    data = COLUMNS + "".join(
        f"Q{number}?,fever,cough,pain,{answer}\n" for number, answer in enumerate(answers)
    )
    if not wrong:
        assert load_benchmark(write(tmp_path, prompt=CHOICES, data=data)).instances == len(answers)
        return
    told = problems(tmp_path, prompt=CHOICES, data=data).splitlines()
    (problem,) = told
    rows = ", ".join(map(str, wrong))
    says(problem, rows, "D/data.csv: ", "column correct_answer", "A, B, C", "write the letter")


def test_the_options_are_those_of_the_row(tmp_path: Path) -> None:
    data = COLUMNS + "Q1?,fever,cough,pain,C\nQ2?,fever,cough,,C\n"
    told = problems(tmp_path, prompt=CHOICES, data=data)
    says(told, "row 2 (line 3)", "column correct_answer", "option C", "is empty")
    rouge = {"metrics": [{"name": "rouge_l"}]}
    # nothing has to be equal
    assert load_benchmark(write(tmp_path, rouge, prompt=CHOICES, data=data)).instances == 2
    beside = 'question,correct_answer,incorrect_answers\nQ?,b,"[""A"", ""C""]"\n'
    says(
        problems(tmp_path, data=beside),
        "row 1 (line 2)",
        "column correct_answer",
        "is no letter",
    )
    words = 'question,correct_answer,incorrect_answers\nQ?,b,"[""A"", ""rash""]"\nQ?,A,[]\n'
    assert load_benchmark(write(tmp_path, data=words)).instances == 2


def test_right_answers_in_one_known_form_are_mapped_and_said_to_be(tmp_path: Path) -> None:
    for answers, form in (("123", "numbers from 1"), (["opa", "opb"], "after a word")):
        data = COLUMNS + "".join(f"Q{answer}?,fever,cough,pain,{answer}\n" for answer in answers)
        (note,) = load_benchmark(write(tmp_path, prompt=CHOICES, data=data)).notes
        says(note, "correct_answer", form)
    same = COLUMNS + "Q?,fever,fever,pain,A\n"
    note = load_benchmark(write(tmp_path, prompt=CHOICES, data=same)).notes[0]
    says(note, "row 1", "options A and B")


OWN = {
    "name": "jury_score",
    "prompt_file": "judge.txt",
    "scale": {"min": 0, "max": 10},
    "criteria": [{"name": "a"}],
}
PLACES = "Rate {RESPONSE} by {SCALE}:\n{CRITERIA}\n"
BLOCK = '<rubric_criteria>{"%s": ["score"]}</rubric_criteria>'


@pytest.mark.parametrize("judge", [PLACES, f"{{RESPONSE}} {BLOCK % 'a'}"])
def test_a_jury_with_a_scale_and_criteria_of_its_own(tmp_path: Path, judge: str) -> None:
    assert load_benchmark(
        write(tmp_path, {"metrics": [OWN]}, judge=judge)
    ).jury_form == jury_form_of(OWN)
    assert load_benchmark(write(tmp_path, JURY)).jury_form == HELMS_JURY_FORM


def test_own_ones_are_another_run(tmp_path: Path) -> None:
    judge = f"{{RESPONSE}} {BLOCK % 'a'}"
    known = set()
    for own in (
        {},
        {"scale": {"min": 0, "max": 10}},
        {"criteria": [{"name": "a"}]},
        {"scale": {"no": 0, "yes": 1}},
    ):
        path = write(tmp_path, {"metrics": [{**JURY["metrics"][0], **own}]}, judge=judge)
        known.add(identity_of(evaluation(custom(path))))
    assert len(known) == 4


@pytest.mark.parametrize(
    ("metric", "judge", "expected"),
    [
        (
            {"scale": {"min": 3, "max": 1}},
            JUDGE_PROMPT,
            "D/bench.yaml: metrics.0.scale: max must be above min",
        ),
        ({"criteria": []}, JUDGE_PROMPT, "D/bench.yaml: metrics.0.criteria: must not be empty"),
        (
            {"criteria": [{"name": "tone"}]},
            JUDGE_PROMPT,
            "D/judge.txt: line 2: <rubric_criteria> names accuracy, and the jury's metric has the criteria tone; name",
        ),
        (
            {"criteria": [{"name": "tone"}]},
            JUDGE_PROMPT + "{CRITERIA}",
            (
                "D/judge.txt: line 6: {CRITERIA} is replaced by text with <rubric_criteria>, which "
                "the prompt has already; delete one of the two"
            ),
        ),
        (
            {},
            JUDGE_PROMPT + "{SCALE}",
            (
                "D/judge.txt: line 6: {SCALE} is not filled in if the jury's metric has no scale; "
                "add that key"
            ),
        ),
        (
            {"scale": {"min": 0, "max": 1}},
            JUDGE_PROMPT + "{CRITERIA}",
            "if the jury's metric has no criteria;",
        ),
        (
            {"scale": {"min": 0, "max": 1}},
            JUDGE_PROMPT + "{RANGE}",
            "has QUESTION, RESPONSE, GOLD_RESPONSE, SCALE",
        ),
    ],
)
def test_mistakes_in_the_form_of_a_jury(
    tmp_path: Path, metric: dict[str, Any], judge: str, expected: str
) -> None:
    assert expected in problems(
        tmp_path, {"metrics": [{**JURY["metrics"][0], **metric}]}, judge=judge
    )


def test_gold_for_the_judges_needs_right_answers(tmp_path: Path) -> None:
    judge = JUDGE_PROMPT.replace("{GOLD_RESPONSE}", "unknown")
    assert (
        load_benchmark(write(tmp_path, JURY, data="question\nOne?\n", judge=judge)).instances == 1
    )
    says(
        problems(tmp_path, JURY, data="question\nOne?\n"),
        "{GOLD_RESPONSE}",
        "no column correct_answer",
    )
    wrong = problems(tmp_path, JURY, data="question,incorrect_answers\nOne?,[]\n", judge=judge)
    says(wrong, "no column correct_answer", "incorrect_answers")


def test_all_mistakes_at_once_but_not_a_thousand(tmp_path: Path) -> None:
    rows = "".join(f"{number}?,,[]\n" for number in range(1000))
    text = problems(
        tmp_path, prompt="{qestion}", data="question,correct_answer,incorrect_answers\n" + rows
    )
    says(text, "{qestion} is not a")
    says(text, "rows 1, 2, 3", "997 more", "column correct_answer", "is empty")
    assert "row 4" not in text


def test_a_message_never_quotes_a_cell(tmp_path: Path) -> None:
    rows = 'x,canary,"[""canary""]"\nx,canary,canary\nx,"canary"z,[]\n'
    text = problems(tmp_path, data=f"question,correct_answer,incorrect_answers\n{rows}")
    assert "canary" not in text
    assert "row 1" in text
    assert "row 2" in text


def test_warnings(tmp_path: Path) -> None:
    judged = {
        "name": "jury_score",
        "prompt_file": "judge.txt",
        "judges": [{"name": "x/y", "model_name": "x/y"}],
    }
    document = {"metrics": [judged, {"name": "BERTScore-F"}]}
    data = "question,correct_answer\nOne?,A\nTwo?,B\nOne?,A\n"
    notes = load_benchmark(
        write(tmp_path, document, prompt="{question} {correct_answer}", data=data)
    ).notes
    each_says(
        notes,
        ["judges", "bench.yaml", "config.params.extra.judges"],
        ["BERTScore", "GPU"],
        ["{correct_answer}", "sees the answers"],
        ["1 of 3 rows", "data.csv", "row 3 as 1"],
    )


def test_right_answers_that_are_nothing_to_the_quasi_metrics(tmp_path: Path) -> None:
    data = "question,correct_answer\nOne?,B\nTwo?,A\nThree?,the\n"
    (note,) = load_benchmark(write(tmp_path, data=data)).notes
    says(note, "2 of 3 rows", "data.csv", "row 2", "quasi metrics")
    assert (
        load_benchmark(write(tmp_path, {"metrics": [{"name": "rouge_l"}]}, data=data)).notes == ()
    )


def test_paths_are_relative_to_the_yaml(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    moved = write(tmp_path).rename(tmp_path / "deep" / "bench.yaml")
    text = (
        moved.read_text()
        .replace("prompt.txt", "../prompt.txt")
        .replace("data.csv", f"{tmp_path}/data.csv")
    )
    moved.write_text(text)
    found = load_benchmark(moved)
    assert found.prompt_file == tmp_path / "prompt.txt"
    assert set(found.sha256) == {"bench.yaml", "../prompt.txt", "../data.csv"}


def custom(path: Path, **more: Any) -> dict[str, Any]:
    return {"config.type": "custom", "config.params.extra.benchmark": str(path), **more}


def test_the_task_that_it_is(tmp_path: Path) -> None:
    plain = evaluation(custom(write(tmp_path)))
    assert (plain.task.name, plain.run.config.type) == ("custom.mine", "custom")
    assert (plain.task.helm.main_metric, plain.task.helm.judges, make_plan(plain).judges) == (
        "exact_match",
        (),
        (),
    )
    folder = tmp_path / "a,b"
    folder.mkdir()
    assert evaluation(custom(write(folder))).benchmark
    with pytest.raises(ConfigError, match=naming("comma", "custom benchmarks")):
        evaluation(custom(write(folder), **{"config.output_dir": str(folder / "out")}))
    judged = evaluation(custom(write(tmp_path, JURY)))
    assert judged.task.helm.main_metric == "jury_score"
    assert [judge.role for judge in make_plan(judged).judges] == ["gpt", "llama", "claude"]


@pytest.mark.parametrize("changed", ["bench.yaml", "prompt.txt", "data.csv", "judge.txt"])
def test_the_identity_is_of_what_the_files_hold(tmp_path: Path, changed: str) -> None:
    path = write(tmp_path, JURY)
    before = identity_of(evaluation(custom(path)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert identity_of(evaluation(custom(write(elsewhere, JURY)))) == before
    file = elsewhere / changed
    file.write_text(
        file.read_text().replace("One?", "Eins?").replace("Say", "Name").replace("Rate", "Score")
        + "\n"
    )
    assert identity_of(evaluation(custom(elsewhere / "bench.yaml"))) != before


def test_where_a_relative_path_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    here = tmp_path / "here"
    home.mkdir()
    here.mkdir()
    write(home)
    config = home / "run.yml"
    config.write_text(
        "config: {type: custom, output_dir: o, params: {extra: {benchmark: bench.yaml}}}\n"
        "target: {api_endpoint: {url: 'demo://baseline', model_id: m}}\n"
    )

    def found(*overrides: str) -> str | None:
        request = RunRequest(run_config=config, overrides=overrides)
        return build_evaluation(request, load_framework(), {}).run.config.params.extra.benchmark

    monkeypatch.chdir(here)
    assert found() == str(home / "bench.yaml")
    with pytest.raises(ConfigError, match="there is no file"):
        found("config.params.extra.benchmark=bench.yaml")
    write(here)
    with pytest.raises(ConfigError, match="write the full path"):
        found()
    assert found("config.params.extra.benchmark=bench.yaml") == str(here / "bench.yaml")
    monkeypatch.chdir(home)
    assert found() == str(home / "bench.yaml")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_a_table_is_read_as_spreadsheets_write_it(encoding: str, tmp_path: Path) -> None:
    data = "sep=;\nquestion;correct_answer\nZwölf, oder?;A\nTwo?;B\n;\n;\n"
    own = load_benchmark(write(tmp_path, data=data.encode(encoding)))
    assert own.instances == 2
    assert any("Windows-1252" in note for note in own.notes) is (encoding == "cp1252")
