"""Each sentence holds the run's own numbers, and is not there where they are not known; so the methods section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, of_a_rubric, plain
from eval_factory.core.results import Comparability, Instances, Score, TaskResult
from eval_factory.report.described_run import Citations, DescribedRun
from eval_factory.report.paper_templates import paper_texts
from eval_factory.report.papers import methods_text
from facts import says


def text(sentences: Iterable[str]) -> str:
    return " ".join(sentences)


def facts(
    result: TaskResult | None = None, config: Any = CONFIG, target: Any = TARGET
) -> DescribedRun:
    return DescribedRun(result or plain(), config, target)


class _Sentences:
    """`say.benchmark(run)`: the sentences of that name."""

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        def said(run: DescribedRun) -> list[str]:
            return replace(run, cite=Citations()).render_sentences(paper_texts()["sentences"][name])

        return said


say = _Sentences()


def extra(**values: Any) -> dict[str, Any]:
    return {"params": {"extra": values}}


def with_provenance(**changes: Any) -> DescribedRun:
    made = plain()
    return facts(replace(made, provenance=replace(made.provenance, **changes)))


def with_validity(made: TaskResult, **changes: Any) -> TaskResult:
    return replace(made, validity=replace(made.validity, **changes))


def with_stats(**changes: Any) -> DescribedRun:
    made = plain()
    score = made.scores["exact_match"]
    return facts(
        replace(made, scores={"exact_match": replace(score, stats=replace(score.stats, **changes))})
    )


def test_the_benchmark_and_its_data() -> None:
    told = text(say.benchmark(facts()))
    says(
        told,
        "pubmed_qa",
        "HELM 0.5.16 [1]",
        "MedHELM [2]",
        "GitHub pubmedqa/pubmedqa",
        "licence: MIT",
        "revision 1f00b98",
        "a" * 64,
    )
    assert "published" not in told, "of a result that does not know it"
    known = text(say.benchmark(with_provenance(published="2019-09", answers_public=True)))
    says(known, "published by 2019-09", "answers are public")
    gated = text(say.benchmark(with_provenance(answers_public=False)))
    says(gated, "unknown time", "answers are not public")
    own = text(say.benchmark(facts(config=extra(data_path="/secret/path"))))
    says(own, "files of the authors")
    assert "pubmedqa/" not in own
    assert "/secret" not in own
    custom = text(say.benchmark(facts(plain(task="custom.mine"), extra(benchmark="b.yaml"))))
    says(custom, "custom.mine")
    part = text(say.benchmark(facts(config=extra(subset="hard", language="es"))))
    says(part, "subset hard", "language es")
    for stamp in (None, Comparability(None, "no result")):
        assert "MedHELM" not in text(say.benchmark(facts(plain(comparability=stamp))))


def test_hashes_and_revisions_that_are_not_known_are_not_named() -> None:
    bare = text(say.data_source(with_provenance(dataset_revisions={}, dataset_files={})))
    says(bare, "GitHub pubmedqa/pubmedqa", "licence: MIT")
    assert "revision" not in bare
    many = with_provenance(
        dataset_revisions={"a": "2", "b": "1"}, dataset_files={"a": "x", "b": "y"}
    )
    says(text(say.data_source(many)), "revisions 1 and 2", "SHA-256", "2 data files")
    assert say.data_source(facts(plain(task="helm:x"), {}))[0].startswith("The data were read")


def test_how_many_instances_and_how_they_were_drawn() -> None:
    says(
        text(say.instances(facts())),
        "20 instances",
        "split test: 20",
        "of 1,000",
        "limited to 20",
        "seed 0",
    )
    says(
        text(say.instances(facts(config={"params": {"limit_samples": None}}))),
        "of 1,000",
        "No sample",
    )
    unknown = text(say.instances(facts(config={})))
    assert "sample" not in unknown
    assert "1,000" not in text(say.instances(facts(config=extra(subset="x"))))
    assert "1,000" not in text(say.instances(facts(config=extra(data_path="x"))))
    assert "seed" not in text(say.instances(with_provenance(seeds={})))
    says(text(say.instances(with_provenance(seeds={"sample": 7}))), "seed 7", "in proportion")
    one = with_validity(plain(), splits={"valid": 1}, instances=Instances(2, 2, 0, 0, 0, 0))
    says(text(say.instances(facts(one, {}))), "1 instance", "split valid: 1", "of 1,000")
    says(text(say.instances(facts(one, {}))), "trials and perturbations", "2 requests")
    assert text(say.instances(facts(with_validity(plain(), splits={}), {}))).startswith(
        "20 instances were asked"
    )
    says(text(say.instances(with_stats(trials=3))), "asked 3 times")


def test_the_model_and_what_it_calls_itself() -> None:
    says(
        text([*say.model(facts()), *say.dates(facts())]),
        "org/model",
        "chat endpoint",
        "api.example.org",
        "org/model-0806 (19 answers)",
        "2026-01-02T03:04:05Z to 2026-01-02T03:05:06Z (UTC)",
    )
    model = plain().provenance.endpoints["model"]
    other = with_provenance(endpoints={"model": replace(model, other_model=7)})
    says(text(say.model(other)), "7 answers", "another model")
    bare = DescribedRun(with_provenance(endpoints={}, started_at=None).result, {}, {})
    says(text(say.model(bare)), "org/model", "endpoint")
    assert "chat" not in text(say.model(bare))
    in_data = with_provenance(endpoints={"gpt": model})
    says(text(say.model(in_data)), "No model was asked", "org/model")
    assert list(say.dates(bare)) == []
    demo = text(say.model(with_provenance(target="demo baseline")))
    says(demo, "No model was evaluated", "demo endpoint")


def test_when_answers_came_is_said_of_all_parts_of_a_run() -> None:
    """The run that made the result may be the last of several, and ask nothing."""
    model = plain().provenance.endpoints["model"]
    model = replace(model, first_answer="2025-12-01T00:00:00Z", last_answer="2026-01-02T03:04:59Z")
    judge = replace(model, first_answer="2026-01-02T03:04:06Z", last_answer="2026-01-02T03:05:00Z")
    made = with_provenance(endpoints={"model": model, "gpt": judge}).result
    says(
        text(say.dates(facts(replace(made, usage=replace(made.usage, runs=2))))),
        "2025-12-01T00:00:00Z to 2026-01-02T03:04:59Z (UTC)",
        "32 days",
        "gpt",
        "2026-01-02T03:04:06Z to 2026-01-02T03:05:00Z",
        "last of 2 runs",
        "2026-01-02T03:04:05Z to 2026-01-02T03:05:06Z",
    )
    strange = replace(model, first_answer="soon\x1b")
    assert "from soon\\x1b to 2026" in text(
        say.dates(with_provenance(endpoints={"model": strange}))
    )


def test_sampling_is_what_was_sent() -> None:
    says(text(say.sampling(facts())), "max_tokens = 1", "temperature = 0.0")
    model = plain().provenance.endpoints["model"]
    two = with_provenance(endpoints={"model": replace(model, sampling=({"a": 1}, {"a": 2}))})
    says(text(say.sampling(two)), "a = 1", "most", "2 combinations")
    assert list(say.sampling(with_provenance(endpoints={}))) == []
    roomy = text(say.sampling(with_provenance(asked_again_tokens=256)))
    says(roomy, "other words", "further turn", "256 tokens")
    thought = with_validity(plain(), instances=Instances(2, 2, 0, 0, 0, 0, thinking_stripped=5))
    says(text(say.sampling(facts(thought))), "5 answers", "reasoning was removed")


def test_prompts() -> None:
    told = text(say.prompts(facts()))
    says(told, "HELM 0.5.16", "zero-shot", "No system prompt", "b" * 64)
    adapter = {"custom_system_prompt": "Be brief, patient X.", "params_to_add": {"seed": 1}}
    added = text(say.prompts(facts(target={"api_endpoint": {"adapter_config": adapter}})))
    says(added, "A system prompt", "authors", "seed")
    assert "patient X" not in added
    assert "system prompt" not in text(say.prompts(facts(target={})))
    custom = text(say.prompts(facts(plain(task="custom.x"), extra(benchmark="b"))))
    says(custom, "template of the authors", "No system")
    assert "reasoning" not in told
    reasoned = text(say.prompts(facts(config=extra(answer_style="reasoned"))))
    says(reasoned, "HELM 0.5.16", "reasoning", "last line")
    for count, words in ((1, "1 prompt was cut"), (2, "2 prompts were cut")):
        cut = with_validity(plain(), instances=Instances(2, 2, 0, 0, 0, 0, prompt_truncated=count))
        assert words in text(say.prompts(facts(cut)))


def test_the_metric_its_scale_and_its_floor() -> None:
    told = text(say.metric(facts()))
    says(
        told,
        "exact_match",
        "HELM 0.5.16",
        "from 0 to 1",
        "higher is better",
        "empty and always A",
        "always A",
        "0.5520",
    )
    score = plain().scores["exact_match"]
    bare = Score(score.value, score.stats, "wer", "test", higher_is_better=False)
    beside = {
        "exact_match": bare,
        "exact_match.lenient": bare,
        "exact_match.helm": bare,
        "exact_match.corrected": bare,
    }
    other = facts(with_validity(plain(scores=beside), floors={}))
    told = text(say.metric(other))
    says(told, "(lower is better)")
    assert "exact_match.lenient counts" in told
    says(told, "exact_match.helm is HELM's")
    assert "need no model" not in told
    assert "could not be computed" in text(say.metric(facts(plain(scores={}))))
    says(text(say.corrections(other)), "HELM's: exact_match.corrected")
    says(text(say.corrections(facts())), "version 3")
    assert "corrected" not in text(say.corrections(facts()))


def test_a_jury() -> None:
    assert list(say.jury(facts())) == []
    told = text(say.jury(facts(of_a_jury())))
    says(
        told,
        "from 1 to 5",
        "2 language models",
        "kind (judge/one; temperature",
        "3 of 3 answers",
        "strict (judge/two)",
        "2 of 3 answers",
        "c" * 64,
        "5 of 6 judgements",
        "Krippendorff's alpha",
        "[1], is 0.614",
        "Cohen's kappa",
        "kind/strict 0.322",
    )
    made = of_a_jury()
    bare = replace(
        with_validity(made, jury=None, judgements=None), provenance=plain().provenance, scores={}
    )
    told = text(say.jury(facts(bare)))
    says(told, "2 language models", "kind, 3 of 3", "strict, 2 of 3")
    assert "scale" not in told
    assert made.validity.jury is not None
    undefined = replace(made.validity.jury, krippendorff_alpha=None, weighted_kappa={"a/b": None})
    assert list(say.agreement(facts(with_validity(made, jury=undefined)))) == []


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        ({}, "The 95 % interval of the main score is Wilson's score interval [1]."),
        ({"ci_method": None}, "No interval is given for the main score."),
        (
            {"ci_method": "new\nway"},
            "The 95 % interval of the main score was computed by: new way.",
        ),
        (
            {"ci_method": "student-t-clustered", "clusters": 5, "design_effect": 2.345},
            "[1]. The instances share 5 sources, which the interval takes into account. The design effect [2] is 2.35.",
        ),
    ],
)
def test_the_interval_with_its_source(stats: dict[str, Any], told: str) -> None:
    assert text(say.intervals(with_stats(**stats))).endswith(told)


def test_groups_and_sources_of_instances() -> None:
    assert list(say.intervals(facts(plain(scores={})))) == []
    made = plain()
    score = made.scores["exact_match"]
    tested = replace(score, stats=replace(score.stats, p_value=0.1, clusters=9))
    of_groups = {"f": {"v": {"exact_match": tested}}}
    grouped = replace(made, task="medcalc_bench", groups=of_groups, scores={"exact_match": tested})
    told = text(say.intervals(facts(grouped)))
    says(told, "9 sources (calculator)")
    says(told, "Holm's correction", "[2]")
    assert "design effect" not in told


def test_what_is_missing() -> None:
    told = text(say.missing(facts()))
    says(
        told,
        "19 of 20",
        "1 failed",
        "left out",
        "2 were empty",
        "3 were cut off",
        "4 were not in",
        "from 0.7000 to 0.7500",
    )
    says(text(say.missing(facts(config=extra(on_failure="zero")))), "count as 0")
    assert "Failed instances" not in text(say.missing(facts(config={})))
    counts = Instances(9, 9, 0, 0, 0, 0, unjudged=2)
    told = "9 of 9 requested instances have a score; 0 failed. 2 answers got no usable judgement, and so no score."
    assert (
        text(
            say.missing(
                facts(with_validity(plain(), instances=counts, bounds={"exact_match": (0.7, 0.7)}))
            )
        )
        == told
    )
    assert list(say.reportable(facts())) == []
    told = "By the limits that were set for the run, this score may not"
    assert text(say.reportable(facts(of_a_jury()))).startswith(told)


def test_beside_the_leaderboard() -> None:
    says(text(say.deviations(facts())), "crfm-helm 0.5.16", "temperature 0.7 (leaderboard: 0.0)")
    same = facts(plain(comparability=Comparability(True)))
    says(text(say.deviations(same)), "MedHELM's leaderboard", "crfm-helm 0.5.16")
    for stamp in (None, Comparability(None, "no result")):
        assert list(say.deviations(facts(plain(comparability=stamp)))) == []


def test_software() -> None:
    says(
        text(say.software(facts())),
        "eval-factory 1",
        "crfm-helm 0.5.16",
        "Python 3.11",
        "scipy 1.15.3",
        "2 patches of HELM",
        "Debian 12, x86_64",
        "run is identity",
    )
    bare = with_provenance(
        helm=None, packages={}, patches=("a",), platform={}, code_execution={"confined_by": []}
    )
    says(
        text(say.software(bare)),
        "eval-factory 1",
        "Python 3.11",
        "1 patch of HELM",
        "executed",
        "confined process",
        "run is identity",
    )
    assert "crfm-helm" not in text(say.software(bare))


def test_a_rubric() -> None:
    told = text(say.jury(facts(of_a_rubric())))
    start = (
        "The answers were judged criterion by criterion (12 criteria, 4.0 per answer on average)"
    )
    assert told.startswith(start)
    says(
        told,
        "kind (judge/one; temperature",
        "12 of 12 criteria",
        "strict (judge/two)",
        "9 of 12 criteria",
    )
    says(told, "kind/strict", "66.7 %", "9 criteria", "Cohen's kappa 0.400")
    assert "rated" not in told


def test_a_source_keeps_its_number_and_each_form_of_interval_has_one() -> None:
    cite = Citations()
    assert (cite("wilson"), cite("efron", "wilson")) == ("[1]", "[2, 1]")
    assert [one[:12] for one in cite.listed()] == ["E. B. Wilson", "B. Efron, Be"]
    with pytest.raises(KeyError):
        cite("nobody")
    assert set(
        chain.from_iterable(one["sources"] for one in paper_texts()["intervals"].values())
    ) <= set(paper_texts()["sources"])


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("api.example.org:8443", " at api.example.org:8443"),
        ("127.0.0.1:80", ""),
        ("[::1]:9", ""),
        ("", ""),
    ],
)
def test_the_machine_of_the_run_is_no_host_to_name(host: str, shown: str) -> None:
    model = replace(plain().provenance.endpoints["model"], host=host)
    assert say.model(with_provenance(endpoints={"model": model}))[0].endswith(
        f"chat endpoint{shown}."
    )


def test_what_a_rubric_rests_on_and_what_was_not_decided() -> None:
    made = of_a_rubric()
    rubric = made.validity.rubric
    assert rubric is not None
    votes = replace(rubric.criteria, asked=12, unjudged=1, tied=2)
    told = say.rubric(facts(with_validity(made, rubric=replace(rubric, criteria=votes))))
    says(told[1], "the mean", "from 0 to 1", "[1]")
    undecided, tied = told[2:]
    says(undecided, "1 of 12 criteria", "no score")
    says(tied, "2 criteria", "count half")
    whole = replace(rubric, criteria=replace(votes, unjudged=0, tied=0))
    assert say.rubric(facts(with_validity(made, rubric=whole)))[2:] == []


def test_the_methods_section_is_paragraphs_with_references_at_the_end() -> None:
    paragraphs = methods_text(plain(), CONFIG, TARGET).split("\n\n")
    beginnings = (
        "The benchmark was",
        "The evaluated model was",
        "The main metric was",
        "The 95 % interval",
        "The settings differ",
        "The evaluation was run",
        "References\n[1] P. Liang",
    )
    found = [
        paragraph[: len(start)] for paragraph, start in zip(paragraphs, beginnings, strict=True)
    ]
    assert found == list(beginnings)
    assert paragraphs[-1].endswith(".\n")
    assert not [text for text in ("What is q", "answer to") if text in "".join(paragraphs)], (
        "of the instances"
    )
    told = methods_text(of_a_jury(), CONFIG, TARGET)
    says(told, "from 1 to 5")
    says(told, "may not be reported")
    assert "may not be reported" not in methods_text(plain(), CONFIG, TARGET)


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_number_in_brackets_is_a_reference_and_each_is_cited(
    made: Callable[[], TaskResult],
) -> None:
    text, _, references = methods_text(made(), CONFIG, TARGET).rpartition("References")
    cited = {
        int(one)
        for one in chain.from_iterable(
            found.split(", ") for found in re.findall(r"\[(\d+(?:, \d+)*)\]", text)
        )
    }
    assert cited == set(range(1, len(references.strip().splitlines()) + 1))


def test_it_is_printable_whatever_others_wrote() -> None:
    told = methods_text(hostile(), {"params": None}, {"api_endpoint": None})
    assert told.replace("\n", "").isprintable()
    assert all("\n" not in part for part in told.partition("\n\nReferences")[0].split("\n\n"))
