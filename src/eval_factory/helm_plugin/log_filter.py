"""Keeps prompts and answers out of the log.

HELM writes prompts and answers into its warnings, and a prompt may hold a patient's data.
"""

from __future__ import annotations

import logging
from pathlib import Path

from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.patches.patch_registry import Stage, apply_patches

# helm-run imports this module before any other module of eval-factory, so set up the guard and the
# patches of the log here.
network_guard.read_settings_and_set_guard()
apply_patches(Stage.LOGGING)


class WithholdText(logging.Filter):
    """A log filter that replaces the text of a message by the file and the line that logged the
    message. A traceback is removed.

    HELM formats its messages before they are logged, so the filter cannot separate constant words
    from a patient's note. With the option `--debug`, this filter is not used.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        path = Path(record.pathname)
        parts = path.parts
        source = path.name
        if "helm" in parts:
            source = "/".join(parts[parts.index("helm") :])
        record.msg = f"message from {source}:{record.lineno} (text withheld, --debug shows it)"
        record.args = ()
        record.exc_info = None
        record.exc_text = None
        return True
