"""Writes src/eval_factory/tasks/known_floors.json from output folders of evaluations of whole public data sets.

    eval-factory run_eval ...          # each data set without limit_samples; the model does not matter
    python scripts/make_known_floors.py FOLDER ...

A set that is in the table keeps its floors. What floors depend on is in the key, so that after another version of HELM,
of the trivial answers or of the errata the table is not used, and has to be made anew: with --anew, before the runs, it
is emptied.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from eval_factory.core.rundir import RunDir
from eval_factory.helm.trivial_scores import read_trivial_scores
from eval_factory.report.reader import load_result
from eval_factory.scoring.floors import MISSING_FLOORS, NOT_WHOLE
from eval_factory.tasks.errata import load_errata
from eval_factory.tasks.known_floors import FILE_NAME, KnownFloor, KnownFloors, KnownSet

TABLE = Path(__file__).resolve().parents[1] / "src" / "eval_factory" / "tasks" / FILE_NAME


def known_set(folder: Path) -> tuple[str, KnownSet]:
    """(its hash, its floors).

    Raises:
        ValueError: the folder does not hold all floors of a whole data set.
    """
    stored = load_result(folder)
    trivial = read_trivial_scores(RunDir(folder).helm)
    if stored.config["params"]["limit_samples"] is not None:
        raise ValueError(f"{folder}: its run was of a sample")
    if trivial is None or trivial.known or trivial.left_out or trivial.error or not trivial.strategies:
        raise ValueError(f"{folder}: its floors were not computed, or not all of them")
    if any(note.startswith((MISSING_FLOORS, NOT_WHOLE)) for note in stored.result.validity.notes):
        raise ValueError(f"{folder}: its corrected or lenient floors were not computed, or not all of them")
    floors = {label: KnownFloor(**asdict(floor)) for label, floor in stored.result.validity.floors.items()}
    return trivial.data_sha256, KnownSet(task=stored.result.task, floors=floors)


def main() -> int:
    parser = argparse.ArgumentParser(description="the floors of public data sets")
    parser.add_argument("--anew", action="store_true", help="forget what is in the table")
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args()
    table = KnownFloors.of_text(TABLE.read_text(encoding="utf-8"))
    sets = {} if given.anew else dict(table.sets)
    sets |= dict(map(known_set, given.folders))
    made = KnownFloors(
        errata_version=load_errata().version, sets=dict(sorted(sets.items(), key=lambda one: one[1].task))
    )
    TABLE.write_text(made.text(), encoding="utf-8")
    for sha256, one in made.sets.items():
        print(f"{one.task}: {sha256[:12]}: {len(one.floors)} metrics")
    return 0


if __name__ == "__main__":
    sys.exit(main())
