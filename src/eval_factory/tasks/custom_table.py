"""Checks a custom benchmark's prompt, its table row by row, and its pictures.

Messages never quote a cell and never name a picture, because both may be patient data. In the text
that HELM gets, the character `media.FILE_MARK` marks the place of each picture.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import printable
from eval_factory.core.table_files import TableError, table_rows
from eval_factory.endpoint import media
from eval_factory.tasks import file_problems
from eval_factory.tasks.choice_question import LETTERS, options_shown
from eval_factory.tasks.gold_forms import GoldForms

# matches "image", "image_2" and "image_10", but neither "image_1" nor "image_02"
_PICTURE_COLUMN = re.compile(r"image(?:_(?:[2-9]|[1-9]\d+))?")


def picture_columns(header: Iterable[str]) -> list[str]:
    """Return the columns with pictures: `image`, `image_2`, `image_3` ..."""
    return [name for name in header if _PICTURE_COLUMN.fullmatch(name)]


def filled_prompt(template: str, cells: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return a row's prompt and the columns of its pictures.

    Pictures that the template does not name are put before the text.

    Args:
        template: the prompt, with names of columns in braces.
        cells: dict from the columns to the cells of the row.

    Returns:
        The prompt, with a mark at the place of each picture, and the columns of the pictures in the
        order of the marks.
    """
    columns = picture_columns(cells)
    in_template = []
    for _text, name, _format, _conversion in string.Formatter().parse(template):
        if name in columns:
            in_template.append(name)
    before_text = [name for name in columns if name not in in_template]
    marks = dict.fromkeys(columns, "")  # a row without a picture in a column gets no mark
    for name in columns:
        if cells[name].strip():
            marks[name] = media.FILE_MARK
    text = template.format_map({**cells, **marks})
    marks_before_text = "".join(marks[name] for name in before_text)
    columns_of_marks = [name for name in (*before_text, *in_template) if marks[name]]
    return marks_before_text + text, columns_of_marks


