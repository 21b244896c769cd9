from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eval_factory.core import secrets
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import LONG_TEXT, REDACTED, Redactor, is_placeholder

KEY = "plain-looking-value-77"


@pytest.mark.parametrize(
    "text",
    [
        "sk-0123456789abcdef",
        "sk-01234567",
        "a://b:c@d",
        "nvapi-abcdefgh12345678",
        "hf_abcdefghijklmnop",
        "Authorization: Bearer abc.def-123",
        "http://user:pass@proxy:8080",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        '{"authorization": "Bearer x"}',
        "authorization=basic dTpwYXNz",
        "Bearer 9bQzCANARY7Kd0PLx2Mn",
        "got Basic dXNlcjpwYXNzd29yZA==",
    ],
)
def test_shapes_are_redacted(text: str) -> None:
    assert REDACTED in Redactor().redact_text(f"before {text} after")


ODD_KEY = 'sk/Canary+5f&3a9c"1e7b2?d48~'


def of_letters(form: str) -> Callable[[str], str]:
    """Return a function that writes every letter of a key as its number."""
    return lambda key: "".join(form.format(ord(letter)) for letter in key)


ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64, one before": lambda key: base64.b64encode(f"u{key}".encode()).decode(),
    "base64, two before": lambda key: base64.b64encode(f"u:{key}".encode()).decode(),
    "base64, something behind": lambda key: base64.b64encode(f"u:{key}@host".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(
        f"\xff\xfe{key}".encode("latin-1")
    ).decode(),
    "hexadecimal": lambda key: key.encode().hex(),
    "hexadecimal, large": lambda key: key.encode().hex().upper(),
    "for a URL": quote,
    "for a URL, all": lambda key: quote(key, safe=""),
    "for a URL, small": lambda key: re.sub(
        "%..", lambda match: match[0].lower(), quote(key, safe="")
    ),
    "for a URL, plus": quote_plus,
    "for a URL, twice": lambda key: quote(quote(key, safe=""), safe=""),
    "for a URL, every character": of_letters("%{:02X}"),
    "for a URL, every character, small": of_letters("%{:02x}"),
    "for a URL, every other": lambda key: "".join(
        f"%{ord(c):02X}" if n % 2 else c for n, c in enumerate(key)
    ),
    "JSON": json.dumps,
    "JSON, every character": of_letters("\\u{:04x}"),
    "JSON, every character, large": of_letters("\\u{:04X}"),
    "JSON in JSON": lambda key: json.dumps(of_letters("\\u{:04x}")(key)),
    "JavaScript": of_letters("\\u{{{:x}}}"),
    "bytes": of_letters("\\x{:02x}"),
    "HTML": html.escape,
    "HTML, numbers": of_letters("&#{};"),
    "HTML, hexadecimal numbers": of_letters("&#x{:X};"),
}


