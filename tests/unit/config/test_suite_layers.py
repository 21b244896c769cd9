from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config import suite_layers
from eval_factory.config.suite_layers import SuiteLayer, preset_names, read_layers
from eval_factory.core.errors import ConfigError
from facts import each_says, naming, says


def layers(
    given: Path | dict[str, Any],
    flags: dict[str, Any] | None = None,
    overrides: tuple[str, ...] = (),
    **env: str,
) -> list[SuiteLayer]:
    problems: list[str] = []
    found = read_layers(given, flags or {}, overrides, env, problems)
    if problems:
        raise ConfigError(problems)
    return found


def problems(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        layers(*args, **kwargs)
    return raised.value.problems


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(f"suite: {text}\n")


def test_the_weakest_is_the_preset_and_the_strongest_an_override(tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b.yml}", b="{preset: quick, max_attempts: 3}")
    found = layers(
        tmp_path / "a.yml", flags={"suite.output_dir": "x"}, overrides=("suite.max_attempts=4",)
    )
    assert [(layer.name, layer.is_preset, layer.is_command_line) for layer in found] == [
        ("preset quick", True, False),
        (str(tmp_path / "b.yml"), False, False),
        (str(tmp_path / "a.yml"), False, False),
        ("flag", False, True),
        ("--overrides", False, True),
    ]
    assert found[1].folder == found[2].folder == tmp_path
    assert (found[3].tree, found[4].tree) == ({"output_dir": "x"}, {"max_attempts": 4})


@pytest.mark.parametrize("nothing", ["null", "none"])
def test_the_strongest_preset_is_taken_or_taken_back(tmp_path: Path, nothing: str) -> None:
    write(
        tmp_path,
        a=f"{{extends: b.yml, preset: {nothing}}}",
        b="{preset: quick}",
        c="{extends: a.yml, preset: smoke}",
    )
    assert layers(tmp_path / "b.yml")[0].name == "preset quick"
    assert [layer.name for layer in layers(tmp_path / "a.yml")] == [
        str(tmp_path / "b.yml"),
        str(tmp_path / "a.yml"),
    ]
    assert layers(tmp_path / "c.yml")[0].name == "preset smoke"
    assert (
        layers(tmp_path / "c.yml", flags={"suite.preset": "medhelm_public"})[0].name
        == "preset medhelm_public"
    )
    assert not layers(tmp_path / "c.yml", flags={"suite.preset": "none"})[0].is_preset


def test_a_file_extends_others_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path, a="{extends: more/b.yml}", c="{max_attempts: 1}")
    write(tmp_path / "more", b="{extends: ../c.yml}")
    monkeypatch.chdir(tmp_path / "more")
    found = layers(Path("../a.yml"))
    assert [Path(layer.name).name for layer in found] == ["c.yml", "b.yml", "a.yml"]
    assert found[2].name == "../a.yml"


@pytest.mark.parametrize(
    "extended",
    ["/etc/passwd", "../b.yml", "../../../etc/passwd", "link", "folder/b.yml", "/dev/zero"],
)
def test_a_file_extends_none_outside_of_its_folder(extended: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write(tmp_path, b="{a_secret_key: 1, 'secret text': 2}")
    (own / "link").symlink_to("../b.yml")
    (own / "folder").symlink_to("..")
    write(
        own,
        a=f"{{extends: {extended}}}",
        c="{extends: a.yml}",
        ok="{extends: inside}",
        e="{max_attempts: 3}",
    )
    for name in ("a.yml", "c.yml"):
        (problem,) = problems(own / name)
        says(problem, f"folder {own}")
        assert problem.endswith(suite_layers.COPY_ADVICE)
        assert problem.startswith(f"{own / 'a.yml'}: suite.extends: ")
        assert "secret" not in problem
    (own / "inside").symlink_to("e.yml")
    assert [layer.tree.get("max_attempts") for layer in layers(own / "ok.yml")] == [3, None]


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is not a regular file"),
        (os.mkdir, "is a folder"),
        (huge, "is larger than"),
        (lambda path: path.with_name("a.yml").unlink(), "is not a regular"),
    ],
    ids=["fifo", "folder", "huge", "device"],
)
def test_a_file_extends_regular_files_of_moderate_size(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    write(tmp_path, a="{extends: b}")
    make(tmp_path / "b")
    if not (tmp_path / "a.yml").exists():
        (tmp_path / "a.yml").symlink_to("/dev/zero")  # the user names it
    (problem,) = problems(tmp_path / "a.yml")
    assert said in problem


def test_a_document_extends_files_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path, b="{max_attempts: 1}")
    write(tmp_path / "here", b="{max_attempts: 2}")
    assert layers({"suite": {"extends": "b.yml"}})[0].tree == {"max_attempts": 2}
    with pytest.raises(ConfigError, match=naming("out of the folder")):
        layers({"suite": {"extends": "../b.yml"}})


