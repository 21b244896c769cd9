"""A document as YAML, for people and any reader of YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from eval_factory.core.nouns import Word
from eval_factory.report.readable_values import OneLine, OneLineList

_MAP, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class _Dumper(yaml.SafeDumper):
    """Writes every value in full: no anchors, so that any reader of YAML takes it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks per value
        return True


_Dumper.add_multi_representer(Word, lambda dumper, data: dumper.represent_str(str(data)))
_Dumper.add_representer(OneLine, lambda dumper, data: dumper.represent_mapping(_MAP, data, flow_style=True))
_Dumper.add_representer(OneLineList, lambda dumper, data: dumper.represent_sequence(_LIST, data, flow_style=True))


def to_yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
