"""Renders the text that --dry_run shows.

At its import, this module loads no code that sends requests to endpoints, so that a preview in CI
is fast.
"""

from __future__ import annotations

import difflib
import io
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from eval_factory.config.asking_rules import chance_questions_of
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.merge import Source
from eval_factory.config.resolved import Evaluation
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.endpoint.media_metadata import REMOVED_METADATA
from eval_factory.helm.command import model_files
from eval_factory.helm.names import LOGGING_FILE
from eval_factory.plan.run_plan import key_destination_lines, make_plan, may_send_files
from eval_factory.tasks.asking_forms import (
    ANSWER_WITH_CONFIDENCE,
    BLIND_PICTURES,
    CONFIDENCE_QUESTION,
    DOUBTS_WITH_AUTHORITY,
    I_DO_NOT_KNOW,
    LETTER_QUESTION,
    LOGPROBS,
    NEUTRAL_DOUBTS,
    QUESTION_NOT_SHOWN,
    STATED,
    STATED_ONLY,
    may_abstain_text,
)
from eval_factory.tasks.choice_question import NONE_OF_THE_OTHERS_TEXT
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.reasoned import REASONED_MAX_TOKENS, REASONED_STYLE, reasoned_tasks
from eval_factory.workflows.context import redactor_of, show_uncomputed_metrics, show_warnings
from eval_factory.workflows.options import DryRun, Options
from eval_factory.workflows.stop_when import faults_of_user_files, looks_line, shown_command


def dry_run(
    request: RunRequest, options: Options, *, env: Mapping[str, str], screen: TextIO
) -> DryRun:
    """Return the preview of a run: merge, check and render its configuration.

    Nothing is started and no file is written. With `options.diff`, the preview shows only the
    differences from the run config in `options.diff`.

    Raises:
        ConfigError: The configuration is wrong. A run would raise the same error before it checks
            its prerequisites.
    """
    if options.diff is not None:
        # Both previews use the flags and overrides of `request`, so only the run configs differ.
        complete = replace(options, shows_nulls=True, diff=None)
        if isinstance(options.diff, Path):
            old_request = replace(request, run_config=options.diff, document=None)
        else:
            old_request = replace(request, run_config=None, document=options.diff)
        unseen = io.StringIO()  # gets the warnings about the old run config
        old = dry_run(old_request, complete, env=env, screen=unseen)
        new = dry_run(request, complete, env=env, screen=screen)
        return DryRun(difference_of(old.text, new.text), new.would_stop)
    evaluation = build_evaluation(request, load_framework(), env)
    plan = make_plan(evaluation)
    argv = shown_command(plan, debug=options.debug)
    show_warnings(evaluation, screen)
    show_uncomputed_metrics([plan], env, screen)
    files = model_files(plan, debug=options.debug)
    files.pop(LOGGING_FILE, None)  # this file sets the level of HELM's log; it changes no request
    keys = key_destination_lines(plan.endpoints)
    text = preview(evaluation, argv, keys, files=files, shows_nulls=options.shows_nulls)
    if not evaluation.executor.is_local:
        # imported late: `slurm_run` imports code that sends requests to endpoints
        from eval_factory.workflows.suite.slurm_run import job_script

        text += "\n".join(job_script(evaluation, env)) + "\n"
    text = redactor_of(evaluation, env).redact_text(text)
    return DryRun(printable_lines(text), would_stop=tuple(map(str, faults_of_user_files(plan))))


def _additional_requests(evaluation: Evaluation) -> Iterator[str]:
    """Yield lines about questions asked again or in another form, and how answers are read."""
    extra = evaluation.extra
    if extra.repeats is not None:
        yield (
            f"repeats: each question {extra.repeats} times in the same words; "
            "the main score is the mean over them"
        )
    for name in extra.perturb or ():
        from eval_factory.tasks.perturbations import FAMILIES

        yield (
            f"perturb: {name}: {FAMILIES[name].about}; why the right answer does not change: "
            f"{FAMILIES[name].why_safe}"
        )
    if extra.pushback is not None:
        yield (
            f"pushback: after the answer, {extra.pushback} of these objections, "
            "in an order that depends on the instance:"
        )
        yield from (f"  {text}" for text in (*NEUTRAL_DOUBTS, *DOUBTS_WITH_AUTHORITY))
    if extra.confidence == STATED:
        yield f"confidence: after the answer: {CONFIDENCE_QUESTION}"
        yield (
            "  read: the single number from 0 to 100 in the reply; "
            "a reply with no number or several numbers has no confidence"
        )
    elif extra.confidence == STATED_ONLY:
        yield f"confidence: every prompt begins with the instructions and: {ANSWER_WITH_CONFIDENCE}"
        yield (
            "  read: the answer is the text before the last `Confidence:`, "
            "the confidence is the single number after it"
        )
    elif extra.confidence == LOGPROBS:
        yield (
            "confidence: requests ask for log probabilities; read: "
            "the log probabilities of the tokens of the answer's label"
        )
    chance = chance_questions_of(evaluation)
    if chance:
        yield (
            f"chance_questions: up to {chance} correctly answered questions are asked again in the "
            "same words, to measure how many of them are lost by chance alone"
        )
    if extra.blind_control:
        yield f"blind_control: the question with {', and with '.join(BLIND_PICTURES.values())}"
    if extra.options_only:
        yield f"options_only: in place of the question: {QUESTION_NOT_SHOWN}"
    if extra.none_of_the_others:
        yield (
            f'none_of_the_others: "{NONE_OF_THE_OTHERS_TEXT}" in place of the right option; '
            "except if the question asks which option is false, or if an option refers to other "
            "options"
        )
    if extra.ask_unread:
        yield f"ask_unread: after an answer that no rule can read: {LETTER_QUESTION}"
    if extra.allow_abstain:
        yield f"allow_abstain: the question and: {may_abstain_text(extra.cost_of_wrong)}"
        yield f'  read: an answer that begins with "{I_DO_NOT_KNOW}", or the option with that text'


