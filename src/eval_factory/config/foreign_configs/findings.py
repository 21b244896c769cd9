"""What of a foreign configuration has no counterpart here."""

from __future__ import annotations

from dataclasses import dataclass

from eval_factory.core.foreign_text import one_line

LONGEST_LINE = 2000
"""Characters of a finding; a list of what a section holds may be long."""


@dataclass(frozen=True)
class Finding:
    """One key that is not in what is written, or not as it was."""

    path: str
    """The key in the file that is translated."""
    why: str
    advice: str
    """What the user can do."""

    @property
    def text(self) -> str:
        """One line, without values of the file. Its names are foreign text; a file in which one is a key is refused."""
        return one_line(f"{self.path}: {self.why}; {self.advice}", LONGEST_LINE)
