"""Tests of what answers state, in the shapes that real models write: in words of our own."""

from __future__ import annotations

import pytest

from eval_factory.reading import Kind, read_answer, stated_option

CHEST_PAIN = {
    "A": "Pulmonary embolism",
    "B": "Acute pericarditis",
    "C": "Aortic dissection",
    "D": "Unstable angina",
    "E": "Esophageal rupture",
}
LESIONS = {
    "A": "They are inherited",
    "B": "They respond to insulin",
    "C": "They cause weight loss",
    "D": "They are never painful",
}
YES_NO_MAYBE = {"A": "yes", "B": "no", "C": "maybe"}
TRUE_FALSE = {"A": "True", "B": "False"}
DRUGS = {
    "A": "Cefazolin",
    "B": "Cefoxitin",
    "C": "Vancomycin",
    "D": "None of the above",
    "E": "All of the above",
}

HEART = {
    "A": "Acute pericarditis",
    "B": "Pericarditis with pleural effusion",
    "C": "Left ventricular failure",
}

STATED = [
    (CHEST_PAIN, "A: Pulmonary embolism", "A"),
    (CHEST_PAIN, "A. Pulmonary embolism and C\n\nBecause both hurt, but A is the answer.", "A"),
    (
        CHEST_PAIN,
        "The patient has pleuritic pain. The ECG shows diffuse ST elevation, which is typical of acute pericarditis. Hence the best answer is (B).",
        "B",
    ),
    (
        CHEST_PAIN,
        "This is most consistent with acute pericarditis (option B). Pulmonary embolism (option A) would cause hypoxia.",
        "B",
    ),
    (
        CHEST_PAIN,
        "A: Pulmonary embolism is possible but there is no hypoxia. B: Acute pericarditis fits the ECG. C: Aortic dissection would show a wide mediastinum. The answer: B",
        "B",
    ),
    (CHEST_PAIN, "I initially considered A, but the ECG changes point to B. Final answer: B", "B"),
    (CHEST_PAIN, "The answer is A. Wait, the ECG shows diffuse changes. So the answer is B.", "B"),
    (CHEST_PAIN, "The correct answer is A.\n\nCorrection: the correct answer is B.", "B"),
    (
        CHEST_PAIN,
        "While option A is the most likely cause in smokers, this man is young. The correct option is D.",
        "D",
    ),
    (
        CHEST_PAIN,
        "**B**\n\nA. Pulmonary embolism: no hypoxia\nC. Aortic dissection: no tearing pain\nD. Unstable angina: wrong ECG\nE. Esophageal rupture: no vomiting",
        "B",
    ),
    (CHEST_PAIN, "**C**\n\n- A: wrong\n- B: wrong\n- D: wrong", "C"),
    (
        CHEST_PAIN,
        "A. Pulmonary embolism\nB. Acute pericarditis\nC. Aortic dissection\nD. Unstable angina\nE. Esophageal rupture\n\nAnswer: D",
        "D",
    ),
    (CHEST_PAIN, "Answer is (c).", "C"),
    (CHEST_PAIN, "The answer is (c) because the pulses differ.", "C"),
    (CHEST_PAIN, "answer: c) aortic dissection", "C"),
    # A word belongs to one option: the longer text has "pericarditis".
    (HEART, "The answer is B: acute pericarditis with pleural effusion.", "B"),
    (HEART, "Option B (acute pericarditis with pleural effusion) is right.", "B"),
    (CHEST_PAIN, "Oesophageal rupture.", "E"),
    (CHEST_PAIN, "acute pericarditis", "B"),
    (CHEST_PAIN, "ACUTE PERICARDITIS", "B"),
    (CHEST_PAIN, "My answer would be B, although D is possible.", "B"),
    (CHEST_PAIN, "Not A, since there is no hypoxia. Not D, since troponin is normal. B.", "B"),
    (CHEST_PAIN, "<think>The answer is A. Hmm, no.</think>\n\nB", "B"),
    (CHEST_PAIN, "Let me think. The answer is A?</think>The answer is C", "C"),
    (CHEST_PAIN, '{"answer": "A", "confidence": 0.2, "alternatives": ["B", "C"]}', "A"),
    (CHEST_PAIN, 'Sure! Here is the JSON:\n```json\n{"answer": "d"}\n```', "D"),
    (CHEST_PAIN, '{"answer_idx": "C", "answer": "Aortic dissection"}', "C"),
    (CHEST_PAIN, "The answer is B) Acute pericarditis, not C) Aortic dissection.", "B"),
    (
        CHEST_PAIN,
        "B is incorrect. C is incorrect. D is incorrect. E is incorrect. A is correct.",
        "A",
    ),
    (CHEST_PAIN, "\\boxed{C}", "C"),
    (CHEST_PAIN, "The final answer is $\\boxed{\\text{D}}$.", "D"),
    (CHEST_PAIN, "B.\n\n### Question: Another one\nA. x\nB. y\n### Answer: C", "B"),
    (
        CHEST_PAIN,
        "Therefore, the answer is B. Acute pericarditis. Option A is the correct answer if D-dimer is raised.",
        "B",
    ),
    (CHEST_PAIN, "Dear colleague, the diagnosis: C - Aortic dissection", "C"),
    (CHEST_PAIN, "Diagnosis: Aortic dissection", "C"),
    (CHEST_PAIN, "I think B", "B"),
    (CHEST_PAIN, "I think it's B.", "B"),
    (CHEST_PAIN, "Probably C", "C"),
    (CHEST_PAIN, "It must be A.", "A"),
    (CHEST_PAIN, "Choose B", "B"),
    (CHEST_PAIN, "Definitely (D)", "D"),
    (CHEST_PAIN, "Is the answer B? Let us see. The answer is C.", "C"),
    (CHEST_PAIN, "Some would say the answer is A. The correct answer is C.", "C"),
    (CHEST_PAIN, "The answer is not A but C.", "C"),
    (CHEST_PAIN, "Best answer - B", "B"),
    (CHEST_PAIN, "ANSWER: B (high confidence)", "B"),
    (CHEST_PAIN, "Answer = C", "C"),
    (CHEST_PAIN, "Option B (Acute pericarditis) best fits this presentation.", "B"),
    (CHEST_PAIN, "The findings best support option D.", "D"),
    (CHEST_PAIN, "Therefore, option D is the most appropriate next step.", "D"),
    (CHEST_PAIN, "So option D.", "D"),
    (CHEST_PAIN, "This makes option D the correct answer.", "D"),
    (CHEST_PAIN, "A 45-year-old man with chest pain. What is the diagnosis?\n\nC", "C"),
    (LESIONS, "D. They are never painful is NOT true of these lesions.", "D"),
    (LESIONS, "D is not true, so the answer is D.", "D"),
    (LESIONS, "The statement that is false is D.", "D"),
    (YES_NO_MAYBE, "No, the abstract shows no difference.", "B"),
    (YES_NO_MAYBE, "Answer: Yes - the trial was positive.", "A"),
    (YES_NO_MAYBE, "Yes", "A"),
    (YES_NO_MAYBE, "The answer is maybe.", "C"),
    (YES_NO_MAYBE, "Yes. However, in some patients the answer may be no.", "A"),
    (TRUE_FALSE, "The statement is false.", "B"),
    (TRUE_FALSE, "False, because the virus is DNA.", "B"),
    (TRUE_FALSE, "It is true that fever occurs, but the statement is false.", "B"),
    (DRUGS, "None of the above", "D"),
    (DRUGS, "A, B and C, so E.", "E"),
    (DRUGS, "The correct answer is E. All of the above.", "E"),
    (
        DRUGS,
        "A. Cefazolin is a first-generation cephalosporin.\nB. Cefoxitin is second generation.\nTherefore the answer is A.",
        "A",
    ),
]
UNREAD = [
    # a small model's: it corrects itself, or answers something else
    (CHEST_PAIN, "A. C\n\nThis is incorrect because the answer is actually D (a tear)."),
    (CHEST_PAIN, "A: I am not a medical professional."),
    (CHEST_PAIN, "B. I cannot give medical advice."),
    (
        CHEST_PAIN,
        "Option A could explain the dyspnea. Option B could explain the pain. Option C is dangerous.",
    ),
    (
        CHEST_PAIN,
        "Option C: Aortic dissection, is unlikely here. Option D, Unstable angina, could be considered.",
    ),
    (
        CHEST_PAIN,
        "The correct answer is A. Pulmonary embolism.\n\nTherefore, the correct answer is B. Acute pericarditis.",
    ),
    (CHEST_PAIN, "If the D-dimer were raised, the answer would be A."),
    (CHEST_PAIN, "A patient like this needs an echocardiogram."),
    (
        CHEST_PAIN,
        "A. Pulmonary embolism\nB. Acute pericarditis\nC. Aortic dissection\nD. Unstable angina\nE. Esophageal rupture",
    ),
    (CHEST_PAIN, "Neither A nor B fits. C is out as well."),
    (CHEST_PAIN, "Between B and D, I lean toward B."),
    (CHEST_PAIN, "Pulmonary embolism would be unlikely. The answer is therefore not A."),
    (CHEST_PAIN, "Esophageal perforation"),
    (CHEST_PAIN, "Acute pericarditis with effusion needs drainage."),
    (CHEST_PAIN, "B) Aortic dissection"),
    (CHEST_PAIN, "The answer is B, aortic dissection."),
    (CHEST_PAIN, "It is either B or C."),
    (CHEST_PAIN, "<think>The answer is A."),
    (CHEST_PAIN, '{"reasoning": "A is tempting", "answer": null}'),
    (
        CHEST_PAIN,
        "Vitamin D deficiency, hepatitis B and group A streptococci are not relevant. The diagnosis is unclear.",
    ),
    (
        CHEST_PAIN,
        "The most likely diagnosis is unstable angina rather than acute pericarditis (option B).",
    ),
    (CHEST_PAIN, "The most likely diagnosis is not acute pericarditis (option B)."),
    (CHEST_PAIN, "The correct answer cannot be B because of the ECG."),
    (CHEST_PAIN, "Which answer is correct? A is wrong. So is B."),
    (
        CHEST_PAIN,
        "The question asks for the most likely diagnosis. The answer choices are: A) Pulmonary embolism B) Acute pericarditis C) Aortic dissection D) Unstable angina.",
    ),
    (CHEST_PAIN, "Answer choices: A, B, C, D"),
    (CHEST_PAIN, "The answer is A\nThe answer is B\nThe answer is C"),
    (CHEST_PAIN, "I'm sorry, but I can't help with that."),
    (CHEST_PAIN, "E. coli is the usual organism."),
    (
        CHEST_PAIN,
        "Looking at the options, we can eliminate A, C and E. Between B and D, D is the better choice.",
    ),
    (CHEST_PAIN, "We can rule out A (Pulmonary embolism)."),
    (CHEST_PAIN, "Maybe D?"),
    (CHEST_PAIN, "B?"),
    (CHEST_PAIN, "Is it B? No."),
    (CHEST_PAIN, "Students often think the answer is A."),
    (CHEST_PAIN, "A\n\nB"),
    (LESIONS, "A is true. B is true. C is true. D is false."),
    (LESIONS, "All are correct except D."),
    (YES_NO_MAYBE, "No significant difference was found between the groups."),
    (YES_NO_MAYBE, "It may or may not help; maybe more trials are needed."),
    (YES_NO_MAYBE, "Therefore, the answer is not yes."),
    (TRUE_FALSE, "The statement is not true."),
    (DRUGS, "The answer is cefuroxime."),
    (DRUGS, "Cefotaxim"),
    (DRUGS, "The answer is none of these."),
    (DRUGS, "All of the above are beta-lactams except vancomycin."),
    (
        DRUGS,
        "Vancomycin (C) is used for MRSA. Cefazolin (A) is the drug of choice for prophylaxis.",
    ),
]