def text_of(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return the text of a message.

    Texts next to each other are put on separate lines. There is no line break next to a picture.

    Args:
        content: a text, or a list of parts: `{"type": "text", "text": ...}`, or a picture, which
            becomes `media.FILE_MARK`.
    """
    if isinstance(content, str):
        return content
    lines = "\n".join(part.get("text", media.FILE_MARK) for part in content)
    # remove the line breaks before and after each mark
    return re.sub(f"\n?{media.FILE_MARK}\n?", media.FILE_MARK, lines)


def picture_file(folder: Path, name: str) -> Path:
    """Return the absolute path of a picture; names are relative to the benchmark's folder."""
    return Path(os.path.abspath(folder / os.path.expanduser(name.strip())))


@dataclass
class PictureCheck:
    """Checks the pictures of all rows, and counts the rows with pictures."""

    folder: Path  # the benchmark's folder
    template: str = ""  # the prompt of a table
    max_size: int = media.MAX_FILE  # the limit of a picture's file, in bytes
    row_count: int = 0  # the number of rows with pictures so far
    # the prompt of the first row with pictures, with a line for each picture
    first_prompt: str | None = None
    sha256: str = ""
    """A hash of the contents of all pictures so far: a new picture's hash is appended to this text,
    and the result is hashed again.
    """

    def problems_of_cells(self, cells: Mapping[str, str]) -> Iterator[str]:
        """Yield the problems of the pictures of a table's row.

        `cells`: dict from the columns to the cells of the row.
        """
        if not picture_columns(cells):
            return
        text, columns = filled_prompt(self.template, cells)
        pictures = [(f"column {name}", cells[name]) for name in columns]
        yield from self.problems_of(pictures, text)

    def problems_of(self, pictures: Sequence[tuple[str, str]], text: str) -> Iterator[str]:
        """Yield the problems of the pictures of a row, and count the row.

        The caller must read all problems: only then is the row counted.

        Args:
            pictures: (label for messages, name of the file) of each picture.
            text: the row's prompt, with a mark for each picture.
        """
        if not pictures:
            return
        for label, name in pictures:
            problem = self._problem_of(name)
            if problem is not None:
                yield f"{label}: the picture {problem}"
        if text.count(media.FILE_MARK) > len(pictures):
            first_label, _ = pictures[0]
            yield (
                f"{first_label}: the text holds the character U+FFFC, "
                "which marks the place of a picture; remove this character"
            )
        self.row_count += 1
        if self.first_prompt is None:
            files = []
            for _, name in pictures:
                files.append({"content_type": "image", "location": picture_file(self.folder, name)})
            self.first_prompt = media.as_text(media.parts_with_files(text, files))

    def _problem_of(self, name: str) -> str | None:
        """Return the problem of a picture; None for a usable picture, which is added to `sha256`.

        `name`: the name of the file, as the row states it.
        """
        if re.match("https?:", name.strip(), re.IGNORECASE):
            return "is a web address, which eval-factory does not download; name a file"
        file = picture_file(self.folder, name)
        try:
            facts = media.facts_of(file, self.max_size)
            if not str(facts.content_type).startswith("image/"):
                return "is not a PNG, JPEG, GIF or WebP file"
            from PIL import Image  # only here: benchmarks without pictures do not need Pillow

            with Image.open(file) as picture:
                picture.verify()
        except media.UnusableMedium as error:
            return str(error).removeprefix(file.name).strip()
        except Exception as error:  # Pillow raises exceptions of any type for a broken file
            return f"is broken ({facts.content_type}): {type(error).__name__}"
        self.sha256 = hashlib.sha256(f"{self.sha256}{facts.sha256}".encode()).hexdigest()
        return None


QUASI_METRICS = ("quasi_exact_match", "quasi_prefix_exact_match")
_PUNCTUATION = str.maketrans("", "", string.punctuation)  # for `translate`, which removes it
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def becomes_nothing(answer: str) -> bool:
    """Return True if HELM's normalize_text makes an empty text of an answer.

    normalize_text writes a text in lower case, and removes punctuation and articles.
    """
    return not _ARTICLES.sub("", answer.lower().translate(_PUNCTUATION)).strip()


def note_on_quasi(label: str) -> str:
    """Return the note on right answers that become empty; `label` names the rows."""
    exact, prefix = QUASI_METRICS
    return (
        f"{label}: HELM's quasi metrics ignore articles and punctuation, so that nothing is "
        f"left of the right answer (the letter A is an article): {prefix} counts any answer as "
        f"right there, and {exact} an answer such as 'the'; exact_match is correct"
    )


# the four columns with a meaning of their own; each is optional
ID_FIELD = "id"
CORRECT_ANSWER_FIELD = "correct_answer"
INCORRECT_ANSWERS_FIELD = "incorrect_answers"  # a JSON list of texts
CLUSTER_FIELD = "cluster"  # the source (note, patient, article) that a row shares with other rows


def header_of(path: Path, dataset_file: Path, findings: file_problems.Findings) -> list[str] | None:
    """Return the names of the columns; None if the table cannot be read or has no first line.

    Args:
        path: the benchmark's YAML file, which names the table.
        dataset_file: the table.
        findings: the lists to which problems and notes are added.
    """
    header = None
    try:
        problem = file_problems.table_problem(dataset_file)
        if problem is None:
            header = next((row for _, row in table_rows(dataset_file)), None)
            encoding_note = file_problems.encoding_note(dataset_file)
            if encoding_note is not None:
                findings.notes.append(encoding_note)
    except OSError as error:
        problem = file_problems.why_unreadable(error, "dataset_file", path)
    except TableError as error:
        problem = f"line {error.line}: {error}"
    if not header:
        if problem is None:
            problem = "has no rows; the first line names the columns"
        findings.problems.append(f"{dataset_file}: {problem}")
        return None
    for index, name in enumerate(header):
        if not name.strip():
            findings.problems.append(f"{dataset_file}: line 1: column {index + 1} has no name")
        elif name in header[:index]:
            findings.problems.append(f"{dataset_file}: line 1: two columns have the name {name!r}")
    return header


def _is_plain_name(name: str, format_spec: str | None, conversion: str | None) -> bool:
    """Return True if braces contain only a name: `{name}`.

    Python formats also allow `{row.cell}`, `{row[0]}`, `{0}`, `{name:>5}` and `{name!r}`.
    """
    if format_spec or conversion:
        return False
    has_special_character = re.search(r"[.\[\]{}]", name) is not None
    return bool(name) and not has_special_character and not name.isdigit()


def columns_of_prompt(
    path: Path, prompt_file: Path, findings: file_problems.Findings
) -> list[str] | None:
    """Return the names in the braces of the prompt, each once, in their order.

    Braces that do not name a column are reported and left out. Returns None if the prompt cannot be
    read, is empty, or has an unmatched brace. Arguments as in `header_of`.
    """
    text = file_problems.read_text(prompt_file, "prompt_file", path, findings)
    if text is None:
        return None
    if not text.strip():
        findings.problems.append(f"{prompt_file}: is empty")
        return None
    columns: list[str] = []
    try:
        for _text, name, format_spec, conversion in string.Formatter().parse(text):
            if name is None:  # the text after the last braces
                continue
            if _is_plain_name(name, format_spec, conversion):
                columns.append(name)
                continue
            in_braces = name
            if conversion:
                in_braces += f"!{conversion}"
            if format_spec:
                in_braces += f":{format_spec}"
            line = file_problems.line_number_of(text, "{" + in_braces)
            findings.problems.append(
                f"{prompt_file}: line {line}: {{{in_braces}}} is not the name of a column;"
                " write {name} for the column name, and {{ and }} for braces that stay as they are"
            )
    except ValueError:
        findings.problems.append(
            f"{prompt_file}: has an unmatched brace; "
            "write {{ and }} for braces that stay as they are"
        )
        return None
    return list(dict.fromkeys(columns))


def check_columns(
    prompt_file: Path,
    dataset_file: Path,
    columns: Sequence[str] | None,
    header: Sequence[str],
    gold_metric: str | None,
    findings: file_problems.Findings,
) -> None:
    """Check that the table has the columns that the prompt and the metrics need.

    Args:
        prompt_file: the path of the prompt, for messages.
        dataset_file: the path of the table, for messages.
        columns: the columns that the prompt names; None if the prompt cannot be read.
        header: the columns of the table.
        gold_metric: the name of a metric that needs right answers; None if there is none.
        findings: the lists to which problems and notes are added.
    """
    all_columns = ", ".join(map(printable, header))
    for name in columns or []:
        if name not in header:
            hint = did_you_mean(name, header) or f"; it has {all_columns}"
            findings.problems.append(
                f"{prompt_file}: {{{name}}} is not a column of {dataset_file}{hint}"
            )
        if name in (CORRECT_ANSWER_FIELD, INCORRECT_ANSWERS_FIELD):
            findings.notes.append(f"the prompt holds {{{name}}}, so the model sees the answers")
    names_no_column = columns is not None and not columns
    if names_no_column and not picture_columns(header):
        findings.problems.append(
            f"{prompt_file}: names no column in braces, so every instance would be the same"
        )
    if CORRECT_ANSWER_FIELD not in header and (gold_metric or INCORRECT_ANSWERS_FIELD in header):
        hint = did_you_mean(CORRECT_ANSWER_FIELD, header) or f"; it has {all_columns}"
        findings.problems.append(
            f"{dataset_file}: has no column {CORRECT_ANSWER_FIELD}, which "
            f"{gold_metric or INCORRECT_ANSWERS_FIELD} needs{hint}"
        )


_MAX_EQUAL_OPTION_NOTES = 3  # the maximum number of notes on options with the same text
_VERDICTS = frozenset(["y", "n", "t", "f", "yes", "no", "true", "false", "maybe"])
"""Right answers that judge a listed statement ("is it true?") instead of choosing an option."""


def _is_listed_without_text(answer: str, prompt: str) -> bool:
    """Return True if the answer is an option's letter without a text, as B in "A. fever\\nB."."""
    if len(answer) != 1 or answer not in LETTERS:
        return False
    return re.search(rf"^[ \t]*[(\[]?{answer}[.:)\]][ \t]*$", prompt, re.MULTILINE) is not None


@dataclass
class RightAnswerCheck:
    """Checks the right answers of all rows or conversations, and finds repeated questions.

    Whether a right answer is a problem may depend on the other rows: if no row's right answer is a
    letter, for example, the benchmark may be one without letters. So problems are collected first,
    and `complete` decides which problems are reported.
    """

    noun: str  # the word for the position of a question in messages: row or line
    is_compared: bool  # True if a model's answer must equal the right answer (HELM's exact match)
    problems: list[str] = field(default_factory=list)  # problems that are reported in any case
    _word_problems: list[str] = field(default_factory=list)
    """Problems of rows whose right answer is a word, but not an option. They are reported only if
    another row's right answer is a letter, or if all rows have this problem.
    """
    _verdict_count: int = 0  # the number of right answers in `_VERDICTS` that are not an option
    _letter_problems: list[str] = field(default_factory=list)
    """Problems of rows whose right answer is a letter, but not an option's letter."""
    _has_option_letter: bool = False  # True if the right answer of a row is an option's letter
    # True if the right answer of a row was not compared, for example because the row has no options
    _has_uncompared_row: bool = False
    # dict from a question to the first row with this question
    _first_rows: dict[object, int] = field(default_factory=dict)
    # (first row with a question, later row with the same question)
    _repeated: list[tuple[int, int]] = field(default_factory=list)
    # notes on rows in which another option has the text of the right option
    _equal_option_notes: list[str] = field(default_factory=list)
    # the forms, such as "numbers from 1", that fit the right answers of all rows with options
    _forms: GoldForms = field(default_factory=GoldForms)
    # rows whose right answer becomes empty in HELM's quasi metrics
    _emptied_rows: list[int] = field(default_factory=list)

    def _is_each_a_wrong_word(self) -> bool:
        """Return True if the right answer of each row is a word, but not an option of the row.

        Each row then scores 0. A row whose right answer is a wrong letter makes the result False:
        `complete` reports its problem in any case. Return False, too, if all right answers are
        verdicts ("yes" to "is it true?").
        """
        rows_with_options = self._forms.count
        if self._has_uncompared_row or self._verdict_count == rows_with_options:
            return False
        return len(self._word_problems) == rows_with_options

    def add(self, number: int, question: object, correct: str | None) -> None:
        """Record a row's question and right answer.

        Args:
            number: the number of the row.
            question: a value that is equal for equal questions.
            correct: the right answer; None if the data have none.
        """
        # `setdefault` stores the number of the first row, and returns it for later rows.
        first = self._first_rows.setdefault(question, number)
        if first != number:
            self._repeated.append((first, number))
        # A missing or empty right answer does not count here: `_row_problems` reports it.
        if self.is_compared and correct and becomes_nothing(correct):
            self._emptied_rows.append(number)

    def compare(self, label: str, prompt: str, correct: str, incorrect: Sequence[str]) -> None:
        """Check that the right answer is an option.

        The options are those that the prompt lists. If the prompt lists no options, and the
        incorrect answers are letters, the right answer must be a letter too.

        Args:
            label: the beginning of messages, to which the name of the column or field is added.
            prompt: the row's prompt.
            correct: the right answer.
            incorrect: the wrong answers.
        """
        options = options_shown(prompt)
        answer = correct.strip()
        letters = list(options)
        if not options:
            # Each answer of the row that is a capital letter counts as the letter of an option.
            letters = sorted({*incorrect, answer} & set(LETTERS))
        if answer in letters:
            self._has_option_letter = True
        incorrect_are_letters = bool(incorrect) and set(incorrect) <= set(LETTERS)
        option_lacks_text = _is_listed_without_text(answer, prompt)
        has_options = bool(options) or incorrect_are_letters or option_lacks_text
        if not self.is_compared or not has_options:
            self._has_uncompared_row = True
            return
        if options:
            self._forms.add(answer, options)
        is_option = answer in letters or answer in options.values()
        if is_option and not option_lacks_text:
            self._compare_texts(label, answer, options)
            return
        if option_lacks_text:
            fault = f"option {answer}, whose text is empty"
        elif options:
            fault = f"none of the options that the prompt lists ({', '.join(letters)})"
        else:
            fault = "no letter"
        self._add_fault(label, answer, fault)

    def _add_fault(self, label: str, answer: str, fault: str) -> None:
        """Record that a right answer is not an option; `fault` describes the answer."""
        problem = (
            f"{label}{CORRECT_ANSWER_FIELD}: is {fault}; write the letter of the right option, as "
            "the prompt writes it"
        )
        is_verdict = answer.casefold() in _VERDICTS
        if is_verdict:
            self._verdict_count += 1
        is_letter = re.fullmatch(r"\W*[A-Za-z]\W*", answer) is not None  # "F", "f" or "(F)"
        if is_letter and not is_verdict:
            self._letter_problems.append(problem)
        else:
            self._word_problems.append(problem)

    def _compare_texts(self, label: str, answer: str, options: Mapping[str, str]) -> None:
        """Add a note if another option has the text of the right option."""
        text = options.get(answer, answer)
        equal = [letter for letter, option in options.items() if option == text]
        if len(equal) > 1:
            self._equal_option_notes.append(
                f"{label}{CORRECT_ANSWER_FIELD}: options {' and '.join(equal)} have the same text"
            )

    def complete(self, file: Path, count: int, findings: file_problems.Findings) -> None:
        """Add the problems and notes to the findings, after all rows.

        Args:
            file: the file with the rows.
            count: the number of rows.
            findings: the lists to which problems and notes are added.
        """
        form = self._forms.form()
        problems = list(self.problems)
        if form is not None and not self._has_uncompared_row:
            # The right answers are mapped to letters, so they need not be options themselves.
            findings.notes.append(
                f"the right answers ({CORRECT_ANSWER_FIELD}) of {file.name} are {form}: "
                "each is mapped to the letter of its option"
            )
        else:
            problems += self._letter_problems
            if self._has_option_letter or self._is_each_a_wrong_word():
                problems += self._word_problems
        findings.notes += self._equal_option_notes[:_MAX_EQUAL_OPTION_NOTES]
        problems = file_problems.merged_by_message(problems)
        findings.problems += file_problems.first_problems(
            problems, f"{file}: ", f"its {self.noun}s"
        )
        if self._repeated:
            first, second = self._repeated[0]
            subject = (
                f"{len(self._repeated)} of {count} {self.noun}s of {file.name} "
                f"ask the same as an earlier {self.noun}"
            )
            findings.notes.append(
                f"{subject} (first: {self.noun} {second} as {first}): counted each time"
            )
        if self._emptied_rows:
            label = (
                f"{len(self._emptied_rows)} of {count} {self.noun}s of {file.name} (first: "
                f"{self.noun} {self._emptied_rows[0]})"
            )
            findings.notes.append(note_on_quasi(label))


def check_rows(
    file: Path,
    header: Sequence[str],
    columns: Sequence[str],
    findings: file_problems.Findings,
    pictures: PictureCheck,
    prompt: str | None = None,
) -> int:
    """Check each row of a table, and return the number of rows.

    Args:
        file: the table.
        header: all columns of the table.
        columns: the columns that the prompt names, and the columns with pictures.
        findings: the lists to which problems and notes are added.
        pictures: the check of the pictures that rows name.
        prompt: the template of the prompt, if a model's answer must equal the right answer (HELM's
            exact match); else None.
    """
    answer_check = RightAnswerCheck("row", is_compared=prompt is not None)
    row_check = _RowCheck(
        header, columns, prompt=prompt or "", pictures=pictures, answer_check=answer_check
    )
    count = 0
    rows_below_header = islice(table_rows(file), 1, None)
    try:
        for count, (line, row) in enumerate(rows_below_header, start=1):
            row_check.add(count, f"{file}: row {count} (line {line})", row)
    except TableError as error:
        answer_check.problems.append(f"{file}: row {count + 1} (line {error.line}): {error}")
    if count == 0 and not answer_check.problems:
        answer_check.problems.append(
            f"{file}: has no rows below its first line, which names the columns"
        )
    answer_check.complete(file, count, findings)
    return count


@dataclass
class _RowCheck:
    """Checks the rows of a table one after the other."""

    header: Sequence[str]
    columns: Sequence[str]  # the columns that the prompt names, and the columns with pictures
    prompt: str  # the template of the prompt; "" if right answers are not compared with options
    pictures: PictureCheck
    answer_check: RightAnswerCheck  # also receives the problems of the rows
    # dict from an id to the number of the first row with this id
    _first_rows: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, label: str, row: Sequence[str]) -> None:
        """Check one row; `label` names the row in messages."""
        if len(row) != len(self.header):
            self.answer_check.problems.append(
                f"{label}: has {len(row)} cells, but the first line names {len(self.header)} "
                "columns;"
                " put a cell that contains a comma, a quote or a line break in double quotes"
            )
            return
        cells = dict(zip(self.header, row, strict=True))
        columns = [name for name in self.columns if name in cells]
        problems = [
            *_row_problems(cells),
            *self.pictures.problems_of_cells(cells),
            *self._id_problems(number, cells.get(ID_FIELD)),
            *_question_problems(cells, columns),
        ]
        self.answer_check.problems += [f"{label}, {problem}" for problem in problems]
        # Without columns to compare, no row counts as a repeated question. A hash takes less memory
        # than the texts.
        question = hash(tuple(cells[name] for name in columns)) if columns else number
        self.answer_check.add(number, question, cells.get(CORRECT_ANSWER_FIELD))
        if CORRECT_ANSWER_FIELD in cells and not problems:
            prompt = self.prompt.format_map({name: cells.get(name, "") for name in self.columns})
            incorrect = json.loads(
                cells.get(INCORRECT_ANSWERS_FIELD, "[]")
            )  # checked in `_row_problems`
            self.answer_check.compare(
                f"{label}, column ", prompt, cells[CORRECT_ANSWER_FIELD], incorrect
            )

    def _id_problems(self, number: int, row_id: str | None) -> Iterator[str]:
        """Yield the problem of a row's id, if any; `row_id` is None in a table without ids."""
        if row_id is None:
            return
        remedy = (
            f"the id names the instance in the results (if this column is not an id, give it "
            f"another name than {ID_FIELD})"
        )
        if not row_id.strip():
            yield f"column {ID_FIELD}: is empty; {remedy}"
            return
        first = self._first_rows.setdefault(row_id, number)
        if first != number:
            yield f"column {ID_FIELD}: is the same as in row {first}; {remedy}"