@pytest.mark.parametrize("key", [KEY, ODD_KEY, "0123456789ab"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_known_key_is_redacted_in_any_encoding(encoding: str, key: str) -> None:
    encoded = ENCODINGS[encoding](key)
    said = Redactor([key]).redact_known(f"before {encoded} after")
    assert REDACTED in said
    assert said.startswith("before ")
    assert said.endswith(" after")
    rest = said.removeprefix("before ").removesuffix(" after").replace(REDACTED, "")
    # a user name before the key, a host after it, and base64 digits that also encode the key's bits
    assert len(rest) <= 14
    assert encoded not in said
    assert (
        Redactor(["another-value-of-a-key-1"]).redact_known(f"before {encoded} after")
        == f"before {encoded} after"
    )


def test_only_the_key_is_taken_out_of_base64() -> None:
    """The digits that also encode the text around the key stay."""
    encoded = base64.b64encode(f"name:{KEY}@host.example".encode()).decode()
    before, after = Redactor([KEY]).redact_known(encoded).split(REDACTED)
    assert base64.b64decode(before[: len(before) // 4 * 4]) == b"nam"
    assert encoded.endswith(after)
    assert base64.b64decode(after[-(len(after) // 4 * 4) :]).endswith(b"host.example")


@pytest.mark.parametrize(
    "text",
    [
        "The risk-benefit ratio; see https://host/v1 and a@b.c; task-force; sk-1",
        "Basic metabolic panel reveals sodium 133",
        "Basic Conditioning Factors",
        "the Basic Otorhinolaryngological exam",
        "Bearer of the BRCA1 mutation",
        "Bearer of otorhinolaryngological news",
        "Prior authorization: Basic metabolic panel",
    ],
)
def test_ordinary_and_clinical_text_is_left_alone(text: str) -> None:
    assert Redactor().redact_text(text) == Redactor([KEY]).redact_text(text) == text


@pytest.mark.parametrize(
    "value",
    ["secret", "ollama", "EMPTY", "none", "sk-1", "Gastroenterology", "not-required", "abc123XY"],
)
def test_a_placeholder_is_no_secret(value: str) -> None:
    text = f"gastric {value}ion of ollama/llama3 in /data/{value}/x"
    assert is_placeholder(value)
    assert Redactor([value, f"{value}\r\n"]).redact_text(text) == text


def test_a_real_key_is_redacted_wherever_it_stands() -> None:
    for key in ("token-abc123", "correct-horse-battery-staple", KEY, "q" * 30):
        assert not is_placeholder(key)
        assert (
            Redactor([f"{key}\r\n"]).redact_text(f"x{key}y %20{key}\\n")
            == f"x{REDACTED}y %20{REDACTED}\\n"
        )


def test_tree() -> None:
    tree = {"a": [KEY, 1, {"b": f"x{KEY}"}], KEY: None, 2: True, "c": "sk-0123456789abcdef"}
    clean = {"a": [REDACTED, 1, {"b": f"x{REDACTED}"}], REDACTED: None, 2: True}
    assert Redactor([KEY]).redact_tree(tree) == {**clean, "c": REDACTED}
    assert Redactor([KEY]).redact_tree(tree, known_only=True) == {
        **clean,
        "c": "sk-0123456789abcdef",
    }
    line = json.dumps({"a": 'Bearer abc"x', "b": f"{KEY}\n", "c": "http://u:p@h/\nBearer x\\y"})
    assert json.loads(Redactor([KEY]).redact_text(line))


def test_proxy_passwords_are_known() -> None:
    env = {"HTTPS_PROXY": "http://me:proxy-password-1@proxy:3128", "K": KEY}
    redactor = Redactor.from_environment(env, ["K"])
    assert "proxy-password-1" not in redactor.redact_text("the proxy-password-1 leaked")
    assert KEY not in redactor.redact_text(KEY)


def test_a_variable_that_holds_a_path_blinds_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that is also the name of a file in the current folder is redacted."""
    folder = tmp_path / "a-long-folder"
    gone = "/no/such/folder-0123456789"
    folder.mkdir()
    (tmp_path / KEY).touch()
    monkeypatch.chdir(tmp_path)
    env = {"SERVICE_CREDENTIALS": str(folder), "STORE_KEY": gone, "DB_PWD": KEY}
    redactor = Redactor.from_environment(env, env)
    assert (
        redactor.redact_text(f"log: {folder}/x; {gone}; {KEY}")
        == f"log: {folder}/x; {REDACTED}; {REDACTED}"
    )


def test_a_known_secret_is_found_as_it_is_or_encoded() -> None:
    secret = "a-secret-of-some-length-1"
    redactor = Redactor()
    text = f"it holds {secret} and more"
    assert not redactor.finds(secret)
    assert redactor.redact_text(text) == redactor.redact_text(text) == text
    redactor.learn(secret)
    assert (
        redactor.redact_text(text) == redactor.redact_text(text) == f"it holds {REDACTED} and more"
    )
    assert redactor.finds(f"x{secret}y")
    assert redactor.finds(secret.encode().hex())
    assert not redactor.finds(secret[:-1])


SPREAD: dict[str, Callable[[str], str]] = {
    "a line break": lambda key: f"{key[:9]}\n{key[9:]}",
    "a line break and an indent": lambda key: f"{key[:9]}\r\n    {key[9:]}",
    "a line break in JSON": lambda key: json.dumps(f"{key[:9]}\n{key[9:]}")[1:-1],
    "a line break in JSON in JSON": lambda key: json.dumps(json.dumps(f"{key[:9]}\n\t{key[9:]}"))[
        3:-3
    ],
    "a line break in a URL": lambda key: f"{key[:9]}%0A{key[9:]}",
    "a blank in a URL in a URL": lambda key: f"{key[:9]}%2520{key[9:]}",
    "a line break in HTML": lambda key: f"{key[:9]}&#xA;{key[9:]}",
    "blanks": " ".join,
    "wide blanks": "\u3000\u200b".join,
    "separators": "_-_".join,
    "backslashes": "\\".join,
    "quotes and commas": lambda key: str(list(key)),
    "backwards": lambda key: key[::-1],
    "backwards, with blanks": lambda key: " ".join(key[::-1]),
    "base64 in lines": lambda key: "\n".join(
        re.findall(".{1,7}", base64.b64encode(key.encode()).decode())
    ),
    "hexadecimal digits in pairs": lambda key: key.encode().hex(" "),
    "without its separators": lambda key: re.sub("[^A-Za-z0-9]", "", key),
}


@pytest.mark.parametrize("key", [KEY, "0123456789ab", "nvapi-tnrb0123456789"])
@pytest.mark.parametrize("way", SPREAD)
def test_a_known_key_is_redacted_however_it_is_spread(way: str, key: str) -> None:
    """The complete key is replaced: half a key would help to guess it."""
    redactor = Redactor([key])
    spread = SPREAD[way](key)
    is_escaped = any(form in way for form in ("in JSON", "URL", "HTML"))
    assert redactor.finds(f"before {spread} after") or is_escaped
    said = redactor.redact_known(f"before: {spread}; after")
    assert REDACTED in said
    # up to 4 more characters stay: quotes around the key, or digits of base64
    assert len(said.replace(REDACTED, "")) <= len("before: ; after") + 4
    assert redactor.redact_tree({"a": spread}, known_only=True) != {"a": spread}


@given(
    st.lists(
        st.tuples(st.sampled_from("aB1"), st.text("-_./+", max_size=2)), min_size=12, max_size=24
    ),
    st.lists(st.text(" \n\t-_.,;:'\"\\/\u00e9", max_size=5), min_size=24),
    st.booleans(),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_way_to_spread_a_key_leaves_two_of_its_letters_together(
    parts: list[tuple[str, str]], between: list[str], backwards: bool, before: str, after: str
) -> None:
    key = "".join(map("".join, parts))
    letters = "".join(letter for letter, _ in parts)
    assume(not is_placeholder(key))
    way = letters[::-1] if backwards else letters
    spread = "".join(map("".join, zip(way, between, strict=False)))
    said = Redactor([key]).redact_known(f"{before} {spread} {after}")
    assert REDACTED in said
    assert letters not in re.sub("[^A-Za-z0-9]", "", said.replace(REDACTED, "|"))


@given(st.text(max_size=300))
def test_a_text_without_the_key_is_left_as_it_is(text: str) -> None:
    assert Redactor([KEY, ODD_KEY]).redact_known(text) == text


def test_several_spread_keys_are_found_and_words_of_one_of_few_letters_left_alone() -> None:
    """A key with few letters and digits is found only without separators."""
    other = "another-secret-of-mine-9"
    spread = f"{' '.join(KEY)} and {other[::-1]} and {KEY[:5]}\n{KEY[5:]}"
    assert (
        Redactor([KEY, other]).redact_known(spread) == f"{REDACTED} and {REDACTED} and {REDACTED}"
    )
    text = "a 1, b 2, c 3: a1b2c3"
    assert Redactor(["a-1-b-2-c-3-!!"]).redact_known(text) == text
    assert Redactor(["a-1-b-2-c-3-!!"]).redact_known("x a-1-b-2-c-3-!! y") == f"x {REDACTED} y"


ODD_LETTERS = 'sk/Can\u00e9"\\ry\u2028+5f&3a9c1e7b\n%d48'
HIDDEN = [
    *(
        change(key)
        for change, key in product((*ENCODINGS.values(), *SPREAD.values()), (KEY, ODD_KEY))
    ),
    ODD_LETTERS,
    json.dumps(ODD_LETTERS),
    "sk-0123456789abcdef",
    "a://b:c@d",
    "Authorization: Bearer abc.def-123",
    "Bearer 9bQzCANARY7Kd0PLx2Mn",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "nothing at all",
    "95 % of 5 &amp; \\n",
    "https://example.org/a",
]


@pytest.mark.parametrize(
    "redactor", [Redactor(), Redactor([KEY, ODD_KEY, ODD_LETTERS])], ids=["of shapes", "of keys"]
)
@pytest.mark.parametrize(
    "around", ["", "before ", "\n", '"', "\\", '\\"', "\\\n", "\t", "\u00e9", "\u2028", "\ud800"]
)
def test_a_line_is_that_of_the_redacted_value(redactor: Redactor, around: str) -> None:
    """The fast check of the complete line gives the same result as the redaction of each text."""
    for text in HIDDEN:
        hidden = f"{around}{text}{around}"
        for value in (hidden, {hidden: 1}, {"a": [1.5, {"b": (hidden, None)}]}, [hidden, "sk-"]):
            clean = redactor.redact_tree(value)
            assert redactor.redact_as_line(value)[0] == json_line(clean)
            assert json_line(redactor.redact_as_line(value)[1]) == json_line(clean)


@pytest.mark.parametrize("before", ["before ", "\n", "\\frac"])
def test_a_line_with_a_long_text_is_that_of_the_redacted_value(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is in the long text, beside it, or in a key as long as the text."""
    monkeypatch.setattr(secrets, "LONG_TEXT", 500)
    redactor = Redactor([KEY, ODD_KEY, ODD_LETTERS])
    long = before + "word " * (500 // 5)
    for hidden in HIDDEN:
        text = f"{long}{hidden} {long}"
        for value in (
            {"a": text, "b": [text]},
            {"a": long, "b": {"c": [hidden]}},
            {text: "a", "": "b"},
            {long: "a", long * 2: hidden, "": "b"},
        ):
            clean = redactor.redact_tree(value)
            for _ in range(2):
                assert redactor.redact_as_line(value) == (json_line(clean), clean)


def test_a_long_text_is_looked_through_once_for_all_its_lines_until_a_secret_is_learnt() -> None:
    seen: list[str] = []

    class Counting(Redactor):
        def redact_text(self, text: str) -> str:
            seen.append(text)
            return super().redact_text(text)

    redactor = Counting()
    text = f"{KEY} " + "word " * (LONG_TEXT // 5)
    for value in ({"completion": text}, {"response": {"choices": [{"text": text}]}}):
        assert redactor.redact_as_line(value) == (json_line(value), value)
    assert [len(read) >= LONG_TEXT for read in seen].count(True) == 1
    redactor.learn(KEY)
    assert KEY not in redactor.redact_as_line({"completion": text})[0]
