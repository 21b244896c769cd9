from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config import suite_layers
from eval_factory.config.suite_layers import SuiteLayer, preset_names, read_layers
from eval_factory.core.errors import ConfigError


def layers(
    path: Path | None = None,
    document: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    overrides: tuple[str, ...] = (),
    **env: str,
) -> list[SuiteLayer]:
    problems: list[str] = []
    found = read_layers(document if path is None else path, flags or {}, overrides, env, problems)
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
    found = layers(tmp_path / "a.yml", flags={"suite.output_dir": "x"}, overrides=("suite.max_attempts=4",))
    origins = ["preset quick", str(tmp_path / "b.yml"), str(tmp_path / "a.yml"), "flag", "--overrides"]
    assert [layer.origin for layer in found] == origins
    assert [layer.is_preset for layer in found] == [True, False, False, False, False]
    assert [layer.wins for layer in found] == [False, False, False, True, True]
    assert found[1].folder == found[2].folder == tmp_path
    assert found[3].tree == {"output_dir": "x"}
    assert found[4].tree == {"max_attempts": 4}


def test_the_strongest_preset_is_taken(tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b.yml, preset: smoke}", b="{preset: quick}")
    assert layers(tmp_path / "a.yml")[0].origin == "preset smoke"
    assert layers(tmp_path / "a.yml", flags={"suite.preset": "medhelm_public"})[0].origin == "preset medhelm_public"


@pytest.mark.parametrize("nothing", ["null", "none"])
def test_a_preset_is_taken_back(tmp_path: Path, nothing: str) -> None:
    write(tmp_path, a=f"{{extends: b.yml, preset: {nothing}}}", b="{preset: quick}")
    assert [layer.origin for layer in layers(tmp_path / "a.yml")] == [str(tmp_path / "b.yml"), str(tmp_path / "a.yml")]
    write(tmp_path, c="{extends: a.yml, preset: smoke}")
    assert layers(tmp_path / "c.yml")[0].origin == "preset smoke"
    assert not layers(tmp_path / "c.yml", flags={"suite.preset": "none"})[0].is_preset


def test_a_file_extends_others_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path, a="{extends: more/b.yml}")
    write(tmp_path / "more", b="{extends: ../c.yml}")
    write(tmp_path, c="{max_attempts: 1}")
    monkeypatch.chdir(tmp_path / "more")
    found = layers(Path("../a.yml"))
    assert [Path(layer.origin).name for layer in found] == ["c.yml", "b.yml", "a.yml"]
    assert found[2].origin == "../a.yml"


@pytest.mark.parametrize(
    "extended", ["/etc/passwd", "../b.yml", "../../../etc/passwd", "link", "folder/b.yml", "/dev/zero"]
)
def test_a_file_extends_none_outside_of_its_folder(extended: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write(tmp_path, b="{a_secret_key: 1, 'secret text': 2}")
    (own / "link").symlink_to("../b.yml")
    (own / "folder").symlink_to("..")
    write(own, a=f"{{extends: {extended}}}", c="{extends: a.yml}", ok="{extends: inside}", e="{max_attempts: 3}")
    for name in ("a.yml", "c.yml"):
        (problem,) = problems(own / name)
        assert problem.endswith(f": leads out of the folder {own}; {suite_layers.COPY_IT}")
        assert problem.startswith(f"{own / 'a.yml'}: suite.extends: ")
        assert "secret" not in problem
    (own / "inside").symlink_to("e.yml")
    assert [layer.tree.get("max_attempts") for layer in layers(own / "ok.yml")] == [3, None]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("fifo", "is no regular file"),
        ("folder", "is a folder"),
        ("huge", "is larger than"),
        ("device", "is no regular"),
    ],
)
def test_a_file_extends_regular_files_of_moderate_size(kind: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b}")
    if kind == "fifo":
        os.mkfifo(tmp_path / "b")
    elif kind == "folder":
        (tmp_path / "b").mkdir()
    elif kind == "huge":
        (tmp_path / "b").touch()
        os.truncate(tmp_path / "b", 2**40)
    else:
        (tmp_path / "a.yml").unlink()
        (tmp_path / "a.yml").symlink_to("/dev/zero")  # the user names it
    (problem,) = problems(tmp_path / "a.yml")
    assert said in problem


def test_a_document_extends_files_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path, b="{max_attempts: 1}")
    write(tmp_path / "here", b="{max_attempts: 2}")
    assert layers(None, {"suite": {"extends": "b.yml"}})[0].tree == {"max_attempts": 2}
    with pytest.raises(ConfigError, match="leads out of the folder"):
        layers(None, {"suite": {"extends": "../b.yml"}})


