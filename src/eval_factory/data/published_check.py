"""Whether a published file of a multiple-choice benchmark can be read: asked when it is pulled or imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eval_factory.core.errors import PrerequisiteError
from eval_factory.data.sources import Sources
from eval_factory.tasks.file_problems import shortened
from eval_factory.tasks.published_choices import read_choice_file


def looked_through(path: Path, form: str, name: str) -> str:
    """How many questions a file holds, in words.

    Raises:
        PrerequisiteError: it is not of the published form; the message names the file, the row and the column.
    """
    read = read_choice_file(path, form)
    if read.problems:
        lines = [f"  {problem}" for problem in shortened(read.problems)]
        raise PrerequisiteError("\n".join([f"{name}: is not of the form {form}", *lines]))
    others = f" ({read.left_out} rows that are none are left out)" if read.left_out else ""
    return f"{len(read.questions)} questions in {path.name}{others}"


def look_through_folder(scenarios: Path, sources: Sources) -> Iterator[str]:
    """What is found in each such file that is there, by its task.

    Raises:
        PrerequisiteError: one of them is not of the published form.
    """
    for name, task in sources.tasks.items():
        for file in task.files:
            path = scenarios / task.scenario / file.path
            if file.form is not None and path.is_file():
                yield f"{name}: {looked_through(path, file.form, str(path))}"
