"""For any run config, overrides and arguments: exit 0, 2 or 3, in two seconds, and never a traceback.

`EVAL_FACTORY_FUZZ_FACTOR=100` tries a hundred times as many.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from command_here import Ended, run_here

FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))
MOST_CPU_S = 2.0

VALID: dict[str, Any] = {
    "config": {
        "type": "pubmed_qa",
        "output_dir": "results/x",
        "params": {
            "limit_samples": 3,
            "parallelism": 2,
            "temperature": 0.5,
            "request_timeout": 9,
            "top_p": 1.0,
            "max_new_tokens": None,
            "extra": {
                "min_coverage": 0.5,
                "on_failure": "zero",
                "num_train_trials": 1,
                "max_length": 100,
                "data_path": None,
                "subject": None,
                "judges": None,
                "offline": False,
                "data_dir": None,
                "benchmark": None,
            },
        },
    },
    "target": {
        "api_endpoint": {
            "url": "https://h.example/v1",
            "model_id": "org/m",
            "type": "chat",
            "api_key": "MY_KEY",
            "oauth": None,
            "stream": True,
            "adapter_config": {
                "use_nvcf": False,
                "params_to_add": {"seed": 1},
                "params_to_remove": ["top_p"],
                "params_to_rename": {"a": "b"},
                "custom_system_prompt": "Be brief.",
                "end_reasoning_token": "</t>",
                "use_caching": True,
                "interceptors": [{"name": "caching"}],
                "use_system_prompt": False,
            },
        }
    },
}
TYPES = [
    "pubmed_qa",
    "helm.medec",
    "clear",
    "ehrshot",
    "custom",
    "mtsamples_replicate",
    "medbullets",
    "helm:mmlu:subject=anatomy",
    "helm:mmul",
    "helm:",
    "helm:mmlu:x",
    "nonsense",
    "helm:mmlu:subject=a,subject=b",
]


PLACES = [
    ("clear", "data_path"),
    ("ehrshot", "data_path"),
    ("mimic_rrs", "data_path"),
    ("custom", "benchmark"),
    ("pubmed_qa", "data_dir"),
    ("helm:custom_mcqa_scenario:path={}", None),
    ("helm:medhelm_configurable_benchmark:config_path={}", None),
]


def paths_of(tree: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in tree.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found += paths_of(value, f"{prefix}{key}.")
    return found


PATHS = paths_of(VALID)
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(12)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{','.join([f'*{chr(97 + n)}'] * 9)}]}}\n"
    for n in range(12)
)
ODD = [
    LAUGHS,
    MERGES,
    "? [a, b]\n: 1\n",
    "? {a: b}\n: 1\n",
    "a: !!binary aGVsbG8=\n",
    'a: "\\ud800"\n',
    '"\\udc00": 1\n',
    f"a: {'9' * 5000}\n",
    f"a: -{'9' * 5000}\n",
    f"a: {'1:' + '59:' * 3000}59\n",
    f"a: {'9' * 500}.5\n",
    "a: 2001-99-99\n",
    "a: 2024-01-01\n",
    "2024-01-01: 1\n",
    "a: !!set {x, y}\n",
    "a: !!omap [x: 1]\n",
    "a: !!pairs [x: 1]\n",
    "a: !!int x\n",
    "a: !!int ''\n",
    "a: !!float x\n",
    "a: !!bool x\n",
    "a: !!timestamp x\n",
    "a: !!python/object:os.system {}\n",
    "a: &a [*a]\n",
    "&a a: *a\n",
    "a: &a {b: *a}\n",
    "on: 1\n",
    "~: 1\n",
    "1.5: 1\n",
    "a: .nan\n",
    "a: [-.inf]\n",
    "a: 1\na: 2\n",
    "<<: 1\n",
    "a: <<\n",
    "a: =\n",
    "=: 1\n",
    f"a: {'[' * 400}{']' * 400}\n",
    f"a: {'[' * 60}{']' * 60}\n",
    f"{'a: ' * 20}\n",
    "%YAML 9.9\n---\na\n",
    "--- a\n--- b\n",
    "a: *b\n",
    "!!str\n",
    "\t",
    "a: 'x",
    "@",
    "`",
    "a: !<tag:yaml.org,2002:str> x\n",
    "a: \x00\n",
    "a: \u2028\n",
    "\ufeffa: 1\n",
]
"""Documents that PyYAML, or what comes after it, stumbles over."""

FUZZ = settings(
    max_examples=1,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


def fuzz(examples: int) -> settings:
    return settings(FUZZ, max_examples=max(1, int(examples * FACTOR)))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def check(ended: Ended) -> Ended:
    assert ended.code in (0, 2, 3), ended.stderr + defect(ended)
    assert "Traceback" not in ended.stdout + ended.stderr
    begun = ended.stderr.startswith(("eval-factory: ", "warning: ", "Usage: ", "Error: "))
    assert ended.code == 0 or begun, ended.stderr
    assert ended.cpu_s < MOST_CPU_S
    return ended


def defect(ended: Ended) -> str:
    path = Path(ended.stderr.rpartition(" ")[2].strip())
    return path.read_text("utf-8") if ended.code == 70 and path.is_file() else ""


def dry_run(content: str | bytes, *arguments: str) -> Ended:
    file = Path("x.yml")
    file.write_bytes(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )
    return check(run_here("run_eval", "--run_config", str(file), "--dry_run", *arguments))


def test_the_valid_one_is_valid() -> None:
    ended = dry_run(yaml.safe_dump(VALID))
    assert ended.code == 0, ended.stderr
    assert "helm-run" in ended.stdout


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_unusual_documents(text: str) -> None:
    assert dry_run(text).code == 2
    inside = "".join(f"        {line}\n" for line in text.splitlines())
    valid = yaml.safe_dump(VALID)
    dry_run(
        valid.replace(
            "        params_to_add:\n          seed: 1\n", f"        params_to_add:\n{inside}"
        )
    )
    dry_run(
        yaml.safe_dump(VALID),
        "--overrides",
        f"target.api_endpoint.adapter_config.params_to_add={text}",
    )


@pytest.mark.parametrize(
    "value",
    [
        "2024-01-01",
        "!!binary aGVsbG8=",
        "!!set {x, y}",
        '"\\ud800"',
        "9" * 5000,
        ".nan",
        "{? [a] : 1}",
        "[" * 60 + "]" * 60,
    ],
)
def test_unusual_values_are_refused_by_line(value: str) -> None:
    ended = dry_run(yaml.safe_dump(VALID).replace("seed: 1", f"seed: {value}"))
    assert ended.code == 2
    assert ended.stderr.startswith("eval-factory: x.yml: ")
    override = f"target.api_endpoint.adapter_config.params_to_add={{seed: {value}}}"
    assert dry_run(yaml.safe_dump(VALID), "--overrides", override).code == 2


@pytest.mark.parametrize(
    "override",
    [
        "a" + ".a" * 5000 + "=1",
        "config.params.extra.judges=" + "[" * 900,
        "=".join("ab" * 9),
        "config" + ".x" * 60 + "=1",
        "a='",
        ",,,",
        "config=1",
        "config.params.extra=[1]",
        "target=x",
    ],
)
def test_unusual_overrides(override: str) -> None:
    assert dry_run(yaml.safe_dump(VALID), "--overrides", override).code == (
        0 if override == ",,," else 2
    )


@pytest.mark.parametrize(("task", "name"), PLACES)
@pytest.mark.parametrize(
    "path",
    [
        "x" * 5000,
        "x/" * 3000,
        "x" * 256,
        "y.yml/x",
        "loop/x",
        "~no-such-user/x",
        "/dev/null",
        "/proc/self/mem",
        ".",
    ],
)
def test_unusual_paths(task: str, name: str | None, path: str) -> None:
    Path("y.yml").touch()
    Path("loop").symlink_to("loop")
    needed = {"clear": {"condition": "homelessness"}, "ehrshot": {"subject": "lab_anemia"}}
    extra = needed.get(task, {})
    document = {
        "config": {
            "type": task.format(path),
            "output_dir": "o",
            "params": {"extra": extra | ({name: path} if name else {})},
        },
        "target": {"api_endpoint": {"url": "demo://baseline", "model_id": "m"}},
    }
    dry_run(yaml.safe_dump(document))
    if name is not None:
        real = check(run_here("run_eval", "--run_config", "x.yml", "--offline"))
        assert real.code in (2, 3)
    check(run_here("run_eval", "--run_config", path, "--dry_run"))
    check(run_here("data", "ls", path))
    board = (
        "leaderboard",
        "run",
        "lite",
        "--model",
        "m",
        "--model_url",
        "http://h/v1",
        "--dry_run",
        "--conf",
        path,
    )
    assert check(run_here(*board)).code


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(TYPES),
    st.sampled_from(
        [
            "${HOME}",
            "${NO_SUCH}",
            "${A:-1}",
            "~/x",
            "~nobody-0/x",
            "sk-0123456789abcdef",
            "https://h/v1?key=0123456789abc",
            "demo://baseline",
            "http://[::1",
            "http://h:99999999",
            "\x85",
            "a,b",
            "a/b",
            "-",
            "{{ 1 }}",
            "\ud800",
            "9" * 400,
        ]
    ),
)
keys = st.one_of(st.text(max_size=8), st.sampled_from([path.rpartition(".")[2] for path in PATHS]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
changes = st.lists(st.tuples(st.sampled_from(PATHS), values), min_size=1, max_size=4)


def changed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(VALID))
    for path, value in pairs:
        *parents, name = path.split(".")
        section: Any = tree
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[name] = value
    return tree


@fuzz(150)
@given(
    st.one_of(
        st.text(),
        st.text(alphabet="ab:-?[]{}&*!|>'\"%@` \n\t#,0.\\~<", max_size=80),
        st.binary(max_size=60),
    )
)
def test_any_text(content: str | bytes) -> None:
    dry_run(content)


@fuzz(200)
@given(changes)
@example(
    [
        ("config.type", "clear"),
        ("config.params.extra.data_path", "/x"),
        ("config.params.extra.subject", "adhd"),
    ]
)
def test_any_value_at_a_known_key(pairs: list[tuple[str, Any]]) -> None:
    dry_run(yaml.dump(changed(pairs), allow_unicode=True))


@fuzz(150)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 900), st.integers(0, 30), st.sampled_from(ODD) | st.text(max_size=5)
        ),
        max_size=4,
    )
)
def test_a_valid_one_with_spans_exchanged(cuts: list[tuple[int, int, str]]) -> None:
    text = yaml.safe_dump(VALID)
    for start, length, put in cuts:
        text = text[:start] + put + text[start + length :]
    dry_run(text)


arguments_ = st.text(st.characters(exclude_characters="\0"), max_size=40)
dumped = values.map(lambda value: yaml.dump(value, default_flow_style=True).strip())
odd = st.sampled_from([text.replace("\0", "") for text in ODD])
overrides = arguments_ | st.builds("{}={}".format, st.sampled_from(PATHS), dumped | odd)


@fuzz(150)
@given(st.lists(overrides, min_size=1, max_size=3))
def test_any_overrides(texts: list[str]) -> None:
    dry_run(yaml.safe_dump(VALID), *(chain.from_iterable(("--overrides", text) for text in texts)))


FLAGS = [
    "--output_dir",
    "--eval_type",
    "--model_id",
    "--model_type",
    "--model_url",
    "--api_key_name",
    "--data_dir",
    "--limit_samples",
    "--parallelism",
    "--temperature",
    "--request-timeout",
    "--top_p",
    "--max_retries",
]


@fuzz(120)
@given(
    st.dictionaries(
        st.sampled_from(FLAGS),
        arguments_ | st.sampled_from(TYPES) | st.integers().map(str),
        min_size=1,
        max_size=3,
    )
)
def test_any_flags(flags: dict[str, str]) -> None:
    dry_run(yaml.safe_dump(VALID), *(f"{name}={value}" for name, value in flags.items()))


@fuzz(50)
@given(st.one_of(arguments_, arguments_.map("helm:{}".format), st.sampled_from(TYPES)))
def test_ls_of_anything(name: str) -> None:
    check(run_here("ls", "--", name))


@fuzz(50)
@given(st.lists(st.one_of(overrides, overrides.map("--overrides={}".format)), max_size=2), changes)
def test_a_leaderboard_of_anything(texts: list[str], pairs: list[tuple[str, Any]]) -> None:
    Path("x.yml").write_bytes(
        yaml.dump(changed(pairs), allow_unicode=True).encode("utf-8", "surrogatepass")
    )
    given_ = (
        "--run_config",
        "x.yml",
        "--dry_run",
        *(text for text in texts if text.startswith("--overrides")),
    )
    check(run_here("leaderboard", "run", "lite", *given_, "--offline", "--output_dir", "board"))
