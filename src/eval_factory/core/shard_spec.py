"""What a process is told that asks one part of an evaluation, and what it leaves when it has: two small files.

They stand in the folder of the shard, `<output_dir>/shards/<index>-of-<of>`, with all else that it needs; who starts
the process, and where, they do not say.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.rundir import PRIVATE

SPEC_FILE, DONE_FILE = "shard.json", "done.json"


@dataclass(frozen=True)
class ShardSpec:
    """One part of an evaluation."""

    index: int
    """From 1 on."""
    of: int
    run_id: str
    """Of the run that this is part of: the journal says so."""
    work: str
    """By what an evaluation of the same data and versions is known again."""
    argv: tuple[str, ...]
    """Of helm-run."""
    secrets: tuple[str, ...]
    """Names of the variables whose values must not be written anywhere."""
    private: bool = False
    """Not used any more; files of earlier versions have it."""

    @property
    def name(self) -> str:
        return folder_name(self.index, self.of)

    def write(self, folder: Path) -> Path:
        """Returns the file."""
        write_atomic(folder / SPEC_FILE, json.dumps(asdict(self), indent=2) + "\n", mode=PRIVATE)
        return folder / SPEC_FILE

    @classmethod
    def read(cls, folder: Path) -> ShardSpec:
        """Raises OSError, ValueError or TypeError where the file is not one of these."""
        fields = json.loads((folder / SPEC_FILE).read_text(encoding="utf-8"))
        return cls(**{**fields, "argv": tuple(fields["argv"]), "secrets": tuple(fields["secrets"])})


@dataclass(frozen=True)
class ShardPart:
    """Which part of an evaluation a process elsewhere is to ask."""

    index: int
    """From 1 on."""
    of: int
    run_id: str
    """Of the whole: what scores it goes on with this run."""


@dataclass(frozen=True)
class ShardDone:
    """A shard that went through all its instances."""

    work: str
    failed: int
    """Requests that got no answer, or no usable one."""

    @classmethod
    def read(cls, folder: Path) -> ShardDone | None:
        """None where the shard did not come to its end."""
        try:
            return cls(**json.loads((folder / DONE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        write_atomic(folder / DONE_FILE, json.dumps(asdict(self)) + "\n")


def is_done(folder: Path, work: str) -> bool:
    """Whether the shard has nothing left to ask."""
    done = ShardDone.read(folder)
    return done is not None and done.work == work and done.failed == 0


def folder_name(index: int, of: int) -> str:
    return f"{index}-of-{of}"
