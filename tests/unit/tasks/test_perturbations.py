from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.perturbation_words import word_lists
from eval_factory.tasks.perturbations import (
    CHECKED_FAMILIES,
    FAMILIES,
    perturbed,
    why_not_offered,
)

NAMES = [
    "typos",
    "case",
    "spaces",
    "synonyms",
    "dialect",
    "gender",
    "race",
    "person_name",
    "brand_names",
    "generic_names",
    "units",
    "distractor",
    "first_person",
    "worried",
    "demographics",
]
CASE = (
    "A 54-year-old man comes to the physician because of a cough that began 3 days ago. He has no fever, and his temperature is 38 °C. "
    "He takes atorvastatin 20 mg daily without side effects. Laboratory studies: glucose 131 mg/dL (normal 72-99 mg/dL). "
    "Physical examination shows edema of his feet. Which of the following is the most likely diagnosis?"
)
OPTIONS = "\nA. Following treatment with atorvastatin\nB. The physician began 131 things\nAnswer:"


def changed(family: str, text: str, instance: str = "id1", context: str = "") -> str:
    new = perturbed(family, text, instance, context)
    assert new is not None
    assert new != text
    return new


def test_the_families_are_these_in_this_order_and_each_says_why_it_is_safe() -> None:
    assert list(FAMILIES) == NAMES
    assert all(one.about and one.why_safe for one in FAMILIES.values())
    with pytest.raises(KeyError):
        perturbed("shouting", CASE, "id1")


@pytest.mark.parametrize(
    "family", [name for name in NAMES if name not in ("race", "person_name", "generic_names")]
)
def test_each_family_changes_a_case_alike_each_time_and_never_what_follows_it(family: str) -> None:
    alone = changed(family, CASE)
    assert perturbed(family, CASE, "id1") == alone
    if family != "units":  # a unit among the choices may be what is asked for
        assert changed(family, CASE + OPTIONS).endswith(OPTIONS)
    assert changed(family, f"{CASE}\n\nAnswer with one letter: ").endswith(
        "\n\nAnswer with one letter: "
    )
    assert changed(family, f"{CASE} A) no B) fever").endswith("A) no B) fever")


def test_chance_depends_on_family_and_instance_alone() -> None:
    assert len({changed("typos", CASE, f"id{number}") for number in range(20)}) > 5


def test_several_lists_of_options_or_another_language_are_left_alone() -> None:
    spanish = "Un hombre de 45 años acude a la consulta por fiebre y tos. ¿Cuál es el diagnóstico más probable?"
    for family in NAMES:
        assert perturbed(family, f"{CASE}{OPTIONS} A\n\n{CASE}{OPTIONS}", "id1") is None, family
        assert perturbed(family, spanish, "id1") is None, family


def test_typos_hit_one_word_in_twenty_within_it_and_make_no_other_word() -> None:
    new = changed("typos", CASE)
    pairs = [(a, b) for a, b in zip(CASE.split(), new.split(), strict=True) if a != b]
    assert len(pairs) == round(len(re.findall(r"[A-Za-z]{5,}", CASE)) / 20)
    for old, made in pairs:
        assert (old[0], old[-1]) == (made[0], made[-1])
        assert abs(len(old) - len(made)) <= 1
    every = {changed("typos", "medical", f"id{number}") for number in range(200)}
    assert "mediical" in every
    assert "medial" not in every
    assert perturbed("typos", "Xyz of metformin", "id1") is None


def test_case_keeps_units_symbols_abbreviations_and_negations() -> None:
    text = "The Na is 130 mEq/L and BP 120/80 mm Hg. In Hepatitis A, which is NOT seen? No IgG. Not Crohn."
    assert (
        changed("case", text)
        == "the Na is 130 mEq/L and BP 120/80 mm Hg. in hepatitis A, which is NOT seen? No IgG. Not crohn."
    )
    assert perturbed("case", "which is it?", "id1") is None


