"""A panel that is asked again and again, through the real helm-run: baseline, looks, alarm, ledger, a new model."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.safe_files import json_line
from eval_factory.monitor.ledger import Ledger
from eval_factory.monitor.ledger_order import FIELDS
from eval_factory.monitor.verification import verify_panel
from facts import says
from program_runs import CANARY, program, program_each, program_environment, wait_until
from scripted_endpoint import ScriptedEndpoint

KEY = "PANEL_KEY"
SIZE = 60
CHANGES = round(30 * float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1")))
SHARE = 0.9


class Model:
    """Knows the answer to a share of the questions; of the rest, and of some more, it guesses anew each time."""

    def __init__(self) -> None:
        self.share = SHARE
        self.flips = 0.1
        self.chance = random.Random(1)  # noqa: S311

    def __call__(self, prompt: str) -> str:
        number, right = re.findall(r"Question (\d+), whose answer is (\w)", prompt)[-1]
        knows = int(hashlib.sha256(number.encode()).hexdigest(), 16) % 1000 < 1000 * self.share
        if self.chance.random() < self.flips:
            knows = self.chance.random() < 0.5
        return str(right) if knows else "ABCD"["ABCD".index(right) - 1]


class Watched:
    """A panel with its endpoint, in a folder."""

    def __init__(
        self, folder: Path, endpoint: ScriptedEndpoint, model: Model, **changed: Any
    ) -> None:
        self.folder = folder
        self.endpoint = endpoint
        self.model = model
        self.asked: list[dict[str, Any]] = []
        folder.mkdir(exist_ok=True)
        (folder / "prompt.txt").write_text("Answer with one letter. {question}")
        rows = [
            f'"Question {n}, whose answer is {"ABCD"[n % 4]}",{"ABCD"[n % 4]},{"heart" if n % 3 else "lung"}'
            for n in range(150)
        ]
        (folder / "data.csv").write_text("\n".join(["question,correct_answer,topic", *rows]) + "\n")
        (folder / "benchmark.yaml").write_text(
            "name: watched\ndescription: Made up\nprompt_file: prompt.txt\ndataset_file: data.csv\nmax_tokens: 5\n"
            "metrics:\n  - name: exact_match\n"
        )
        (folder / "gate.yml").write_text(
            "version: 1\nbenchmarks:\n  custom.watched: {max_drop: 0.3}\n"
        )
        task: dict[str, Any] = {
            "type": "custom",
            "name": "questions",
            "size": SIZE,
            "max_drop": 0.02,
            "params": {"extra": {"benchmark": "benchmark.yaml"}},
            "groups": {"topic": {"heart": {"max_drop": 0.1}}},
        }
        target = {
            "api_endpoint": {
                "url": endpoint.url,
                "model_id": "m/one",
                "type": "chat",
                "api_key": KEY,
            }
        }
        self.section: dict[str, Any] = {
            "output_dir": "panel",
            "looks": 12,
            "baseline": {"repeats": 2},
            "tasks": [task],
            "target": target,
            "change": {"policy": "gate.yml"},
            **changed,
        }
        self.write()

    @property
    def file(self) -> Path:
        return self.folder / "watched.yml"

    @property
    def output(self) -> Path:
        return self.folder / "panel"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in (self.output / "ledger.jsonl").read_text().splitlines()
        ]

    def write(self, **changed: Any) -> None:
        self.section |= changed
        self.file.write_text(yaml.safe_dump({"monitor": self.section}))

    def call(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return program("monitor", *arguments, cwd=cwd or self.folder, **{KEY: CANARY})

    def each(self, *commands: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
        return program_each(
            *(("monitor", *words) for words in commands), cwd=self.folder, **{KEY: CANARY}
        )

    def look(self, *arguments: str) -> dict[str, Any]:
        said = self.call(str(self.file), "--json", *arguments)
        assert said.stdout, said.stderr
        record: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
        assert record["exit_code"] == said.returncode
        return record


@pytest.fixture(scope="module")
def with_baseline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ScriptedEndpoint(model := Model()) as endpoint:
        found = Watched(tmp_path_factory.mktemp("panels"), endpoint, model)
        assert found.look()["outcome"] == "baseline"
        yield found


@contextmanager
def copied(made: Watched, folder: Path) -> Iterator[Watched]:
    """A panel of its own that begins with a baseline that was made once."""
    answer = made.endpoint.answer
    shutil.copytree(made.output, folder / "panel")
    made.model.share = SHARE
    yield Watched(folder, made.endpoint, made.model)
    made.endpoint.answer = answer
    made.endpoint.status = None


@pytest.fixture(scope="module")
def watched(with_baseline: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Two looks at a model that stays as it is, two after it became worse."""
    with copied(with_baseline, tmp_path_factory.mktemp("watched")) as found:
        before = len(found.endpoint.requests)
        assert [found.look()["outcome"] for _ in range(2)] == ["in_control"] * 2
        found.model.share = 0.5
        assert [found.look()["outcome"] for _ in range(2)][-1] == "alarm"
        found.asked = found.endpoint.requests[before:]
        yield found


