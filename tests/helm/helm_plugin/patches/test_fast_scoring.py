"""The quicker functions against HELM's own, on invented statistics and records."""

from __future__ import annotations

import io
import json
import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark import runner
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.metrics import evaluate_reference_metrics, metric
from helm.benchmark.metrics.metric import PerInstanceStats, compute_worst_case_metrics
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.benchmark.window_services.window_service_factory import WindowServiceFactory

from eval_factory.helm_plugin.patches import speed
from eval_factory.helm_plugin.patches.slim_scoring import PackedStats, Packer
from patching import ApplyPatch

PERTURBED = PerturbationDescription(name="typos", robustness=True)


def statistics(seed: int, *, perturbed: bool = False) -> dict[Instance, list[Stat]]:
    source = random.Random(seed)  # noqa: S311 - invented numbers
    made: dict[Instance, list[Stat]] = {}
    for number in range(source.randint(1, 30)):
        instance = Instance(Input(text=f"t{number}"), [], split="test", id=f"id{number}")
        made[instance] = []
        for name in source.sample(["exact_match", "f1", "runtime", "empty"], k=source.randint(1, 4)):
            stat = Stat(MetricName(name, split="test"))
            for _ in range(0 if name == "empty" else source.randint(1, 3)):
                stat.add(source.choice([0, 1, True, source.gauss(0, 1e3)]))
            made[instance].append(stat)
    if perturbed:
        instance = next(iter(made))
        stat = made[instance][0]
        name = replace(stat.name, perturbation=PERTURBED)
        made[replace(instance, perturbation=PERTURBED)] = [Stat(name).merge(stat)]
    return made


@pytest.mark.parametrize("seed", range(50))
def test_worst_cases_are_helms(seed: int) -> None:
    ours = speed._worst_cases(statistics(seed))
    theirs = compute_worst_case_metrics(statistics(seed))
    assert ours is not None
    assert [repr(asdict(stat)) for stat in ours] == [repr(asdict(stat)) for stat in theirs]


@pytest.mark.parametrize("seed", range(20))
def test_worst_cases_of_what_is_packed_are_helms(seed: int) -> None:
    made = {
        instance: [Stat(stat.name).add(stat.min if stat.name.name != "f1" else -0.5 * seed) for stat in stats]
        for instance, stats in statistics(seed).items()
    }
    packer = Packer(Stat)
    packed: dict[Instance, Any] = {instance: packer.pack(stats) for instance, stats in made.items()}
    assert any(isinstance(stats, PackedStats) for stats in packed.values())
    ours, theirs = speed._worst_cases(packed), compute_worst_case_metrics(made)
    assert ours is not None
    assert [repr(asdict(stat)) for stat in ours] == [repr(asdict(stat)) for stat in theirs]


def test_what_is_not_plain_is_left_to_helm() -> None:
    """HELM stops with an assertion where a metric comes twice for one instance."""
    stat = Stat(MetricName("a", split="test")).add(1)
    perturbed = Stat(replace(stat.name, perturbation=PERTURBED)).merge(stat)
    one, packed = Instance(Input(text="a"), [], id="same"), Packer(Stat).pack([stat])
    assert speed._worst_cases({one: packed}) is not None
    assert speed._worst_cases({one: packed, Instance(Input(text="b"), [], id="same"): packed}) is None
    assert speed._worst_cases({Instance(Input(text="a"), [], id=None): packed}) is None
    for stats in ([stat, perturbed], [stat, stat]):
        for found in (stats, Packer(Stat).pack(stats)):
            assert speed._worst_cases({one: found}) is None
    assert speed._worst_cases(statistics(1, perturbed=True)) is None


@dataclass(frozen=True)
class Leaf:
    text: str
    number: float | None = None
    flag: bool | None = None


@dataclass
class Tree:
    leaves: list[Leaf] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    pair: tuple[Any, ...] = ()
    nothing: Leaf | None = None


TREES: list[Any] = [
    Tree(),
    Leaf("", None, None),
    [],
    [Leaf('a "quote", a line\nand ünïcödé \U0001f600 \ud83d', 1e300, False), Leaf("b", float("nan"), True)],
    Tree([Leaf("x", 0.1 + 0.2)], {"none": None, "empty": {}, "deep": {"list": [[], [1, [2.5, None]]]}}, (1, "two", Leaf("3"))),
    [Tree([Leaf(str(number), -number / 3)], {"k": float("inf")}) for number in range(5)],
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_text_is_what_json_writes(tree: Any) -> None:
    def to_dict(record: Any) -> Any:
        return asdict(record, dict_factory=lambda pairs: {key: value for key, value in pairs if value is not None})

    expected = json.dumps([to_dict(record) for record in tree] if isinstance(tree, list) else to_dict(tree), indent=2)
    file = io.StringIO()
    speed.write_json(tree, file)
    assert file.getvalue() == expected


def test_statistics_that_are_packed_are_written_as_the_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "TEXTS_KEPT", 3)
    monkeypatch.setattr(speed, "_texts_by_shape", {})
    packer, made = Packer(Stat), []
    for value in (0, 1, 1.0, 0.5, 1, None, 0, 1e-9):
        made.append([Stat(MetricName("a", split="test")).add(value), Stat(MetricName("b")).add(1)])
    plain, packed = io.StringIO(), io.StringIO()
    for _ in range(2):
        speed.write_json([PerInstanceStats("id", None, 0, stats) for stats in made], plain)
        speed.write_json([PerInstanceStats("id", None, 0, packer.pack(stats)) for stats in made], packed)
    assert packed.getvalue() == plain.getvalue()
    assert all(len(known) <= 3 for known in speed._texts_by_shape.values())


