"""Which file `benchmark` names: from the current folder, or beside the file that names it."""

from __future__ import annotations

import os
from pathlib import Path


def find_benchmark(given: str, beside: Path | None, where: str, problems: list[str]) -> Path | None:
    """The absolute path; or None, with what is wrong in `problems`.

    Args:
        beside: the folder of the file that names it; None where no file does.
        where: the key that names it.
    """
    folders = [Path.cwd()]
    if beside is not None:
        folders.append(Path(os.path.abspath(beside)))
    paths = list(dict.fromkeys(Path(os.path.abspath(folder / os.path.expanduser(given))) for folder in folders))
    there = [path for path in paths if path.exists()]
    if not there:
        problems.append(f"{where}: there is no file {' or '.join(map(str, paths))}")
        return None
    if not all(there[0].samefile(other) for other in there):
        problems.append(
            f"{where}: {given} may be {there[0]} (from the current folder) or {there[1]} (beside the run config);"
            " give the whole path"
        )
        return None
    return there[0]