@pytest.mark.parametrize(("options", "answer", "label"), STATED)
def test_the_option_that_an_answer_states(options: dict[str, str], answer: str, label: str) -> None:
    assert stated_option(answer, options) == label


@pytest.mark.parametrize(("options", "answer"), UNREAD)
def test_what_states_no_option_is_unread(options: dict[str, str], answer: str) -> None:
    assert stated_option(answer, options) is None


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("I stand by my original answer of B.", "B"),
        ("I'm sticking with my answer, B.", "B"),
        ("You may be right to question it, but I keep my answer B.", "B"),
        ("I am still confident in my answer, B.", "B"),
        ("My answer remains B.", "B"),
        ("I would still choose B.", "B"),
        ("Yes, B.", "B"),
        ("After checking once more: B", "B"),
        ("I considered D. Unstable angina, but B. Acute pericarditis is the better answer.", "B"),
        ("Sorry, B. Acute pericarditis", "B"),
        ("A: The answer to this question is actually D.", None),
        ("I'd like to change my answer from B to D.", "D"),
        ("I change my answer to D. Unstable angina.", "D"),
        ("I do not stand by my answer B.", None),
        ("I cannot confirm B.", None),
        ("I am not confident in my answer, B.", None),
        ("Still, acute pericarditis may do it.", None),
        ("Yes, a doctor should see it.", None),
    ],
)
def test_after_a_doubt_an_answer_is_kept_or_changed(answer: str, label: str | None) -> None:
    assert stated_option(answer, CHEST_PAIN) == label