def test_little_text_is_held_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CHARACTERS_HELD", 100)
    written: list[str] = []
    speed.write_json(["x" * 30] * 20, SimpleNamespace(write=written.append))  # type: ignore[arg-type]
    assert json.loads("".join(written)) == ["x" * 30] * 20
    assert len(written) == 7
    assert all(100 <= len(text) < 200 for text in written[:-1])


@pytest.mark.parametrize("tree", [{1: "a key that is not text"}, [{1, 2}], [object()]], ids=["key", "set", "object"])
def test_what_is_unknown_is_left_to_helm(tree: Any) -> None:
    with pytest.raises(speed.UnknownValueError):
        speed.write_json(tree, io.StringIO())


def test_one_window_service(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(name: str, service: object) -> tuple[str, object]:
        built.append(name)
        return name, service

    monkeypatch.setattr(WindowServiceFactory, "get_window_service", staticmethod(build))
    apply_patch("one_window_service")
    for name in ("a", "b", "a", "b"):
        assert WindowServiceFactory.get_window_service(name, "tokenizer") == (name, "tokenizer")
    assert built == ["a", "b"]


def test_rouge_scorers_are_built_when_they_are_used(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(kind: str) -> Any:
        built.append(kind)
        return lambda gold, predicted: f"{kind} of {gold} and {predicted}"

    for name in ("get_rouge_function", "get_chinese_rouge_function"):
        monkeypatch.setattr(evaluate_reference_metrics, name, build)
    apply_patch("rouge_scorers_when_used")
    score = evaluate_reference_metrics.get_rouge_function("rouge1")
    chinese = evaluate_reference_metrics.get_chinese_rouge_function("rouge2")
    assert built == []
    assert score("a", "b") == score("a", "b") == "rouge1 of a and b"
    assert evaluate_reference_metrics.get_rouge_function("rouge1")("c", "d") == "rouge1 of c and d"
    assert chinese("a", "b") == "rouge2 of a and b"
    assert built == ["rouge1", "rouge2"]


def test_a_text_is_normalized_once(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    normalized: list[tuple[str, bool]] = []
    helms_own = evaluate_reference_metrics.normalize_text

    def normalize(text: str, should_remove_articles: bool = True) -> str:
        normalized.append((text, should_remove_articles))
        return str(helms_own(text, should_remove_articles))

    monkeypatch.setattr(evaluate_reference_metrics, "normalize_text", normalize)
    apply_patch("normal_texts_kept")
    for _ in range(3):
        assert evaluate_reference_metrics.quasi_exact_match("The heart.", "heart") == 1
        assert evaluate_reference_metrics.quasi_leave_articles_exact_match("The heart.", "heart") == 0
    assert sorted(normalized) == [("The heart.", False), ("The heart.", True), ("heart", False), ("heart", True)]


def test_worst_cases_in_helm(apply_patch: ApplyPatch) -> None:
    expected = [repr(asdict(stat)) for made in (False, True) for stat in worst_cases(perturbed=made)]
    apply_patch("worst_case_without_perturbations")
    assert metric.compute_worst_case_metrics is not compute_worst_case_metrics
    assert [repr(asdict(stat)) for made in (False, True) for stat in worst_cases(perturbed=made)] == expected


def worst_cases(*, perturbed: bool) -> list[Stat]:
    made: list[Stat] = metric.compute_worst_case_metrics(statistics(7, perturbed=perturbed))
    return made


@pytest.mark.parametrize("tree", [*TREES, [Tree(table={"k": {1: 2}})], Tree(table={"k": {1: 2}})])
def test_files_that_helm_writes(tree: Any, apply_patch: ApplyPatch, tmp_path: Path) -> None:
    """A key that is not text is written by HELM itself."""

    def write(name: str) -> bytes:
        records = list(map(runner.asdict_without_nones, tree)) if isinstance(tree, list) else None
        plain = runner.asdict_without_nones(tree) if records is None else records
        runner.write(str(tmp_path / name), runner.json.dumps(plain, indent=2))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"theirs", name})
        return (tmp_path / name).read_bytes()

    theirs = write("theirs")
    apply_patch("output_files_in_one_pass")
    assert write("ours") == theirs


def test_other_texts_that_helm_writes(apply_patch: ApplyPatch, tmp_path: Path) -> None:
    apply_patch("output_files_in_one_pass")
    runner.write(str(tmp_path / "text"), "as it is")
    assert (tmp_path / "text").read_text() == "as it is"
    assert runner.json.dumps(Leaf("a"), indent=4) == json.dumps({"text": "a"}, indent=4)
    with (tmp_path / "text").open("w") as file:
        file.write("[1]")
    with (tmp_path / "text").open() as file:
        assert runner.json.load(file) == [1]