def _metadata_line(evaluation: Evaluation) -> str:
    """Return a line that says whether pictures and sounds are sent with their metadata."""
    if evaluation.extra.keep_image_metadata:
        return f"sent with their metadata ({REMOVED_METADATA}), which may contain names and places"
    return f"sent without {REMOVED_METADATA}; extra.keep_image_metadata: true sends the metadata"


def _reasoned_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines that say how `answer_style: reasoned` changes the prompts."""
    if evaluation.extra.answer_style != REASONED_STYLE:
        return
    entry = reasoned_tasks()[evaluation.task.name]
    yield "\n# reasoned"
    for text in entry.removes:
        yield f"#   left out of the instructions: {text.strip()}"
    if not entry.keeps_examples:
        yield f"#   left out: the benchmark's examples ({entry.why_examples_left_out})"
    yield f"#   at the end of each prompt, in place of the benchmark's own request: {entry.request}"
    yield f"#   maximum tokens of an answer: {evaluation.num_output_tokens or REASONED_MAX_TOKENS}"


def difference_of(old_text: str, new_text: str) -> str:
    """Return a unified diff of two previews, or a line that says that there is no difference."""
    lines = list(
        difflib.unified_diff(
            old_text.splitlines(), new_text.splitlines(), "before", "now", lineterm=""
        )
    )
    if not lines:
        return "# no difference: the same configuration, files and command\n"
    return "\n".join(lines) + "\n"


def without_default_nulls(
    values: Mapping[str, Any], set_paths: Collection[str], parent_path: str = ""
) -> dict[str, Any]:
    """Return the nested values without the values that are null by default.

    Args:
        values: The values, by name.
        set_paths: The dotted paths that the user set; their values are returned even if null.
        parent_path: The dotted path of `values` itself.
    """
    remaining_values = {}
    for name, value in values.items():
        path = f"{parent_path}.{name}" if parent_path else name
        if isinstance(value, Mapping) and value:
            inner = without_default_nulls(value, set_paths, path)
            if inner:
                remaining_values[name] = inner
        elif value is not None or path in set_paths:
            remaining_values[name] = value
    return remaining_values


def _configuration_lines(evaluation: Evaluation, *, shows_nulls: bool) -> Iterator[str]:
    """Yield the rendered configuration, and the source of each value that is not a default."""
    source_of_path = {}
    for path, source in evaluation.sources.items():
        if source not in (Source.FRAMEWORK, Source.TASK):
            source_of_path[path] = source
    values = evaluation.as_dict()
    yield "# rendered configuration"
    if shows_nulls:
        yield to_yaml(values).rstrip()
    else:
        yield to_yaml(without_default_nulls(values, source_of_path)).rstrip()
        yield "# values that are null: --all shows them"
    yield "\n# values that are not defaults"
    width = max((len(path) for path in source_of_path), default=0)
    for path, source in sorted(source_of_path.items()):
        value: Any = values
        for name in path.split("."):
            # None if an outer key of the path is null
            value = value.get(name) if isinstance(value, Mapping) else None
        yield f"#   {path:<{width}}  {source.value}: {value}"


def preview(
    evaluation: Evaluation,
    argv: Sequence[str],
    keys: Sequence[str] = (),
    *,
    files: Mapping[str, str] | None = None,
    shows_nulls: bool = False,
) -> str:
    """Return the text of a preview, with a section for each kind of information.

    Args:
        evaluation: The checked evaluation.
        argv: The command line of helm-run.
        keys: Lines that say which key each endpoint receives.
        files: The files in model_configs/ that a run generates: text by name.
        shows_nulls: True if values that are null by default are shown, too.
    """
    lines = list(_configuration_lines(evaluation, shows_nulls=shows_nulls))
    if evaluation.task.about.notes:
        lines.append("\n# notes")
        lines += [f"#   {note}" for note in evaluation.task.about.notes]
    benchmark = evaluation.benchmark
    prompt = None if benchmark is None else benchmark.first_with_pictures
    if prompt:
        lines.append("\n# first prompt with a picture")
        lines += [f"#   {line}" for line in prompt.splitlines()]
    if may_send_files(evaluation):
        lines.append(f"\n# pictures and sounds\n#   {_metadata_line(evaluation)}")
    lines += _reasoned_lines(evaluation)
    request_lines = list(_additional_requests(evaluation))
    if request_lines:
        lines += ["\n# asked again", *(f"#   {line}" for line in request_lines)]
    # With `stop_when`, helm-run runs several times; each of these helm-runs is called a look.
    looks = looks_line(evaluation)
    if looks is not None:
        lines.append(f"\n# looks\n#   {looks}")
    if keys:
        lines += ["\n# keys", *(f"#   {line}" for line in keys)]
    for name, generated in (files or {}).items():
        lines.append(f"\n# generated: model_configs/{name}")
        lines.append(generated.rstrip())
    lines.append("\n# command")
    lines.append(shlex.join(argv))
    return "\n".join(lines) + "\n"
