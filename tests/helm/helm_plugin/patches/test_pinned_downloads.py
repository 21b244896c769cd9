"""In a process of their own: what is patched stays patched."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from builders import plan
from eval_factory.core.helm_run_settings import HelmRunSettings, Pins
from eval_factory.data.pins import pins_of
from eval_factory.endpoint.media import type_of
from eval_factory.helm_plugin.patches import scenarios
from facts import says
from invented_bundle import REVISION, Origin

READS_A_FILE = """
import sys, urllib.request
urllib.request.urlretrieve = lambda url, target: open(target, "w").write(url)
from eval_factory.helm_plugin.patches.patch_registry import patch_named
patch_named("read_pinned_revisions").apply()
from helm.benchmark.scenarios.medbullets_scenario import MedBulletsScenario
print(open(MedBulletsScenario().download_csv(sys.argv[1], "_op5")).read())
"""

CANNOT_READ_IT = """
import os, sys, urllib.error, urllib.request
def retrieve(url, target):
    raise urllib.error.URLError("nobody there")
urllib.request.urlretrieve = retrieve
from eval_factory.helm_plugin.patches.patch_registry import patch_named
patch_named("name_failed_downloads").apply()
if "EVAL_FACTORY_SETTINGS" in os.environ:
    patch_named("read_pinned_revisions").apply()
from helm.benchmark.scenarios.medbullets_scenario import MedBulletsScenario
try:
    MedBulletsScenario().download_csv(sys.argv[1], "_op5")
except Exception as error:
    print(type(error).__name__, error.__cause__, error)
"""

WANTS_A_PACKAGE = """
from helm.common import general
def download(*args, **kwargs):
    raise ValueError("odd")
general.ensure_file_downloaded = download
from eval_factory.helm_plugin.patches.patch_registry import patch_named
patch_named("name_failed_downloads").apply()
try:
    general.ensure_file_downloaded("https://x", "y", unpack=True)
except Exception as error:
    print(type(error).__name__, error)
"""

LOADS_DATA_SETS = """
import json
from types import SimpleNamespace
import datasets.load
asked = []
def build(path, *args, **kwargs):
    if path == "org/several" and kwargs["name"] is None:
        raise ValueError("There are multiple configurations in the cache: default, judge_prompts")
    asked.append((path, kwargs.get("name") or kwargs.get("revision"), kwargs.get("cache_dir")))
    return SimpleNamespace(cache_dir="/cache/rev", config=SimpleNamespace(name="default"))
datasets.load.load_dataset_builder = build
from eval_factory.helm_plugin.patches.patch_registry import patch_named
patch_named("read_pinned_revisions").apply()
patch_named("record_hub_revisions").apply()
for path, revision in (("org/pinned", None), ("org/pinned", "its own"), ("org/other", None)):
    datasets.load.load_dataset_builder(path, revision=revision, cache_dir="/scenario/data")
datasets.load.load_dataset_builder("org/several", name=None, cache_dir="/scenario/data")
print(json.dumps(asked))
"""


ASKS_THE_HUB = """
import datasets, json, sys
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.helm_plugin.patches.scenarios import _loaded
patch_named("read_pinned_revisions").apply()
patch_named("record_hub_revisions").apply()
for name in sys.argv[1:]:
    try:
        datasets.load_dataset(name)
    except Exception as error:
        print(error)
print(json.dumps({entry["id"]: entry["revision"] for entry in _loaded.values()}))
"""
GONE = "cd" * 20


def run(code: str, variables: dict[str, str], *arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip().splitlines()[-1]


def pinned_medbullets() -> tuple[str, dict[str, str]]:
    """Return where it is read, and what helm-run is told of it."""
    pins = pins_of(plan({"config.type": "medbullets"}))
    assert pins is not None
    (url,) = pins.files.values()
    return url, HelmRunSettings(pins=pins).environment()


def test_a_file_of_a_branch_is_read_at_its_commit(tmp_path: Path) -> None:
    url, told = pinned_medbullets()
    assert "/refs/heads/" not in url
    assert run(READS_A_FILE, told, str(tmp_path)) == url


def test_a_download_that_fails_says_which_file_and_where_it_belongs(tmp_path: Path) -> None:
    url, told = pinned_medbullets()
    for variables, asked in ((told, url), ({}, "https://raw.githubusercontent.com/")):
        said = run(CANNOT_READ_IT, variables, str(tmp_path))
        assert said.startswith(f"DownloadError None {asked}")
        says(said, "not be downloaded", "URLError", "nobody there")
        assert f"put it yourself at {tmp_path}/" in said


def test_a_package_that_is_missing_is_no_failed_download() -> None:
    assert run(WANTS_A_PACKAGE, {}) == "ValueError odd"


@pytest.mark.parametrize(("offline", "folder"), [("1", None), ("0", "/scenario/data")])
def test_a_data_set_is_read_at_its_revision_unless_helm_names_one(
    offline: str, folder: str | None
) -> None:
    """healthqa_br names a folder of its own for what it downloads; a bundle's data sets lie in HF_HOME."""
    told = HelmRunSettings(pins=Pins(hub={"org/pinned": "abc"})).environment()
    assert json.loads(run(LOADS_DATA_SETS, {**told, "HF_HUB_OFFLINE": offline})) == [
        ["org/pinned", "abc", folder],
        ["org/pinned", "its own", folder],
        ["org/other", None, folder],
        ["org/several", "default", folder],
    ]