def test_the_baseline_comes_first_and_says_what_it_can_find(watched: Watched) -> None:
    first = watched.lines[0]
    assert first["kind"] == "baseline"
    assert [one["name"] for one in first["limits"]] == ["questions", "questions, topic=heart"]
    assert 0 < first["limits"][0]["flip_rate"] < 0.3
    found = first["power"]["questions"]
    assert found["needed"] in (None, 3, 5, 10, 20, 40, 80)
    assert [one["drop"] for one in found["finds"]] == [0.05, 0.1, 0.2]
    assert found["finds"][2]["share"] > 0.5
    runs = {one["folder"] for one in first["repeats"]}
    assert runs == {"baseline/1/1", "baseline/1/2"}


def test_each_look_asks_the_same_questions_anew(watched: Watched) -> None:
    asked = Counter(
        re.findall(r"Question (\d+),", str(one["messages"]))[-1] for one in watched.asked
    )
    assert len(asked) == SIZE
    assert set(asked.values()) == {4}


def test_an_alarm_says_what_how_much_and_since_when_and_stays(watched: Watched) -> None:
    last = watched.lines[-1]["alarm"]
    assert last["what"] == "harm"
    assert "questions" in last["names"]
    assert last["since"] in (2, 3, 4), "an estimate: a look beside the true one, by chance"
    assert last["drops"]["questions"] > 0.2
    said = watched.call("status", str(watched.file))
    assert said.returncode == 0
    assert re.search(r"ALARM: questions.* \d+\.\d points worse.* look [234]", said.stdout)
    pack = program("report", str(watched.output), "--for", "ruaih")
    assert pack.returncode == 0, pack.stderr
    says(pack.stdout, "ALARM: ", "limit: questions")
    assert program("report", str(watched.output), "--for", "methods").returncode == 2
    page = (watched.output / "report.html").read_text()
    assert "ALARM" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_ledger_is_intact_and_holds_no_key(watched: Watched) -> None:
    said = watched.call("verify", str(watched.output))
    assert said.returncode == 0, said.stdout
    files = [path for path in watched.output.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def _rechained(lines: list[dict[str, Any]], folder: Path) -> None:
    """Write the lines as somebody does who can compute hashes."""
    head = "0" * 64
    texts = []
    for line in lines:
        text = json_line({**line, "previous": head})
        head = hashlib.sha256(text.encode()).hexdigest()
        texts.append(text + "\n")
    (folder / "ledger.jsonl").write_text("".join(texts))
    (folder / "ledger.sha256").write_text(head + "\n")


def _leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(tree, dict):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    else:
        yield path
        return
    for key, value in items:
        yield from _leaves(value, (*path, key))


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else f"{value}x"


def test_each_change_to_the_ledger_is_found(watched: Watched, tmp_path: Path) -> None:
    folder = shutil.copytree(watched.output, tmp_path / "panel")
    file = folder / "ledger.jsonl"
    whole = file.read_bytes()
    head = (folder / "ledger.sha256").read_bytes()
    assert verify_panel(folder) == []
    for seed in range(CHANGES):
        chance = random.Random(seed)  # noqa: S311
        lines = whole.splitlines(keepends=True)
        number = chance.randrange(len(lines))
        kind = seed % 6
        if kind == 0:
            del lines[number]
        elif kind == 1:
            lines.insert(number, lines[number])
        elif kind == 2:
            at = chance.randrange(len(lines[number]) - 1)
            lines[number] = (
                lines[number][:at] + bytes([lines[number][at] ^ 1]) + lines[number][at + 1 :]
            )
        elif kind == 3:
            lines = lines[: max(1, number)]
        elif kind == 4:
            other = (number + 1) % len(lines)
            lines[number], lines[other] = lines[other], lines[number]
        file.write_bytes(b"".join(lines))
        if kind == 5:  # a figure of a look, and all hashes made anew
            records = [json.loads(line) for line in lines]
            look = chance.choice([one for one in records if one["kind"] == "look"])
            figures = list(
                _leaves(
                    {
                        k: look[k]
                        for k in ("limits", "e", "alarm", "changed", "watched", "panel", "evidence")
                    }
                )
            )
            *parents, last = chance.choice(figures)
            part = look
            for key in parents:
                part = part[key]
            part[last] = _changed(part[last])
            _rechained(records, folder)
        assert verify_panel(folder), f"seed {seed}"
        file.write_bytes(whole)
        (folder / "ledger.sha256").write_bytes(head)


def test_a_panel_of_before_is_verified_without_what_is_simulated_otherwise(
    watched: Watched, tmp_path: Path
) -> None:
    folder = shutil.copytree(watched.output, tmp_path / "panel")
    records = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    (baseline,) = [line for line in records if line["kind"] == "baseline"]
    for limit in baseline["power"].values():
        limit["finds"][1]["share"] -= 0.3
    _rechained(records, folder)
    (finding,) = verify_panel(folder)
    assert "power" in finding
    baseline["figures_version"] = 1
    for look in records:
        if look["kind"] != "look":
            continue
        del look["differ"]
        dated = [*look["limits"], *look["changed"].values(), *look["figures"].values()]
        for figure in [*dated, look["alarm"] or {}]:
            figure.pop("since_range", None)
    _rechained(records, folder)
    said = watched.call("verify", str(folder))
    assert said.returncode == 0, said.stdout
    says(said.stdout, "intact", f"line {baseline['number']}: not compared", "power")


def test_a_changed_run_is_found(watched: Watched, tmp_path: Path) -> None:
    folder = shutil.copytree(watched.output, tmp_path / "panel")
    changed = folder / "looks" / "0002" / "model" / "questions" / "results.jsonl"
    changed.write_text(changed.read_text().replace('"exact_match": 0', '"exact_match": 1', 1))
    (finding,) = verify_panel(folder)[:1]
    assert "looks/0002/model/questions/results.jsonl: was changed" in finding


def test_a_head_that_was_kept_elsewhere_shows_a_ledger_written_anew(
    watched: Watched, tmp_path: Path
) -> None:
    folder = shutil.copytree(watched.output, tmp_path / "panel")
    kept = Ledger(folder).read().head
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    lines.append({**lines[-1], "kind": "note", "by": "nobody", "text": "all is well"})
    lines[-1]["number"] = len(lines)
    for name in lines[-1].keys() - FIELDS["note"]:
        del lines[-1][name]
    _rechained(lines, folder)
    assert verify_panel(folder) == []
    assert verify_panel(folder, "ab" * 32)
    (folder / "ledger.jsonl").write_text(
        (folder / "ledger.jsonl").read_text().replace("nobody", "us")
    )
    assert verify_panel(folder, kept)
    assert watched.call("verify", str(folder), "--head", kept).returncode == 1


def _as_note(lines: list[dict[str, Any]], folder: Path) -> None:
    note = {name: lines[-1][name] for name in FIELDS["note"] if name in lines[-1]}
    lines[-1] = {**note, "kind": "note", "by": "me", "text": "nothing"}


def _as_asked_of_another(lines: list[dict[str, Any]], folder: Path) -> None:
    lines[0]["target"]["model"] = "another"


def _powerful(lines: list[dict[str, Any]], folder: Path) -> None:
    for finds in lines[0]["power"].values():
        finds["finds"][0]["share"] = 0.5


def _needing_less(lines: list[dict[str, Any]], folder: Path) -> None:
    for finds in lines[0]["power"].values():
        finds["drop"] = finds["drop"] / 2


def _before_its_runs(lines: list[dict[str, Any]], folder: Path) -> None:
    for line in lines:
        line["at"] = "2020-01-01T00:00:00Z"


def _gone(lines: list[dict[str, Any]], folder: Path) -> None:
    lines.clear()


def _one_look_gone(lines: list[dict[str, Any]], folder: Path) -> None:
    del lines[-2:]


@pytest.mark.parametrize(
    "change",
    [
        _as_note,
        _as_asked_of_another,
        _powerful,
        _needing_less,
        _before_its_runs,
        _gone,
        _one_look_gone,
    ],
)
def test_lines_whose_hashes_were_made_again(
    change: Callable[[list[dict[str, Any]], Path], None], watched: Watched, tmp_path: Path
) -> None:
    folder = shutil.copytree(watched.output, tmp_path / "panel")
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    change(lines, folder)
    if lines:
        _rechained(lines, folder)
    else:
        (folder / "ledger.jsonl").unlink()
        (folder / "ledger.sha256").unlink()
    assert verify_panel(folder)


@pytest.fixture
def small(with_baseline: Watched, tmp_path: Path) -> Iterator[Watched]:
    with copied(with_baseline, tmp_path / "small") as found:
        yield found


def test_a_look_that_is_killed_goes_on_and_two_lookers_wait(small: Watched) -> None:
    asked = len(small.endpoint.requests)
    env = program_environment(**{KEY: CANARY})
    words = [sys.executable, "-m", "eval_factory", "monitor", str(small.file)]
    with subprocess.Popen(words, env=env, stdout=-3, stderr=-3, start_new_session=True) as first:
        wait_until(lambda: len(small.endpoint.requests) > asked + 5)
        os.killpg(first.pid, signal.SIGKILL)
    assert [line["kind"] for line in small.lines] == ["baseline", "begun"]
    assert "look 1 was started" in small.call("status", str(small.file)).stdout
    both = [subprocess.Popen(words, env=env, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [one.communicate(timeout=200) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert [line["kind"] for line in small.lines] == ["baseline", "begun", "look", "begun", "look"]
    assert sum("waiting for its end" in err for _, err in said) == 1
    assert small.call("verify", str(small.file)).returncode == 0


def test_what_is_another_panel_is_refused_before_anything_is_asked(small: Watched) -> None:
    asked = len(small.endpoint.requests)
    assert json.loads(small.call(str(small.file), "--json", "--executor", "slurm").stdout)[
        "exit_code"
    ] in (2, 3)
    (task,) = small.section["tasks"]
    names: dict[str, tuple[dict[str, Any], str]] = {
        "size": ({"tasks": [{**task, "size": 50}]}, "the questions or the model"),
        "max_drop": ({"tasks": [{**task, "max_drop": 0.3}]}, "the limits"),
        "params": ({"params": {"temperature": 1.0}}, "the questions or the model"),
        "alpha": ({"alpha": 0.1}, "alpha"),
    }
    for name, (changed, _) in names.items():
        (small.folder / f"{name}.yml").write_text(
            yaml.safe_dump({"monitor": small.section | changed})
        )
    for said, (_, named) in zip(
        small.each(*((f"{name}.yml",) for name in names)), names.values(), strict=True
    ):
        assert said.returncode == 2, said.stdout
        assert named in said.stderr
        assert "--new_baseline" in said.stderr
    data = small.folder / "data.csv"
    whole = data.read_text()
    data.write_text(whole.replace("whose answer", "please: whose answer"))
    assert "is not the panel of" in small.call(str(small.file)).stderr
    data.write_text(whole)
    assert len(small.endpoint.requests) == asked
    # more of the same before the first look is no other baseline
    small.write(baseline={"repeats": 3})
    says(small.look()["line"]["why"], "more runs")
    assert len(small.endpoint.requests) == asked + SIZE


def test_a_look_at_an_endpoint_that_is_down_is_no_evidence(small: Watched) -> None:
    small.endpoint.status = 401
    record = small.look()
    assert record["outcome"] == "not_made"
    assert record["exit_code"] == 3
    assert [line["kind"] for line in small.lines] == ["baseline", "begun"]
    small.endpoint.status = None
    small.write(max_look_hours=1e-9)  # too late to go on
    assert small.look()["outcome"] == "in_control"
    assert [line["kind"] for line in small.lines] == [
        "baseline",
        "begun",
        "not_made",
        "begun",
        "look",
    ]
    assert [line["look"] for line in small.lines[1:]] == [1, 1, 2, 2]
    assert small.lines[-1]["evidence"] == 1


def test_a_plan_of_change_decides_by_the_gates_policy(small: Watched) -> None:
    target = small.folder / "new.yml"
    endpoint = {**small.section["target"]["api_endpoint"], "model_id": "m/two"}
    target.write_text(yaml.safe_dump({"target": {"api_endpoint": endpoint}}))
    answer = small.model

    def worse(prompt: str) -> str:
        return "A" if small.endpoint.requests[-1]["model"] == "m/two" else answer(prompt)

    small.endpoint.answer = worse
    said = small.call("change", str(small.file), str(target))
    assert said.returncode == 1, said.stderr
    assert "continues to watch m/one" in said.stdout
    small.endpoint.answer = answer
    said = small.call("change", str(small.file), str(target))
    assert said.returncode == 0, said.stderr
    kinds = [line["kind"] for line in small.lines]
    assert kinds == ["baseline", "change", "change", "baseline"]
    assert small.call(str(small.file)).returncode == 2  # it still names the old one
    small.write(target={"api_endpoint": endpoint})
    (small.folder / "gate.yml").write_text(
        "version: 1\nbenchmarks:\n  custom.watched: {max_drop: 0.9}\n"
    )
    said = small.call("change", str(small.file), str(target))
    assert said.returncode == 2
    assert "fixed with the baseline" in said.stderr
    assert small.call("verify", str(small.file)).returncode == 0


def test_a_note_has_a_name_and_is_part_of_the_chain(small: Watched, tmp_path: Path) -> None:
    other = Watched(tmp_path / "other", small.endpoint, small.model)
    assert other.call("note", str(other.file), "too early", "--by", "Dr. A").returncode == 3
    file = str(small.file)
    noted, empty, reported, verified, told = small.each(
        ("note", file, "a\nnew <line>", "--by", "Dr. A"),
        ("note", file, " ", "--by", "Dr. A"),
        ("report", file),
        ("verify", file),
        ("status", str(small.output)),
    )
    assert [one.returncode for one in (noted, empty, reported, verified)] == [0, 2, 0, 0]
    assert "&lt;line&gt;" in (small.output / "report.html").read_text()
    assert "note of Dr. A" in told.stdout


def test_from_another_folder_it_is_the_same_panel(small: Watched, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    said = small.call(os.path.relpath(small.file, other), cwd=other)
    assert said.returncode == 0, said.stderr
    assert not list(other.iterdir())
    dry = small.call(str(small.file), "--dry_run")
    assert f"{SIZE} requests to the model" in dry.stdout
    assert "flip" in dry.stdout


@pytest.mark.more_data
def test_twelve_looks_name_the_look_at_which_the_model_changed(tmp_path: Path) -> None:
    model = Model()
    with ScriptedEndpoint(model) as endpoint:
        panel = Watched(tmp_path / "twelve", endpoint, model, baseline={"repeats": 5})
        panel.look()
        alarms = []
        for number in range(1, 13):
            model.share = 0.9 if number < 7 else 0.6
            alarms.append(panel.look()["line"]["alarm"])
        assert alarms[:6] == [None] * 6
        assert alarms[-1] is not None
        assert alarms[-1]["since"] in (5, 6, 7, 8, 9)
        assert panel.call(str(panel.file)).returncode == 2  # all looks are made
        assert (
            panel.look("--new_baseline", "the vendor told us of a new version")["outcome"]
            == "baseline"
        )