def test_spaces_change_nothing_but_blanks_between_words() -> None:
    new = changed("spaces", CASE + "\nOther line of it.")
    assert re.sub(" +", " ", new) == CASE + "\nOther line of it."
    assert not re.search(r"\d  |  \d|\n ", new)
    assert perturbed("spaces", "aspirin 100 mg", "id1") is None


def test_synonyms_fit_the_article_and_leave_capitals() -> None:
    assert changed("synonyms", "The physician is here.") == "The doctor is here."
    assert changed("synonyms", "Typically it is red.") == "Usually it is red."
    assert (
        perturbed(
            "synonyms", "It is an elevated value of the PHYSICIAN in an Emergency Room.", "id1"
        )
        is None
    )


def test_dialect_goes_to_british_or_back() -> None:
    assert (
        changed("dialect", "Anemia, edema and a tumor of the center with gastroesophageal reflux.")
        == "Anaemia, oedema and a tumour of the centre with gastro-oesophageal reflux."
    )
    assert (
        changed("dialect", "The gastro-oesophageal tumour was analysed.")
        == "The gastroesophageal tumor was analyzed."
    )
    for kept in ("Characteristics of the thematic analysis are", "The academic systemic CENTER is"):
        assert perturbed("dialect", kept, "id1") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "A 40-year-old man hurt his arm. He came, and we saw him. It is himself.",
            "A 40-year-old woman hurt her arm. She came, and we saw her. It is herself.",
        ),
        (
            "A 40-year-old woman lost her keys. We asked her to sit. Her arm is hers.",
            "A 40-year-old man lost his keys. We asked him to sit. His arm is his.",
        ),
        ("A 9-year-old girl, with pain. She's well.", "A 9-year-old boy, with pain. He's well."),
    ],
)
def test_gender_is_swapped_in_every_word(old: str, new: str) -> None:
    assert changed("gender", old) == new


@pytest.mark.parametrize(
    "text",
    [
        "A 40-year-old woman is pregnant. She is ill.",
        "A 40-year-old man has prostatitis.",
        "A 40-year-old man and his wife are ill.",
        "A 40-year-old woman is ill. He is ill.",
        "A 40-year-old woman is ill. We told her nothing.",
        "A 40-year-old man is ill. The arm is his.",
        "A 40-year-old MAN is ill.",
        "A 40-year-old patient is ill.",
        "Men and women are ill. She is ill.",
        "40-year-old women are ill.",
        "A 40-year-old man has lupus.",
        "Mr. Smith, a 40-year-old man, is ill.",
        "A 40-year-old man. What is it?\nA. His arm\nB. His leg",
    ],
)
def test_gender_is_left_where_something_may_depend_on_it_or_a_word_is_not_sure(text: str) -> None:
    assert perturbed("gender", text, "id1") is None
    assert perturbed("gender", "A 40-year-old man has a laboratory test.", "id1") is not None


def test_the_choices_beside_a_text_count_for_its_guards() -> None:
    text = "A 40-year-old man is ill. What should be done?"
    assert changed("gender", text, context="Give aspirin\nWait") == text.replace("man", "woman")
    assert perturbed("gender", text, "id1", context="Pregnancy test\nWait") is None
    assert changed("race", text, context="Give aspirin")
    assert perturbed("race", text, "id1", context="Sickle cell disease") is None
    assert perturbed("units", "The glucose is 131 mg/dL.", "id1", context="150 mg/dL") is None


def test_race_is_told_once_where_nothing_depends_on_it() -> None:
    assert re.fullmatch(
        r"A 40-year-old man has a cough\. The patient is (Black|White|Asian|Hispanic)\. He is ill\.",
        changed("race", "A 40-year-old man has a cough. He is ill."),
    )
    for stop in (
        "of Greek descent",
        "with a rash",
        "with sickle cell disease",
        "with melanoma",
        "with hypertension",
        "with keloids",
        "who takes dapsone",
    ):
        assert perturbed("race", f"A 40-year-old man {stop} has a cough.", "id1") is None, stop
    assert perturbed("race", "Which enzyme is lacking in this disease?", "id1") is None