def serve(origin: Origin, name: str, *, newest: bool) -> None:
    """The data set under another name; as its newest revision, too, or as a pinned one only."""
    for known, content in list(origin.files.items()):
        if "/org/Some-Calc" in known and (newest or REVISION in known):
            path = known.replace("org/Some-Calc", name)
            origin.files[path] = content.replace(b"org/Some-Calc", name.encode())
            if newest:
                origin.files[path.replace(REVISION, "main")] = origin.files[path]


def test_the_pinned_revision_is_read_and_the_newest_where_it_cannot_be_any_more(
    tmp_path: Path, origin: Origin
) -> None:
    """By the real `datasets` package; any other failure is not answered by reading something else."""
    names = ("org/There", "org/Gone", "org/Script", "org/Refused")
    there, gone, script, refused = names
    for name in names:
        serve(origin, name, newest=name != there)
    for path in (f"/api/datasets/{gone}/revision/{GONE}", f"/datasets/{gone}/resolve/{GONE}"):
        for file in ("", "/README.md"):
            origin.altered[f"{path}{file}"] = (404, b"", {"X-Error-Code": "RevisionNotFound"})
    files = {"README.md": b"", "Script.py": b"raise SystemExit('it was run')"}
    info = {"id": script, "sha": GONE, "siblings": [{"rfilename": file} for file in files]}
    origin.files[f"/api/datasets/{script}/revision/{GONE}"] = json.dumps(info).encode()
    for file, content in files.items():
        headers = {"ETag": f'"{file}"', "X-Repo-Commit": GONE}
        origin.altered[f"/datasets/{script}/resolve/{GONE}/{file}"] = (200, content, headers)
    for path in (
        f"/api/datasets/{refused}/revision/{GONE}",
        f"/datasets/{refused}/resolve/{GONE}/README.md",
    ):
        origin.altered[path] = (403, b"", {})
    pins = Pins(hub={name: REVISION if name == there else GONE for name in names})
    libraries = {"HF_ENDPOINT": origin.url, "HF_HOME": str(tmp_path)}
    told = HelmRunSettings(pins=pins, library_variables=libraries).environment()
    assert json.loads(run(ASKS_THE_HUB, told, *names)) == dict.fromkeys(
        (there, gone, script), REVISION
    )


READS_WHAT_LIES_HERE = """
import datasets
from eval_factory.helm_plugin.patches.patch_registry import patch_named
patch_named("record_hub_revisions").apply()
try:
    datasets.load_dataset("org/some_calc", trust_remote_code=True)
except Exception as error:
    print(type(error).__name__, error)
else:
    print("loaded")
"""


def test_a_folder_of_a_data_sets_name_is_not_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a script in it is not executed: HELM trusts those of the Hub."""
    folder = tmp_path / "org" / "some_calc"
    folder.mkdir(parents=True)
    (folder / "some_calc.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    said = run(READS_WHAT_LIES_HERE, {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
    says(said, "DataInTheWayError", "org/some_calc")
    assert not (tmp_path / "trace").exists()
    monkeypatch.chdir(folder)  # from elsewhere the Hub is asked
    assert "DataInTheWay" not in run(
        READS_WHAT_LIES_HERE, {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    )
    assert not (tmp_path / "trace").exists()


def test_a_picture_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    """HELM keeps one that is there, whether a run that was killed wrote all of it or not."""

    def killed(_picture: Image.Image, file: str, *_: str) -> None:
        Path(file).write_bytes(b"half")
        raise KeyboardInterrupt

    save = scenarios.save_pictures_at_once(Image.Image.save)
    drawn = Image.new("RGB", (2, 2))
    out = io.BytesIO()
    with pytest.raises(KeyboardInterrupt):
        scenarios.save_pictures_at_once(killed)(drawn, str(tmp_path / "w.png"))
    save(drawn, str(tmp_path / "x.JPG"))
    save(drawn, tmp_path / "y.png", format="GIF", comment="z")
    save(drawn, out, "PNG")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["w.png.part", "x.JPG", "y.png"]
    contents = (tmp_path / "x.JPG").read_bytes(), (tmp_path / "y.png").read_bytes(), out.getvalue()
    assert [type_of(content) for content in contents] == ["image/jpeg", "image/gif", "image/png"]