def test_a_file_must_not_extend_itself_nor_a_long_chain_of_others(tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b.yml}", b="{extends: a.yml}")
    (problem,) = problems(tmp_path / "a.yml")
    says(problem, f"{tmp_path / 'a.yml'}: suite.extends: ", "20 files", "extends itself")
    most = suite_layers.MAX_FILES
    chain = {f"f{number}": f"{{extends: f{number + 1}.yml}}" for number in range(most)}
    write(tmp_path, **chain, **{f"f{most}": "{max_attempts: 1}"})
    assert len(layers(tmp_path / "f1.yml")) == most
    says(problems(tmp_path / "f0.yml")[0], f"more than {most} files", "extends itself")


def test_what_is_wrong_is_said_with_file_and_place(tmp_path: Path) -> None:
    """Of an extended file with both names."""
    write(
        tmp_path,
        a="{extends: b.yml}",
        b="{extends: nowhere.yml}",
        c="{params: {top_p: '${NOT_SET}'}}",
    )
    (problem,) = problems(tmp_path / "a.yml")
    says(
        problem,
        f"{tmp_path / 'b.yml'}: suite.extends: ",
        f"{tmp_path / 'nowhere.yml'}: ",
        "no such file",
    )
    (problem,) = problems(tmp_path / "c.yml")
    says(problem, f"{tmp_path / 'c.yml'}: suite.params.top_p: ", "NOT_SET is not set")
    found = problems({"suite": {}}, overrides=("params.limit_samples=3",))
    each_says(found, ["--overrides: ", "params", "`suite:`"])


def test_variables_are_filled_in_but_for_secrets() -> None:
    judges = [{"url": "https://h/v1?api_key=${K}"}]
    endpoint = {
        "url": "https://${HOST}/v1?code=${MY_SECRET}",
        "adapter_config": {"params_to_add": {"user_token": "${WHO}"}},
    }
    suite = {
        "output_dir": "${WHERE}",
        "max_attempts": "${N:-3}",
        "targets": [{"api_endpoint": endpoint}],
        "judges": judges,
        "params": {"extra": {"judges": judges}},
        "evaluations": [{"params": {"extra": {"judges": judges}}}],
    }
    (found,) = layers({"suite": suite}, WHERE="here", HOST="h", MY_SECRET="s", WHO="me", K="k")
    filled = {**endpoint, "url": "https://h/v1?code=${MY_SECRET}"}
    assert found.tree == {
        **suite,
        "output_dir": "here",
        "max_attempts": 3,
        "targets": [{"api_endpoint": filled}],
    }
    assert suite["output_dir"] == "${WHERE}"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"config": {}},
            [
                "config: belongs to a run config, which run_eval runs; a suite has all its keys under `suite:`"
            ],
        ),
        (
            {"suit": {}},
            [
                "unknown key suit, did you mean 'suite'?; a suite has all its keys under `suite:`",
                f"suite: is missing; a suite needs {suite_layers.NEEDED_KEYS}",
            ],
        ),
        ({"suite": []}, ["suite: must be a mapping of keys to values"]),
        ({"suite": None}, [f"suite: is missing; a suite needs {suite_layers.NEEDED_KEYS}"]),
        (
            {"suite": {"preset": "smok"}},
            ["suite.preset: there is no preset 'smok', did you mean 'smoke'?"],
        ),
        (
            {"suite": {"preset": "zzz"}},
            [f"suite.preset: there is no preset 'zzz'; there are {', '.join(preset_names())}"],
        ),
        (
            {"suite": {"output_dir": "a\udc80"}},
            ["suite.output_dir: contains bytes that are not UTF-8"],
        ),
    ],
    ids=str,
)
def test_what_is_no_suite(document: dict[str, Any], said: list[str]) -> None:
    assert problems(document) == said
