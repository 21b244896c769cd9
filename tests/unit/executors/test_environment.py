from __future__ import annotations

import os
import sys
from pathlib import Path

from eval_factory.core.urls import SERVED_AT
from eval_factory.executors.process import child_environment


def test_the_environment_is_an_allow_list() -> None:
    env = {
        "PATH": "p",
        "MY_KEY": "k",
        "OTHER_SECRET": "s",
        "LC_ALL": "C",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    found = child_environment(env, ["MY_KEY"], {"RUN": "1"})
    path = f"p{os.pathsep}{Path(sys.executable).parent}"  # HELM calls gdown by its name
    assert found == {
        "PATH": path,
        "MY_KEY": "k",
        "LC_ALL": "C",
        "RUN": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }
    kept = {
        "PYTHONUTF8": "0",
        SERVED_AT: "http://127.0.0.1:1",
    }  # helm-run finds the server of its model
    assert kept.items() <= child_environment(kept, [], {}).items()
