"""Loads the plugin into a helm-run that a user starts by hand, without --plugins.

HELM finds this module by the entry point group `helm`. Every helm-run of the environment imports
this module. The module therefore loads the plugin only if helm-run's model files name a client of
eval-factory, and if --plugins does not load the plugin anyway.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from eval_factory.helm.names import MODEL_DEPLOYMENTS_FILE, PLUGIN_MODULE

_OUR_CLIENT = "class_name: eval_factory.helm_plugin."  # the text that names our client


def asks_for_the_plugin(argv: Sequence[str]) -> bool:
    """Return True if the model files of helm-run name our client, and --plugins does not name our
    plugin. Return False if the model files or the arguments cannot be read.

    `argv` holds the arguments of helm-run.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--local-path", default="prod_env")  # HELM's default
    parser.add_argument("--plugins", nargs="*", default=[])
    try:
        options, _ = parser.parse_known_args(argv)
        text = Path(options.local_path, MODEL_DEPLOYMENTS_FILE).read_text(encoding="utf-8")
    except (argparse.ArgumentError, OSError, UnicodeDecodeError):
        return False
    return _OUR_CLIENT in text and PLUGIN_MODULE not in options.plugins


if Path(sys.argv[0]).name == "helm-run" and asks_for_the_plugin(sys.argv[1:]):
    importlib.import_module(PLUGIN_MODULE)
