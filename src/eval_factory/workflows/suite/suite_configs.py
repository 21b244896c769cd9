"""The files by which a suite, and each of its cells, can be run again: suite_config.yml and the cells' run configs."""

from __future__ import annotations

from eval_factory.config.suite import Suite
from eval_factory.core.safe_files import write_atomic
from eval_factory.report.documents import to_yaml

OF_THE_SUITE = (
    "# The suite as it was run, presets and extended files put in. Run it again: eval-factory run_suite --run_config"
    " THIS_FILE\n# Where the folder was moved to another place, add --output_dir and that place.\n"
)
OF_A_CELL = "# One cell of a suite. Run it by itself: eval-factory run_eval --run_config THIS_FILE\n"


def write_configs(suite: Suite) -> None:
    """Write them anew. They name the variables of keys; a configuration that holds a key itself is refused before."""
    for cell in suite.cells:
        file = suite.folder.cell_config(cell.target, cell.evaluation)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, OF_A_CELL + to_yaml(cell.document))
    write_atomic(suite.folder.config, OF_THE_SUITE + to_yaml(suite.document))
