"""A translated configuration as the text of a file, which begins with what has no counterpart."""

from __future__ import annotations

import yaml

from eval_factory.config.foreign_configs.translation import Translation


def config_text(translation: Translation) -> str:
    """YAML, with a comment for each finding."""
    lines = [f"# Made by 'eval-factory import_config' of a configuration of {translation.form.value}."]
    if translation.findings:
        lines += ["# What has no counterpart here, or another one:"]
        lines += [f"# - {finding.text}" for finding in translation.findings]
    body = yaml.safe_dump(dict(translation.document), sort_keys=False, allow_unicode=True, width=1000)
    return "\n".join([*lines, body])
