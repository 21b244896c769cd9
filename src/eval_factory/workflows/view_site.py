"""HELM's web pages as a folder of files: its front end, its configuration, and what helm-summarize writes beside it.

HELM's page asks crfm.stanford.edu for its icon and for a list of leaderboards each time that it is opened. The copies
here ask nobody: a Content-Security-Policy lets a browser contact the page's own server alone.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from eval_factory.core.errors import PrerequisiteError

SUITE = "view"
DATA = "benchmark_output"
INDEX, CONFIG = "index.html", "config.js"
STATIC_BUILD = ("benchmark", "static_build")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'"
)

_ICON = re.compile(r'<link rel="icon"[^>]*>')
_ELSEWHERE = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""", re.IGNORECASE
)


def installed(*parts: str) -> Path | None:
    """A file or folder of the installed HELM, which is not imported; None where it has no such."""
    spec = importlib.util.find_spec("helm")
    places = [Path(folder).joinpath(*parts) for folder in (spec.submodule_search_locations or ())] if spec else []
    return next((place for place in places if place.exists()), None)


def front_end() -> Path:
    """The front end in the installed HELM.

    Raises:
        PrerequisiteError: it is not there.
    """
    index = installed(*STATIC_BUILD, INDEX)
    if index is None:
        raise PrerequisiteError(
            "the installed HELM has no web pages (helm/benchmark/static_build)\n"
            "  pip install --force-reinstall --no-deps crfm-helm==0.5.16"
        )
    return index.parent


def write_site(site: Path, source: Path, first_page: str) -> Path:
    """HELM's front end in a folder that is not there yet.

    Args:
        source: as `front_end` finds it.
        first_page: the part of the address behind `#` that is shown first.

    Returns:
        The folder of the suite, for helm-summarize to write to.
    """
    shutil.copytree(source, site, copy_function=shutil.copyfile)
    (site / INDEX).write_text(without_others((source / INDEX).read_text(encoding="utf-8")), encoding="utf-8")
    (site / CONFIG).write_text(configuration(first_page), encoding="utf-8")
    suite = suite_folder(site)
    suite.mkdir(parents=True)
    return suite


def suite_folder(site: Path) -> Path:
    return site / DATA / "runs" / SUITE


def without_others(html: str) -> str:
    """The page with a policy, and without what it would load from other hosts."""
    icon = '<link rel="icon" href="data:," />'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    head = f'<head>\n    {policy}\n    <meta name="referrer" content="no-referrer" />'
    return _ELSEWHERE.sub("", _ICON.sub(icon, html)).replace("<head>", head, 1)


def configuration(first_page: str) -> str:
    """config.js. HELM's landing page is about Stanford's leaderboards; it is left out where no page is asked for."""
    values = {"BENCHMARK_OUTPUT_BASE_URL": DATA, "SUITE": SUITE, "PROJECT_ID": "lite"}
    lines = [f"window.{name} = {json.dumps(value)};" for name, value in values.items()]
    landing = '["", "#", "#/"].includes(window.location.hash)'
    return "\n".join([*lines, f"if ({landing}) window.location.hash = {json.dumps(first_page)};"]) + "\n"


def page_of(runs: list[str]) -> str:
    """What is shown first: the run, or the tables where there are several."""
    return f"/runs/{quote(runs[0], safe='')}" if len(runs) == 1 else "/leaderboard"


def forget_place(site: Path) -> None:
    """Take the folder's own path out of the files that helm-summarize wrote: links in tables lead to it."""
    place = json.dumps(f"{site}/")[1:-1]
    suite = suite_folder(site)
    for file in (*suite.glob("*.json"), *suite.glob("groups/*.json"), *suite.glob("groups/json/*.json")):
        text = file.read_text(encoding="utf-8")
        if place in text:
            file.write_text(text.replace(place, ""), encoding="utf-8")


def without_colons(suite: Path) -> None:
    """Rename what helm-summarize named by a scenario's arguments (`mode:easy`), and what leads to it."""
    found = {file.name: file for file in (*suite.glob("groups/latex/*:*"), *suite.glob("groups/json/*:*"))}
    for file in found.values():
        file.rename(file.with_name(file.name.replace(":", "_")))
    for table in suite.glob("groups/*.json") if found else ():
        text = table.read_text(encoding="utf-8")
        for name in found:
            text = text.replace(json.dumps(name)[1:-1], json.dumps(name.replace(":", "_"))[1:-1])
        table.write_text(text, encoding="utf-8")
