"""A letter, or a letter behind a language's words for "the answer is", is read; all else is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eval_factory.reading import stated_option

OPTIONS = dict.fromkeys("ABCD", "")
LANGUAGES = yaml.safe_load(Path(__file__).with_name("languages.yml").read_text("utf-8"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_ten_answers_of_a_language(language: str) -> None:
    lines = LANGUAGES[language]["lines"]
    assert len(lines) == 10
    expected = {line["answer"]: line["label"] for line in lines}
    assert {answer: stated_option(answer, OPTIONS) for answer in expected} == expected
