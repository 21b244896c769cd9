"""Makes the README for wheel and sdist. An index shows it, but has none of the files that it links.

This module is a hook of hatchling (`[tool.hatch.metadata.hooks.custom]` in pyproject.toml). Its
setting `repository` is the address of the published repository: links then lead to the release's
files there. As long as `repository` is empty, nothing is published, and only the text of each link
remains.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


class ReadmeHook(MetadataHookInterface):
    """A hook that sets `readme` in the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`; hatchling calls this method."""
        root = Path(self.root)
        source = (root / "src" / "eval_factory" / "__init__.py").read_text("utf-8")
        found = VERSION.search(source)
        if found is None:
            raise ValueError("src/eval_factory/__init__.py names no __version__")
        text = for_an_index(
            (root / "README.md").read_text("utf-8"), self.config["repository"], found[1]
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def for_an_index(text: str, repository: str, version: str) -> str:
    """Return the README with links for the page of an index.

    Args:
        text: the README.
        repository: the address of the published repository; empty if there is none.
        version: the version of the release.
    """

    def link(match: re.Match[str]) -> str:
        if repository:
            kind = "raw" if match["picture"] else "blob"
            address = f"{repository}/{kind}/v{version}/{match['path']}"
            return f"{match['picture']}[{match['text']}]({address})"
        return "" if match["picture"] else match["text"]

    return RELATIVE_LINK.sub(link, text)
