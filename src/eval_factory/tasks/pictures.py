"""Pictures of a custom benchmark: what names them, and whether each can be sent. Messages name no file: it may be a
patient's name. In the text that HELM gets, `media.PLACE` stands for each."""

from __future__ import annotations

import hashlib
import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.endpoint import media

_COLUMN = re.compile(r"image(?:_(?:[2-9]|[1-9]\d+))?")


def picture_columns(header: Iterable[str]) -> list[str]:
    return [name for name in header if _COLUMN.fullmatch(name)]


def filled(template: str, cells: Mapping[str, str]) -> tuple[str, list[str]]:
    """(a row's prompt with its pictures, those that it does not name before the text; their columns in that order)."""
    columns = picture_columns(cells)
    named = [name for _, name, _, _ in string.Formatter().parse(template) if name in columns]
    before = [name for name in columns if name not in named]
    marks = {name: media.PLACE if cells[name].strip() else "" for name in columns}
    text = "".join(marks[name] for name in before) + template.format_map({**cells, **marks})
    return text, [name for name in (*before, *named) if marks[name]]


def text_of(content: str | Sequence[Mapping[str, str]]) -> str:
    """Of a message; texts that follow on one another are on lines of their own."""
    if isinstance(content, str):
        return content
    lines = "\n".join(part.get("text", media.PLACE) for part in content)
    return re.sub(f"\n?{media.PLACE}\n?", media.PLACE, lines)


def picture_file(folder: Path, name: str) -> Path:
    return Path(os.path.abspath(folder / os.path.expanduser(name.strip())))


@dataclass
class PictureCheck:
    """Goes through all rows. `template`: a table's prompt; `max_size`: bytes of a file. `rows` counts those that show a
    picture; `first` is what the first of them asks, with a line for each; `sha256` covers all contents in order."""

    folder: Path
    template: str = ""
    max_size: int = media.MAX_FILE
    rows: int = 0
    first: str | None = None
    sha256: str = ""

    def problems_of_cells(self, cells: Mapping[str, str]) -> Iterator[str]:
        text, columns = filled(self.template, cells) if picture_columns(cells) else ("", [])
        return self.problems_of([(f"column {name}", cells[name]) for name in columns], text)

    def problems_of(self, named: Sequence[tuple[str, str]], text: str) -> Iterator[str]:
        """`named`: (where in a row a picture stands, what names it). `text`: what is asked."""
        problems = ((where, self._problem_of(name)) for where, name in named)
        yield from (f"{where}: the picture {problem}" for where, problem in problems if problem is not None)
        if named and text.count(media.PLACE) > len(named):
            yield f"{named[0][0]}: its text holds the character U+FFFC, which stands for a picture; take it out"
        self.rows += bool(named)
        if named and self.first is None:
            files = [{"content_type": "image", "location": picture_file(self.folder, name)} for _, name in named]
            self.first = media.as_text(media.placed(text, files))

    def _problem_of(self, name: str) -> str | None:
        if re.match("https?:", name.strip(), re.IGNORECASE):
            return "is of the web, and not fetched"
        file = picture_file(self.folder, name)
        try:
            facts = media.facts_of(file, self.max_size)
            if not str(facts.content_type).startswith("image/"):
                return "is no PNG, JPEG, GIF or WebP file"
            from PIL import Image  # text needs none

            with Image.open(file) as picture:
                picture.verify()
        except media.UnusableMedium as error:
            return str(error).removeprefix(file.name).strip()
        except Exception as error:  # Pillow raises what it likes at a broken file
            return f"is broken ({facts.content_type}): {type(error).__name__}"
        self.sha256 = hashlib.sha256(f"{self.sha256}{facts.sha256}".encode()).hexdigest()
        return None
