#!/usr/bin/env python3
"""Builds the documentation site, with the navigation of docs_navigation.py.

    .venv-docs/bin/python scripts/make_site.py FOLDER

scripts/venv.sh makes the environment .venv-docs. The build fails at a warning (a link or an anchor
that leads nowhere, a page that is not in the navigation). It also fails if a browser would load
anything of a page from another host.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import docs_navigation

ROOT = docs_navigation.DOCS.parent
LOADED = re.compile(
    r"<(?:script|img|iframe|source|embed|video|audio|object)\b[^>]*?\b(?:src|data|srcset)\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
LOADED_BY_STYLE = re.compile(
    r"(?:@import\s+(?:url\()?|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE
)
"""These two patterns find addresses of other hosts from which a browser loads files by itself.
Links that a reader has to click do not match.
"""


def settings(target: Path) -> dict[str, object]:
    """Return MkDocs' settings: mkdocs.yml with the paths on this machine, and the navigation.

    `target` is the folder for the site.
    """
    navigation: list[object] = [{"Start": docs_navigation.MAP}]
    for section, pages in docs_navigation.places().items():
        navigation.append({section: [{docs_navigation.title_of(name): name} for name in pages]})
    return {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(docs_navigation.DOCS),
        "site_dir": str(target),
        "nav": navigation,
    }


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield the file and the address of everything that pages or styles load from other hosts."""
    for file in sorted(site.rglob("*")):
        if file.suffix in (".html", ".css"):
            text = file.read_text("utf-8")
            for match in [*LOADED.finditer(text), *LOADED_BY_STYLE.finditer(text)]:
                yield f"{file.relative_to(site)}: {next(filter(None, match.groups()))}"


def main() -> int:
    """Return 0 if the site was built without a warning and loads nothing from other hosts."""
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mkdocs.json"  # JSON is YAML
        config.write_text(json.dumps(settings(target)), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--config-file",
            str(config),
        ]
        # The variables switch off a warning of the theme about MkDocs 2; here MkDocs 1 is pinned.
        env = {**os.environ, "DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "true"}
        code = subprocess.run(command, env=env, check=False).returncode
    if code != 0:
        return code
    loaded = list(loaded_from_elsewhere(target))
    for line in loaded:
        print(f"would be loaded from another host: {line}", file=sys.stderr)
    return 1 if loaded else 0


if __name__ == "__main__":
    sys.exit(main())
