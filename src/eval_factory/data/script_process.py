"""The process that runs a data set's loading script, for `hub.py`: it sees no keys and writes to one folder only.

A script is somebody's program. It is run where HELM runs it too, of a pinned revision, and it downloads what it needs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULT = "result.json"


def main(repository: str, config: str | None, workspace: str) -> None:
    """Writes `RESULT` into the workspace: the folder that was made, the configuration's name and its version."""
    from datasets import load_dataset_builder

    made: dict[str, Any]
    try:
        builder = load_dataset_builder(repository, config, cache_dir=workspace, trust_remote_code=True)
        builder.download_and_prepare()
    except Exception as error:  # whatever a script raises
        cause = error.__cause__ or error
        made = {"error": f"{type(cause).__name__}: {cause}"}
    else:
        version = str(builder.config.version or "0.0.0")
        made = {"folder": builder.cache_dir, "config": builder.config.name, "version": version}
    (Path(workspace) / RESULT).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
