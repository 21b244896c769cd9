from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.cli.console import HomePath
from eval_factory.core.errors import ConfigError
from eval_factory.core.safe_files import cache_folder, expanded
from unit.builders import evaluation


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")


@pytest.mark.parametrize(
    ("text", "path"), [("~/x", "/home/me/x"), ("~", "/home/me"), ("a/~", "a/~"), ("./~x", "./~x"), ("", "")]
)
def test_expanded(text: str, path: str) -> None:
    assert expanded(text) == path


def test_nobodys_home_is_a_mistake() -> None:
    told = r"there is no user 'no-such-user'; write \./~no-such-user/x for a path that begins with '~no-such-user'"
    with pytest.raises(ValueError, match=told):
        expanded("~no-such-user/x")


@pytest.mark.parametrize("longest", ["x" * 255, "/".join(["x" * 194] * 21) + "x", "ü" * 127])
def test_paths_that_are_too_long(longest: str) -> None:
    assert expanded(longest) == longest
    with pytest.raises(ValueError, match="is too long for a path"):
        expanded(f"{longest}yy")


def test_paths_of_a_run_config_and_of_the_command_line() -> None:
    found = evaluation({"config.output_dir": "~/o", "config.params.extra.data_dir": "~/d"})
    assert (found.run.config.output_dir, found.run.config.params.extra.data_dir) == ("/home/me/o", "/home/me/d")
    own = {"data_path": "~/e", "subject": "lab_anemia"}
    flags = {"config.type": "ehrshot", **{f"config.params.extra.{name}": value for name, value in own.items()}}
    assert evaluation(flags).run.config.params.extra.data_path == "/home/me/e"
    with pytest.raises(ConfigError, match=r"config\.output_dir: there is no user"):
        evaluation({"config.output_dir": "~no-such-user/o"})
    assert HomePath().convert("~/x", None, None) == Path("/home/me/x")


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/eval-factory"), ({"XDG_CACHE_HOME": "/c"}, "/c/eval-factory"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "c"}, "/home/a/.cache/eval-factory"),
        ({}, "/home/me/.cache/eval-factory"),
    ],
)  # fmt: skip
def test_where_a_users_programs_cache(env: dict[str, str], folder: str) -> None:
    assert cache_folder(env) == Path(folder)
