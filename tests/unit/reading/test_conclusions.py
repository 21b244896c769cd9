"""Answers that walk through options, list them, plan steps, or think again: what they conclude."""

from __future__ import annotations

import pytest

from eval_factory.reading import stated_option

ANEMIA = {
    "A": "Iron deficiency anemia",
    "B": "Thalassemia minor",
    "C": "Anemia of chronic disease",
    "D": "Sideroblastic anemia",
}
STEPS = {
    "A": "Order a CT scan",
    "B": "Start heparin",
    "C": "Observation without treatment",
    "D": "If stable, discharge",
}
YES_NO_MAYBE = {"A": "yes", "B": "no", "C": "maybe"}
TRUE_FALSE = {"A": "True", "B": "False"}

STATED = [
    # what stands before it is no condition
    (ANEMIA, "Based on the information provided, the most likely answer is B.", "B"),
    (STEPS, "The answer is C) Observation without treatment.", "C"),
    (STEPS, "So the answer is D) If stable, discharge.", "D"),
    (ANEMIA, "If I had to choose, I would choose B.", "B"),
    # a heading and its line
    (ANEMIA, "Sure! The answer is:\n\nB. Thalassemia minor\n\nAsk me why A and C are wrong.", "B"),
    (STEPS, "The most appropriate next step would be:\n\nA) Order a CT scan\n\nIt is quick.", "A"),
    # options that are left
    (ANEMIA, "We can exclude A, C and D, leaving B as the correct answer.", "B"),
    (ANEMIA, "A, C and D are excluded. That leaves B.", "B"),
    (
        ANEMIA,
        "This leaves thalassemia minor and iron deficiency anemia. Ferritin is low.\n\nAnswer: A",
        "A",
    ),
    (
        ANEMIA,
        "A. Iron deficiency anemia\nB. Thalassemia minor\nC. Anemia of chronic disease\nD. Sideroblastic anemia\n\nC",
        "C",
    ),
    # a text before another sentence's label
    (ANEMIA, "This fits thalassemia minor.\n\nAnswer: B) Thalassemia minor.", "B"),
    # the words of statements
    (ANEMIA, "I'd pick B here.", "B"),
    (ANEMIA, "My guess is B.", "B"),
    (ANEMIA, "Correct: B", "B"),
    (ANEMIA, "It's not A, it's B.", "B"),
    (ANEMIA, "The exception is B.", "B"),
    (ANEMIA, "The incorrect statement is D.", "D"),
    (ANEMIA, "I cannot be sure, but B is most likely.", "B"),
    (ANEMIA, "Ferritin is low, which makes it A.", "A"),
    (ANEMIA, "True statements: A, B, D. False statement: C. So the answer is C.", "C"),
    (ANEMIA, "Correct answer: A\n\nC is the best answer for chronic inflammation only.", "A"),
    (ANEMIA, "Answer: C) Anaemia of chronic inflamation", "C"),
    (STEPS, "The next best step is to order a CT scan.", "A"),
    ({"A": "4", "B": "15", "C": "20"}, "The sum is 5 + 10 = 15. Answer: B", "B"),
    (ANEMIA, '{"steps": "Ferritin is low.", "final": {"answer": "A"}}', "A"),
    (YES_NO_MAYBE, "Therefore, the drug is indeed safer.", "A"),
    # what is conceded before a comma
    (ANEMIA, "Although A is the commonest, B is the best answer here.", "B"),
    (ANEMIA, "While iron deficiency (A) is common, the diagnosis is B.", "B"),
    (ANEMIA, "Both A and D are possible, but A is preferred.", "A"),
    (STEPS, "The test of choice is a CT scan (option A).", "A"),
    (STEPS, "I recommend B.", "B"),
    (STEPS, "I'm going with B.", "B"),
    (STEPS, "The only option that fits is B.", "B"),
    (STEPS, "Only B is correct.", "B"),
    (STEPS, "B fits best.", "B"),
    (STEPS, "B looks correct.", "B"),
    (ANEMIA | {"D": "All of the above"}, "A, B and C are correct. The answer is D.", "D"),
    (YES_NO_MAYBE, "In short: no.", "B"),
]
UNREAD = [
    # what begins with a label is a sentence
    (TRUE_FALSE, "The answer is A patient with fever."),
    (TRUE_FALSE, "So the answer is:\nA pound is a unit of weight."),
    (ANEMIA, "Many findings are normal. This is a"),
    (ANEMIA, "Thalassemia minor (B) raises HbA2 in most patients."),
    # a list is no answer, and neither is its last item
    (
        ANEMIA,
        "Differential diagnosis:\n\nA) Iron deficiency anemia: no\n\nB) Thalassemia minor: no",
    ),
    (ANEMIA, "A) Ferritin is normal.\n\nB) HbA2 is normal.\n\nC)"),
    (ANEMIA, "Option A has low ferritin.\n\nOption B has raised HbA2.\n\nOption C"),
    (ANEMIA, "The answer is B) a microcytic disorder and D) Sideroblastic anemia."),
    # options that are gone through
    (ANEMIA, "The first option is iron deficiency anemia. The second is more common."),
    (ANEMIA, "The least likely option is D."),
    (ANEMIA, "Thalassemia minor is a newer diagnosis option in this region."),
    (
        STEPS,
        "First, stop the drug. The first step is to give fluids. The next step is to order a CT scan.",
    ),
    # an answer that is taken back
    (ANEMIA, "The answer is A, no wait, there is more."),
    (ANEMIA, "A... actually there is more."),
    (ANEMIA, "The answer is B... no, A."),
    (ANEMIA, "The answer is B, or rather A."),
    (ANEMIA, '{"choice": "A"}\n{"choice": "B"}'),
    (ANEMIA, "A (20%), B (70%), C (5%), D (5%)"),
    (ANEMIA, "La risposta non è B."),
    (ANEMIA, "La réponse correcte n'est pas B."),
    # questions that a text asks itself
    (YES_NO_MAYBE, "Third, is there a difference? The answer is yes.\nFourth, it may not matter."),
    # what only the meaning tells
    (YES_NO_MAYBE, "Therefore, the drug does not change survival."),
    (YES_NO_MAYBE, "In conclusion, the drug is indeed less safe."),
]


@pytest.mark.parametrize(("options", "answer", "label"), STATED)
def test_the_option_that_is_concluded(options: dict[str, str], answer: str, label: str) -> None:
    assert stated_option(answer, options) == label


@pytest.mark.parametrize(("options", "answer"), UNREAD)
def test_what_concludes_nothing_is_unread(options: dict[str, str], answer: str) -> None:
    assert stated_option(answer, options) is None
