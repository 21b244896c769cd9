"""`shuffle_choices` by HELM's own augmentation and adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helm.benchmark.adaptation.adapters.multiple_choice_joint_adapter import (
    MultipleChoiceJointAdapter,
)
from helm.benchmark.augmentations.data_augmenter import DataAugmenterSpec
from helm.benchmark.augmentations.perturbation import PerturbationSpec
from helm.benchmark.data_preprocessor import DataPreprocessor
from helm.benchmark.run_expander import RUN_EXPANDERS
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import CORRECT_TAG, Input, Instance, Output, Reference

from eval_factory.demo.benchmark import sample_medical_qa
from eval_factory.helm_plugin.choice_order_expander import shuffle_choices
from eval_factory.tasks.choice_question import orders_of, perturbation_of_order
from facts import naming

CHOICES = ["heart", "liver", "spleen", "colon"]


def question(name: str, choices: list[str], split: str = "test") -> Instance:
    references = [
        Reference(Output(text), tags=[CORRECT_TAG] if at == 1 else [])
        for at, text in enumerate(choices)
    ]
    return Instance(
        Input(f"{name}?"), references, split=split, id=name, sub_split="part", extra_data={"x": 1}
    )


def expanded(orders: int) -> RunSpec:
    (spec,) = RUN_EXPANDERS["shuffle_choices"](orders).expand(sample_medical_qa())
    return spec


def test_each_question_is_asked_in_so_many_orders() -> None:
    spec = expanded(3)
    assert spec.name == sample_medical_qa().name
    kept = question("kept", [*CHOICES, "None of the above"])
    given = [
        question("shot", CHOICES, split="train"),
        question("a", CHOICES),
        kept,
        question("b", ["yes", "no"]),
    ]
    made = DataPreprocessor(spec.data_augmenter_spec).preprocess(given)
    named = [(one.id, one.perturbation and one.perturbation.name) for one in made]
    assert named == [
        ("shot", None),
        ("a", None),
        ("a", perturbation_of_order(2)),
        ("a", perturbation_of_order(3)),
        ("kept", None),
        ("b", None),
        ("b", perturbation_of_order(2)),
    ]
    assert [made[at] for at in (0, 1, 4, 5)] == given
    for one, order in zip(made[2:4], orders_of("a", CHOICES, 3)[1:], strict=True):
        assert [reference.output.text for reference in one.references] == [
            CHOICES[at] for at in order
        ]
        assert [reference.output.text for reference in one.references if reference.is_correct] == [
            "liver"
        ]
        assert (one.split, one.sub_split, one.extra_data, one.input.text) == (
            "test",
            "part",
            {"x": 1},
            "a?",
        )


def test_helm_letters_the_choices_in_their_new_places() -> None:
    spec = expanded(2)
    # no model's window: nothing is cut
    adapter = MultipleChoiceJointAdapter.__new__(MultipleChoiceJointAdapter)
    adapter.adapter_spec = spec.adapter_spec
    (_, moved) = DataPreprocessor(spec.data_augmenter_spec).preprocess([question("a", CHOICES)])
    shown = [CHOICES[at] for at in orders_of("a", CHOICES, 2)[1]]
    right = "ABCD"[shown.index("liver")]
    assert adapter.construct_example_prompt(moved, include_output=True, reference_index=None) == (
        f"Question: a?\nA. {shown[0]}\nB. {shown[1]}\nC. {shown[2]}\nD. {shown[3]}\nAnswer: {right}\n"
    )


def test_a_run_without_lettered_options_is_refused() -> None:
    spec = sample_medical_qa()
    generation = replace(spec, adapter_spec=replace(spec.adapter_spec, method="generation"))
    with pytest.raises(
        ValueError,
        match=naming("lettered options", "sample_medical_qa is generation"),
    ):
        shuffle_choices(generation, "2")
    augmented = replace(spec, data_augmenter_spec=DataAugmenterSpec([PerturbationSpec("x", {})]))
    with pytest.raises(ValueError, match="cannot be used with"):
        shuffle_choices(augmented, "2")