def _question_problems(cells: Mapping[str, str], columns: Sequence[str]) -> Iterator[str]:
    """Yield the problem of a row without a question; `columns` are the columns of the prompt."""
    # A column with the name `question` must not be empty, even if other columns have texts.
    questions = [name for name in columns if name.lower() == "question"] or columns
    if questions and not any(cells[name].strip() for name in questions):
        yield f"column {' and '.join(questions)}: is empty, so nothing would be asked"


def _row_problems(row: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of a row's cluster, right answer and incorrect answers."""
    cluster = row.get(CLUSTER_FIELD)
    if cluster is not None and not cluster.strip():
        yield (
            f"column {CLUSTER_FIELD}: is empty; write the name of the source that the row shares "
            "with other rows, or a unique name if the row shares no source"
        )
    correct = row.get(CORRECT_ANSWER_FIELD)
    if correct is not None and not correct.strip():
        yield f"column {CORRECT_ANSWER_FIELD}: is empty"
    cell = row.get(INCORRECT_ANSWERS_FIELD)
    if cell is None:
        return
    try:
        answers = json.loads(cell)
    except ValueError:
        answers = None
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        yield (
            f"column {INCORRECT_ANSWERS_FIELD}: must be a JSON list of texts such as "
            '["B", "C"], or [] for none'
        )
    elif correct is not None and correct.strip() in [answer.strip() for answer in answers]:
        yield f"column {INCORRECT_ANSWERS_FIELD}: holds the {CORRECT_ANSWER_FIELD}, too"