def test_a_reading_says_why_there_is_no_option() -> None:
    kinds = {
        "B": Kind.STATED,
        "B or C": Kind.SEVERAL,
        "The answers are B and C.": Kind.SEVERAL,
        "B. Aortic dissection": Kind.CONFLICT,
        "B. It fits.\n\nTherefore, the answer is C.": Kind.CONFLICT,
        "A patient has pain.": Kind.NOTHING,
        "": Kind.NOTHING,
    }
    assert {answer: read_answer(answer, CHEST_PAIN).kind for answer in kinds} == kinds
    assert read_answer("B or C", CHEST_PAIN).label is None


def test_without_options_nothing_is_stated() -> None:
    assert stated_option("B", {}) is None


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("C. Calcium channel", None),
        ("D. Calcium channel", "D"),
        ("C. Calcium", "C"),
        ("C. ACE inhibitors", "C"),
        ("C. Acetylcholinesterase", None),
        ("E. Acetylcholinesterase", "E"),
        ("C. Calcium chan", None),
        ("D. Calcium chan", "D"),
        ("C. Acetylchol", None),
        ("E. Acetylchol", "E"),
        ("C. ACE inhib", "C"),
    ],
)
def test_a_label_before_the_cut_text_of_another_option_is_unread(
    answer: str, label: str | None
) -> None:
    options = {
        "A": "Beta blockers",
        "B": "Diuretics",
        "C": "ACE inhibitors",
        "D": "Calcium channel blockers with nitrates",
        "E": "Acetylcholinesterase inhibitors at night",
    }
    assert stated_option(answer, options) == label
