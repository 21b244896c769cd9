"""The result of a task becomes the output folder of the run that it is the result of, in which its suite lies.

A kill on the way loses nothing: the same command moves the rest. `.run_state.json`, by which a complete run is known,
comes last.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from eval_factory.core.rundir import RunDir, SuiteDir

BEGUN = "in-place"
"""Under the suite's own files, while parts of a result are still to be moved: what stood there before is aside."""


def move_into(copy: Path, target: Path, suite: SuiteDir) -> None:
    """Put what is in `copy` into the folder of the run; what stood there is kept under the suite's own files.

    Files of the user's own stay where they are.

    Raises:
        BusyError: somebody works there.
    """
    with RunDir(target).locked():
        begun = suite.state / f"{BEGUN}-{copy.parent.name}"
        if not begun.exists():
            aside = suite.state / "set-aside" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
            for name in sorted({*_names_of_a_run(RunDir(target)), *(path.name for path in _to_move(copy))}):
                if (target / name).exists():
                    aside.mkdir(parents=True, exist_ok=True)
                    (target / name).rename(aside / name)
            begun.touch()
        for path in _to_move(copy):
            path.rename(target / path.name)
        shutil.rmtree(copy)
        begun.unlink()


def _to_move(copy: Path) -> Iterator[Path]:
    own = RunDir(copy)
    left_out = {own.lock_file, own.lock_holder, own.marker}
    found = sorted(path for path in copy.iterdir() if path not in left_out)
    yield from sorted(found, key=lambda path: path == own.run_state)


def _names_of_a_run(rundir: RunDir) -> Iterator[str]:
    """What a run writes, and would be taken for a part of the other."""
    kept = (rundir.run_config, rundir.run_state, rundir.own_data, rundir.checksums, rundir.attestation, rundir.packages)
    folders = (rundir.responses, rundir.model_configs, rundir.helm, rundir.logs, rundir.shards)
    yield from (path.name for path in (*rundir.results, *rundir.answers, *kept, *folders))