def test_a_name_is_given_or_changed_and_fits_the_sex() -> None:
    new = changed("person_name", "A 40-year-old woman has a cough. She is ill.")
    assert any(
        f". The patient's name is {name}. She" in new for name in word_lists().names["female"]
    )
    new = changed("person_name", "Mr. Smith has a cough. Mr. Smith is ill.")
    assert re.fullmatch(r"Mr\. (\w+) has a cough\. Mr\. \1 is ill\.", new)
    for kept in (
        "Ana, a 40-year-old woman, has a cough.",
        "A 40-year-old man named Bo has a cough.",
        "Mr. Crohn has the disease of Crohn.",
        "A 40-year-old man has lupus.",
    ):
        assert perturbed("person_name", kept, "id1") is None, kept


def test_brands_and_generic_names_replace_each_other() -> None:
    generic = "Warfarin is taken with metformin 500 mg."
    brand = "Coumadin is taken with Glucophage 500 mg."
    assert changed("brand_names", generic) == brand
    assert changed("generic_names", brand) == generic
    assert (
        changed("generic_names", "He takes Coumadin. It is red.") == "He takes warfarin. It is red."
    )
    assert 60 <= len(word_lists().brands) <= 110
    assert max(Counter(word_lists().brands.values()).values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "What is the brand of warfarin?",
        "What is the trade name of warfarin?",
        "Warfarin sodium is taken.",
        "Take warfarin (Coumadin).",
        "It is warfarin-induced, or amlodipine/benazepril.",
        "Is it an apixaban dose, or a metformin one? An atorvastatin dose is it.",
        "He takes WARFARIN.",
        "The imatinib (IM) group is it.",
        "The cipro is it.",
    ],
)
def test_names_of_drugs_stay_where_they_are_asked_for_or_do_not_fit(text: str) -> None:
    assert perturbed("brand_names", text, "id1") is None
    assert perturbed("generic_names", text, "id1") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The glucose is 131 mg/dL.", "The glucose is 7.27 mmol/L."),
        (
            "The glucose was 131 mg/dl (normal 72-99 mg/dL).",
            "The glucose was 7.27 mmol/L (normal 4-5.49 mmol/L).",
        ),
        (
            "The creatinine is 124 umol/L; albumin, 3.1 g/dL; sodium 140 mmol/L.",
            "The creatinine is 1.4 mg/dL; albumin, 31 g/L; sodium 140 mmol/L.",
        ),
        ("The uric acid is 8.1 mg / dL.", "The uric acid is 482 µmol/L."),
        ("The creatinine is 1.3 mg/dL.", "The creatinine is 115 \u00b5mol/L."),
        ("The creatinine is 115 \u03bcmol/L.", "The creatinine is 1.3 mg/dL."),
        ("The fever is 38°C.", "The fever is 100.4 °F."),
        (
            "The temperature is 101 F (38.3 C) and BUN 18 mg/dL.",
            "The temperature is 101 F (38.3 C) and BUN 6.43 mmol/L.",
        ),
        ("The LDL cholesterol is 120 to 151 mg/dL.", "The LDL cholesterol is 3.11 to 3.91 mmol/L."),
        ("The hemoglobin is 9.6 g/dL and creatinine clearance is low in the CSF.", None),
    ],
)
def test_values_are_converted_with_their_reference_ranges(old: str, new: str | None) -> None:
    assert perturbed("units", old, "id1") == new