def test_a_file_must_not_extend_itself(tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b.yml}", b="{extends: a.yml}")
    (problem,) = problems(tmp_path / "a.yml")
    assert problem.startswith(f"{tmp_path / 'a.yml'}: suite.extends: a file must not extend itself: ")
    assert problem.endswith(" extends ".join(str(tmp_path / name) for name in ("a.yml", "b.yml", "a.yml")))


def test_a_long_chain_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_layers, "MAX_EXTENDED", 3)
    write(tmp_path, a="{extends: b.yml}", b="{extends: c.yml}", c="{max_attempts: 1}", z="{extends: a.yml}")
    assert len(layers(tmp_path / "a.yml")) == 3
    assert "more than 3 files extend one another" in problems(tmp_path / "z.yml")[0]


def test_what_is_wrong_with_an_extended_file_is_said_with_both_names(tmp_path: Path) -> None:
    write(tmp_path, a="{extends: b.yml}", b="{extends: nowhere.yml}")
    (problem,) = problems(tmp_path / "a.yml")
    assert problem == f"{tmp_path / 'b.yml'}: suite.extends: {tmp_path / 'nowhere.yml'}: there is no such file"


def test_variables_are_filled_in_but_for_secrets() -> None:
    document = {"suite": {
        "output_dir": "${WHERE}", "max_attempts": "${N:-3}",
        "targets": [{"api_endpoint": {
            "url": "https://${HOST}/v1?code=${MY_SECRET}",
            "adapter_config": {"params_to_add": {"user_token": "${WHO}"}},
        }}],
        "judges": [{"url": "https://h/v1?api_key=${K}"}],
        "params": {"extra": {"judges": [{"url": "https://h/v1?api_key=${K}"}]}},
        "evaluations": [{"params": {"extra": {"judges": [{"url": "https://h/v1?api_key=${K}"}]}}}],
    }}  # fmt: skip
    (found,) = layers(None, document, WHERE="here", HOST="h", MY_SECRET="s", WHO="me", K="k")
    assert (found.tree["output_dir"], found.tree["max_attempts"]) == ("here", 3)
    endpoint = found.tree["targets"][0]["api_endpoint"]
    assert endpoint["url"] == "https://h/v1?code=${MY_SECRET}"
    assert endpoint["adapter_config"]["params_to_add"] == {"user_token": "${WHO}"}
    for judges in (
        found.tree["judges"], found.tree["params"]["extra"]["judges"],
        found.tree["evaluations"][0]["params"]["extra"]["judges"],
    ):  # fmt: skip
        assert judges == [{"url": "https://h/v1?api_key=${K}"}]
    assert document["suite"]["output_dir"] == "${WHERE}"


def test_a_variable_that_is_not_set_is_named_with_file_and_place(tmp_path: Path) -> None:
    write(tmp_path, a="{params: {top_p: '${NOT_SET}'}}")
    (problem,) = problems(tmp_path / "a.yml")
    assert problem.startswith(f"{tmp_path / 'a.yml'}: suite.params.top_p: the environment variable NOT_SET is not set")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"config": {}}, ["config: belongs to a run config, which run_eval runs; a suite has all its keys under `suite:`"]),
        ({"suit": {}}, ["unknown key suit, did you mean 'suite'?; a suite has all its keys under `suite:`",
                        f"suite: is missing; a suite needs {suite_layers.NEEDS}"]),
        ({"suite": []}, ["suite: must be a mapping of keys to values"]),
        ({"suite": None}, [f"suite: is missing; a suite needs {suite_layers.NEEDS}"]),
        ({"suite": {"preset": "smok"}}, ["suite.preset: there is no preset 'smok', did you mean 'smoke'?"]),
        ({"suite": {"preset": "zzz"}}, [f"suite.preset: there is no preset 'zzz'; there are {', '.join(preset_names())}"]),
        ({"suite": {"output_dir": "a\udc80"}}, ["suite.output_dir: contains bytes that are not UTF-8"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_suite(document: dict[str, Any], said: list[str]) -> None:
    assert problems(None, document) == said


def test_an_override_needs_the_whole_path() -> None:
    found = problems(None, {"suite": {}}, overrides=("params.limit_samples=3",))
    assert found == ["--overrides: unknown key params; a suite has all its keys under `suite:`"]
