from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation
from eval_factory.config.load import load_run_config, parse_overrides
from eval_factory.core import plain_yaml
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import MAX_LEVELS, YamlError, YamlSyntaxError, parse
from facts import naming


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: [1, 1.5, x, true, null]", {"a": [1, 1.5, "x", True, None]}),
        ("{50256: -100}", {"50256": -100}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a: !!str 5", {"a": "5"}),
        ("[1:30, 1:30:00, 01:30:00, 90]", ["1:30", "1:30:00", "01:30:00", 90]),
        ("[1:30.5, 90.5]", ["1:30.5", 90.5]),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: \U0001f600", {"a": "\U0001f600"}),
    ],
)
def test_plain_values(text: str, value: Any) -> None:
    assert parse(text) == value


NO_YAML = {
    "a: [": "line 1, column 5",
    "a: *b": "undefined alias 'b'",
    "a: \x01": "is not valid YAML",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "line 2, column 1: the key 'a' is written twice"),
        ("1: a\n'1': b", "line 2, column 1: the key '1' is written twice"),
        ("x: 1\n? [a]\n: 1", "line 2, column 3: a key must be text, not a list or a mapping"),
        ("a:\n  on: 1", "line 2, column 3: a key must be text: 'on' is read as bool"),
        ("1.5: 1", "'1.5' is read as float"),
        ("a: 2024-01-01", "line 1, column 4: is read as a date; put it in quotes"),
        ("a: !!binary aGk=", "is !!binary; a configuration holds"),
        ("a: !mine x", "is !mine; a configuration holds"),
        ("a: &x [*x]", "line 1, column 4: an alias refers to a value that contains it"),
        ('a: "\\ud800"', "line 1, column 4: holds half a character"),
        ('"\\ud800": 1', "line 1, column 1: holds half a character"),
        ("a: !!int x", "holds a value that is not what its tag says"),
        ("a: !!int ''", "holds a value that is not what its tag says"),
        ("a: {b: [.inf]}", "a.b[0]: must be a finite number"),
        (".nan", "the value: must be a finite number"),
        ("[" * 1000, "is nested too deeply"),
        *NO_YAML.items(),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(YamlError) as raised:
        parse(text)
    assert said in str(raised.value)
    assert isinstance(raised.value, YamlSyntaxError) is (text in NO_YAML)


def test_levels() -> None:
    most = "[" * MAX_LEVELS + "]" * MAX_LEVELS
    assert parse(most) is not None
    with pytest.raises(YamlError, match=f"{MAX_LEVELS + 1} levels"):
        parse(f"[{most}]")
    chain = "a: &a [x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [[[*{chr(97 + n)}]]]\n" for n in range(20)
    )
    with pytest.raises(YamlError, match="63 levels"):
        parse(chain)


def test_values_are_counted_with_their_aliases() -> None:
    entries = plain_yaml.MAX_NODES // 1000 - 3
    lists = "a: &a [" + "x," * (1000 - 1) + "]\nb: [" + "*a," * entries + "]"
    assert len(parse(lists)["b"]) == entries
    with pytest.raises(YamlError, match=f"{plain_yaml.MAX_NODES:,} at most"):
        parse(lists.replace("*a,", "*a,*a,", 3))


def test_digits_of_a_number() -> None:
    longest = "9" * plain_yaml.MAX_NUMBER_CHARACTERS
    assert parse(longest) == int(longest)
    for text in (f"{longest}9", f"{longest}.0"):
        with pytest.raises(YamlError, match=f"a number of {len(text)} characters"):
            parse(text)
    assert parse(f"'{longest}9'") == f"{longest}9"


def test_what_no_file_can_hold() -> None:
    tree = {"a": ["x", {"b": "\udcff"}], "c": 1, "\ud800": "x", "d": {"\ud800": 1}}
    assert list(plain_yaml.paths_not_writable(tree)) == ["a[1].b", "a key", "d"]
    assert list(plain_yaml.paths_not_finite({"a": [1.0, {"b": float("nan")}]})) == ["a[1].b"]


def test_a_run_config_is_no_large_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text("a: |\n" + "  x" + "y" * (plain_yaml.MAX_CONFIG_BYTES - 8))
    assert set(load_run_config(file)) == {"a"}
    file.write_text(file.read_text() + "y")
    for path, said in ((file, "is larger than 256 KiB"), (tmp_path / "a\0b", "cannot be read")):
        with pytest.raises(ConfigError, match=said):
            load_run_config(path)


def test_overrides_have_the_same_limits() -> None:
    most = ".".join("a" * MAX_LEVELS)
    assert parse_overrides((f"{most}=1",))
    with pytest.raises(ConfigError, match=f"{MAX_LEVELS + 1} names in one path"):
        parse_overrides((f"{most}.a=1",))
    with pytest.raises(ConfigError, match=naming("--overrides: a.b: ", "nested too deeply")):
        parse_overrides(("a.b=" + "[" * 60 + "]" * 60,))
    assert parse_overrides(("a=2: x: y",)) == {"a": "2: x: y"}


def test_bytes_that_are_no_utf_8_are_named() -> None:
    for text in ("x\udcff", "${X}"):
        with pytest.raises(ConfigError, match=naming("flag: config.output_dir: ", "not UTF-8")):
            evaluation({"config.output_dir": text}, X="x\udcff")
    long = evaluation({"target.api_endpoint.model_id": "${X}"}, X="[" * 1000)
    assert long.run.target.api_endpoint.model_id == "[" * 1000
    with pytest.raises(ConfigError) as raised:
        evaluation({"config.params.limit_samples": "x" * 5000})
    assert 200 < len(str(raised.value)) < 400, "a wrong value is shown in part"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; it needs a name"),
        (b"# nothing", "is empty; it needs a name"),
        (b"[x]", "holds a list instead of a mapping; it needs a name"),
        (b"[]", "holds a list instead of a mapping"),
        (b"x", "holds a text instead of a mapping"),
        (b"1", "holds a number instead of a mapping"),
        (b"1.5", "holds a number instead of a mapping"),
        (b"true", "holds true or false instead of a mapping"),
        (b"a: [", "line 1, column 5"),
        (b"\xff", "is not a UTF-8 text file"),
        ("folder", "is a folder, not a file"),
        ("none.yml", "there is no such file"),
    ],
)
def test_a_file_without_a_mapping_is_named(tmp_path: Path, content: bytes | str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / (content if isinstance(content, str) else "x.yml")
    if isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(f"{file}: ") + f".*{said}"):
        plain_yaml.load_mapping(file, needs="a name")
    (tmp_path / "y.yml").write_text("name: {a: 1}", encoding="utf-8")
    assert plain_yaml.load_mapping(tmp_path / "y.yml", needs="a name") == {"name": {"a": 1}}


def test_own_files_are_read_without_the_limits_of_a_configuration() -> None:
    assert plain_yaml.parse_own_text("day: 2024-05-01")["day"].isoformat() == "2024-05-01"
    assert plain_yaml.parse_own_text("[" * (MAX_LEVELS + 1) + "]" * (MAX_LEVELS + 1)) is not None
    assert plain_yaml.parse_own_text("") is None
    for text, said in (
        ("a: [1,\n", "line 2, column 1"),
        ("!!python/name:os.system", "constructor"),
    ):
        with pytest.raises(YamlSyntaxError, match=said):
            plain_yaml.parse_own_text(text)