@pytest.mark.parametrize(
    "text",
    [
        "The glucose is 131.",
        "The glucose is 131 mg/dL (normal 72-99).",
        "The glucose and calcium are 131 mg/dL.",
        "It rose to 131 mg/dL in the morning.",
        "The glucose is 126 mg/dL.",
        "The glucose tolerance was tested and lipase came to 131 mg/dL.",
        "The infusion of glucose is 5 mg/dL per minute.",
        "The glucose is 131 mg/dL. What is the ratio?",
        "Calculate the osmolality with a glucose of 131 mg/dL.",
        "The glucose is 131 mg/dL. In which unit is it, mmol/L?",
        "The sodium is 140 mmol/L.",
        "The urea is 10 mmol/L.",
        "The hemoglobin A1c and hemoglobin were 13 g/dL.",
        "The glucose after 2 and then is 1,310 mg/dL.",
        "The glucose is 131 mg/dL, and before it was 110 mg%.",
        "The temperature fell by 2 °C.",
        "The temperature is 38 ± 0.5 °C.",
    ],
)
def test_values_stay_where_one_of_them_is_not_sure(text: str) -> None:
    assert perturbed("units", text, "id1") is None


@given(
    st.sampled_from(word_lists().analytes), st.booleans(), st.integers(1, 9999), st.integers(0, 2)
)
@settings(max_examples=200, deadline=None)
def test_a_converted_value_gives_the_old_one_again(
    analyte: Any, first: bool, digits: int, decimals: int
) -> None:
    unit, other = analyte.units if first else analyte.units[::-1]
    number = f"{digits / 10**decimals:.{decimals}f}"
    new = perturbed("units", f"The {analyte.names[0]} is {number} {unit}.", "id1")
    if new is None:
        celsius = float(number) if not first else (float(number) - 32) / 1.8
        celsius = round(celsius, 6)
        assert float(number) in map(float, analyte.thresholds) or (
            analyte.offset and not 30 <= celsius <= 45
        )
        return
    found = re.fullmatch(rf"The {analyte.names[0]} is (-?[\d.]+) {other}\.", new)
    assert found is not None
    factor = float(analyte.factor)
    offset = float(analyte.offset)
    value = float(found[1])
    back = value / factor + offset if first else (value - offset) * factor
    assert back == pytest.approx(float(number), abs=0.51 / 10**decimals)


@pytest.mark.parametrize(("fahrenheit", "celsius"), [(113, "45"), (86, "30")])
def test_temperatures_at_the_limits_are_converted(fahrenheit: int, celsius: str) -> None:
    made = perturbed("units", f"The temperature is {fahrenheit} °F.", "id1")
    assert made is not None
    assert re.search(rf"is {celsius}(\.0)? °C", made)


@pytest.mark.parametrize("fahrenheit", [114, 85])
def test_temperatures_beyond_the_limits_stay(fahrenheit: int) -> None:
    assert perturbed("units", f"The temperature is {fahrenheit} °F.", "id1") is None


@given(st.integers(300, 450))
@settings(max_examples=30, deadline=None)
def test_a_temperature_has_a_decimal_and_comes_back(tenths: int) -> None:
    made = changed("units", f"The temperature is {tenths / 10} °C.")
    fahrenheit = float(made.split()[-2])
    assert fahrenheit == pytest.approx(tenths * 0.18 + 32, abs=0.051)


def test_a_distractor_stands_first_or_before_a_last_sentence_that_refers_to_nothing() -> None:
    text = "Asthma is common. Which drug is best?"
    made = {changed("distractor", text, f"id{number}") for number in range(40)}
    assert {
        re.sub("|".join(map(re.escape, word_lists().distractors)), "...", one) for one in made
    } == {
        f"... {text}",
        "Asthma is common. ... Which drug is best?",
    }
    for number in range(20):
        assert changed("distractor", "A man is ill. What explains this?", f"id{number}").endswith(
            ". A man is ill. What explains this?"
        )
        assert changed("distractor", "He saw Dr. Smith", f"id{number}").endswith(
            ". He saw Dr. Smith"
        )
        assert "\n\nQuestion: Is it so?\n" in changed(
            "distractor", "Context: Results. It is.\n\nQuestion: Is it so?\n", f"id{number}"
        )


