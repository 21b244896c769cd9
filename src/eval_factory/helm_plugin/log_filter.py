"""Keeps prompts and answers out of the log: HELM writes them into warnings, and they may be a
patient's text.
"""

from __future__ import annotations

import logging
from pathlib import Path

from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.patches.patch_registry import Stage, apply_patches

# This module is the first of ours that helm-run imports.
network_guard.take_settings_and_guard()
apply_patches(Stage.LOGGING)


class WithholdText(logging.Filter):
    """Replaces the text of HELM's own messages by file and line.

    HELM's messages are formatted before they are logged, so what in them is a constant and what is
    a patient's note can no longer be separated. `--debug` turns this off.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        path = Path(record.pathname)
        parts = path.parts
        shown = "/".join(parts[parts.index("helm") :]) if "helm" in parts else path.name
        record.msg = f"message from {shown}:{record.lineno} (text withheld, --debug shows it)"
        record.args = ()
        record.exc_info = None
        record.exc_text = None
        return True
