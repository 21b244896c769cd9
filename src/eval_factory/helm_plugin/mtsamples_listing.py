"""The MTSamples scenarios ask api.github.com which files there are, in every run, even when all of them are on disk.

Where a bundle has the list, or the run is offline, it is answered from disk. GitHub's answer stops at 1,000 entries in
the order of a git tree, which is that of the names' bytes; so does ours, unless MEDICAL_DATA_ALL_FILES=1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.helm_plugin import network_guard

LIMIT = 1000


def known_names(scenario: str, folder: Path) -> list[str] | None:
    """The names as GitHub would give them: the bundle's list, or offline the files that are there; None: ask GitHub."""
    settings = HelmRunSettings.from_environment(os.environ)
    lists = settings.file_lists
    if lists is not None and (path := Path(lists) / f"{scenario}.json").is_file():
        found = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))["names"]]
    elif network_guard.guard() is not None:
        found = sorted((path.name for path in folder.glob("*.txt")), key=os.fsencode)
    else:
        return None
    return found if settings.all_files else found[:LIMIT]


def list_procedures_without_github() -> None:
    from helm.benchmark.scenarios.mtsamples_procedures_scenario import MTSamplesProceduresScenario

    _answer_for(MTSamplesProceduresScenario, "mtsamples_procedures")


def list_replicates_without_github() -> None:
    from helm.benchmark.scenarios.mtsamples_replicate_scenario import MTSamplesReplicateScenario

    _answer_for(MTSamplesReplicateScenario, "mtsamples_replicate")


def _answer_for(scenario_class: Any, scenario: str) -> None:
    get_instances = scenario_class.get_instances

    def get_instances_of_known(self: Any, output_path: str) -> Any:
        found = known_names(scenario, Path(output_path))
        if found is not None:
            self.fetch_file_list = lambda: found
        return get_instances(self, output_path)

    scenario_class.get_instances = get_instances_of_known