def test_the_patient_speaks_or_lives_somewhere_only_where_an_adult_patient_is_told_of() -> None:
    text = "A 40-year-old man has a cough. He is ill."
    assert changed("first_person", text).endswith(text)
    assert re.fullmatch(
        r"A 40-year-old man has a cough\. The patient lives .* has worked as .*\. He is ill\.",
        changed("demographics", text),
    )
    for family in ("first_person", "demographics"):
        for kept in (
            "Which enzyme is it?",
            text.replace("40", "4"),
            text.replace("year", "week"),
            "Two 40-year-old patients are ill.",
        ):
            assert perturbed(family, kept, "id1") is None, (family, kept)
    assert perturbed("first_person", text.replace("a cough", "died"), "id1") is None
    assert perturbed("first_person", text.replace("a cough", "myocarditis"), "id1") is not None
    assert perturbed("demographics", text.replace("a cough", "worked as a miner"), "id1") is None


WORDS = st.sampled_from(
    [
        *[
            "the",
            "physician",
            "assess",
            "patient",
            "treatment",
            "fever",
            "anemia",
            "man",
            "he",
            "his",
            "usually",
        ],
        "not",
        "without",
        "no",
        "NOT",
        "warfarin",
        "lisinopril",
        "Lipitor",
        "5 mg",
        "12.5 %",
        "mmHg",
        "38 °C",
        "CT",
        "never",
        "3-day",
    ]
)


@given(
    st.lists(WORDS, min_size=3, max_size=25),
    st.sampled_from(
        [name for name in NAMES if name not in ("units", "brand_names", "generic_names")]
    ),
)
@settings(max_examples=300, deadline=None)
def test_numbers_units_drugs_and_negations_stay(words: list[str], family: str) -> None:
    text = f"A 50-year-old man is ill. {' '.join(words)}. What is it?"
    new = perturbed(family, text, "id1") or text
    kept = re.compile(
        r"[\d.]+|\b(?:not|without|no|NOT|never|warfarin|lisinopril|mg|mmHg|CT)\b|%|°C"
    )
    digits_and_more = [one for one in kept.findall(text) if one.strip(".")]
    assert [one for one in kept.findall(new) if one.strip(".")] == digits_and_more


EVERY = frozenset(NAMES)
LOOKS = frozenset({"typos", "case", "spaces"})
EXAMINATION = [
    "head_qa",
    "medbullets",
    "medhelm_med_qa",
    "medhelm_med_mcqa",
    "medxpertqa_text",
    "careqa",
    "afrimed_qa",
    "metamedqa",
    "medexqa",
    "m_arc",
    "mmlu_pro_health",
    "med_qa",
    "med_mcqa",
    "sample_medical_qa",
]
NOTES = [
    "aci_bench",
    "med_dialog_healthcaremagic",
    "med_dialog_icliniq",
    "med_dialog",
    "dischargeme",
    "mimic_rrs",
    "mimic_bhc",
    "starr_patient_instructions",
    "mtsamples_replicate",
    "mtsamples_procedures",
    "mental_health",
    "clear",
    "n2c2_ct_matching",
    "mimiciv_billing_code",
    "shc_bmt_med",
    "shc_cdi_med",
    "shc_conf_med",
    "shc_ent_med",
    "shc_gip_med",
    "shc_privacy_med",
    "shc_proxy_med",
    "shc_ptbm_med",
    "shc_sei_med",
    "shc_sequoia_med",
    "healthbench",
    "healthbench_hard",
    "healthbench_consensus",
    "healthbench_professional",
    "medcasereasoning",
]
OFFERED: dict[str, frozenset[str]] = {
    **dict.fromkeys(EXAMINATION, EVERY),
    **dict.fromkeys(NOTES, LOOKS),
    **dict.fromkeys(
        [
            "medec",
            "ehr_sql",
            "healthqa_br",
            "mmlu_clinical_afr",
            "chw_care_plan",
            "ehrshot",
            "medalign",
            "vqa_rad",
            "medxpertqa_mm",
            "slake",
            "path_vqa",
            "medconceptsqa",
        ],
        frozenset(),
    ),
    "medbullets_freetext": LOOKS | {"dialect", "distractor"},
    "pubmed_qa": EVERY - {"gender", "race", "person_name", "first_person", "demographics"},
    "medcalc_bench": LOOKS | {"dialect", "distractor", "worried"},
    "race_based_med": frozenset({"case", "spaces"}),
    "medhallu": frozenset({"case", "spaces"}),
    "medication_qa": EVERY - {"brand_names", "generic_names"},
    "medi_qa": EVERY,
    "script_concordance": EVERY - {"gender", "race", "person_name", "demographics", "first_person"},
    "longhealth": frozenset({"case", "spaces", "dialect", "distractor", "worried"}),
    "custom": EVERY,
}
"""What we stand by: written beside perturbations.yml, and not read from it."""


def test_each_task_has_the_families_that_we_stand_by() -> None:
    assert set(load_framework().names()) == set(OFFERED)
    assert {
        task: {one for one in NAMES if why_not_offered(one, task) is None} for task in OFFERED
    } == OFFERED


def test_a_task_stands_in_one_class_and_a_reason_names_known_families() -> None:
    listed = Counter(chain.from_iterable(one["tasks"] for one in word_lists().classes.values()))
    assert listed == Counter(load_framework().names())
    for one in word_lists().classes.values():
        for refusal in one["not_offered"]:
            assert refusal["reason"]
            assert refusal["families"] == "all" or set(refusal["families"]) <= EVERY


def test_what_is_not_ours_is_the_users_to_vouch_for() -> None:
    assert why_not_offered("gender", "helm:mmlu:subject=anatomy") is None
    assert why_not_offered("gender", "my_benchmark") is None
    assert "error" in (why_not_offered("typos", "medec") or "")
    assert "convers" in (why_not_offered("units", "medcalc_bench") or "")


@pytest.mark.parametrize(
    ("family", "text", "beside"),
    [
        ("gender", "A 24-year-old woman has had two aboions. She is well. What is next?", ""),
        ("gender", "A 24-year-old man is seen with a boy who coughs. What is next?", ""),
        ("gender", "A 4-year-old boy has a long face. He is well. What is it?", "fragile X"),
        ("race", "A 30-year-old man from Nepal has a cough. What is the cause?", ""),
        ("race", "A 30-year-old man with hypeension has a cough. What is the cause?", ""),
        ("units", "A patient has a glucose of 70, 100 and 131 mg/dL. What is the cause?", ""),
        ("units", "A patient has a glucose below 70 or above 181 mg/dL. What is it?", ""),
        ("units", "A patient has a glucose of 111 mg/dL to 131. What is the cause?", ""),
        ("units", "A patient has a glucose of 123456789012 mg/dL. What is it?", ""),
    ],
)
def test_what_a_guard_has_to_see_is_left(family: str, text: str, beside: str) -> None:
    for number in range(5):
        assert perturbed(family, text, f"id{number}", beside) is None


@pytest.mark.parametrize(
    ("family", "text", "word"),
    [
        ("gender", "A 44-year-old man has a cough. He is well. What is the cause?", "woman"),
        ("race", "A 30-year-old man has a cough. What is the cause?", "patient is"),
        ("units", "A patient has a glucose of 131 mg/dL. What is the cause?", "mmol/L"),
        ("units", "A patient has a glucose of 111 to 131 mg/dL. What is the cause?", "mmol/L"),
        ("dialect", "The angioedema came after two maneuvers.", "angio-oedema"),
        ("dialect", "The angioedema came after two maneuvers.", "manoeuvres"),
        ("dialect", "The angio-oedema came after two manoeuvres.", "angioedema"),
    ],
)
def test_what_no_guard_sees_is_changed(family: str, text: str, word: str) -> None:
    assert word in str(perturbed(family, text, "id"))


def test_families_that_a_clinician_has_to_read_are_named() -> None:
    assert set(FAMILIES) - set(CHECKED_FAMILIES) == {
        "gender",
        "race",
        "person_name",
        "demographics",
        "dialect",
        "brand_names",
        "generic_names",
    }
    assert all(family.needs for family in FAMILIES.values())
