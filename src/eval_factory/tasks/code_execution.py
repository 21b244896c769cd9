"""Benchmarks that execute what a model answered: which, and that a user has to allow it."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.tasks.run_specs import RunSpec, load_index

FLAG = "--allow_code_execution"
KEY = "config.params.extra.allow_code_execution"

NEEDS_NO_PERMISSION = frozenset({"ehr_sql"})
"""Their SQL runs in processes that can only read, for a limited time (`helm_plugin/patches/sql_execution.py`)."""

ONLY_WITH = {"cleva": ("task", "code_synthesis")}
"""Run specs that execute answers with one value of one parameter only."""

NOT_CONFINED = frozenset({"bigcodebench", "unitxt", "image2musicsheet"})
"""What these execute runs where HELM, or somebody's package, runs it; eval-factory has no hand in it."""

OUTPUT_PROCESSORS = "helm.benchmark.metrics.output_processors."
PROCESS_OUTPUT = "process_output"


def executed_by(run_spec: str, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """What a run executes of the answers (Python, C++ ...) -> where in HELM; empty where nothing is."""
    spec = load_index().run_specs.get(run_spec)
    name, value = ONLY_WITH.get(run_spec, ("", ""))
    if spec is None or not spec.executes or (name and arguments.get(name, value) != value):
        return {}
    return spec.executes


def needs_permission(run_spec: str, spec: RunSpec) -> bool:
    return bool(spec.executes) and run_spec not in NEEDS_NO_PERMISSION


def needs_sandbox(run_spec: str, arguments: Mapping[str, str]) -> bool:
    """Whether programs of the model's are executed here; SQL is not: its processes only read."""
    executes = executed_by(run_spec, arguments)
    return bool(executes.keys() - {"SQL"}) and run_spec not in NOT_CONFINED


def how_executed(run_spec: str, executes: Mapping[str, str]) -> str:
    """A sentence on what is executed, and where."""
    places = "; ".join(f"{what}, in HELM's {place}" for what, place in executes.items())
    if run_spec in NEEDS_NO_PERMISSION:
        return f"executes what a model answers ({places}) in processes that only read and are ended after a time"
    unconfined = run_spec in NOT_CONFINED
    how = "where HELM does it, which eval-factory cannot confine" if unconfined else "in a confined process"
    if run_spec in ONLY_WITH:
        how += f"; with {'='.join(ONLY_WITH[run_spec])} alone"
    return f"executes what a model answers ({places}), {how}"


def refusal(run_spec: str, arguments: Mapping[str, str]) -> str | None:
    """Why a run needs the user's permission; None where it needs none."""
    executes = executed_by(run_spec, arguments)
    if not executes or run_spec in NEEDS_NO_PERMISSION:
        return None
    return (
        f"{run_spec} {how_executed(run_spec, executes)}; it is refused unless you allow it:"
        f" {FLAG}, or {KEY}: true in the run config"
    )


def wrong_processor(arguments: Mapping[str, str]) -> str | None:
    """HELM imports and calls the function that `process_output` names, with the answers."""
    named = arguments.get(PROCESS_OUTPUT)
    if named is None or named.startswith(OUTPUT_PROCESSORS):
        return None
    return (
        f"{PROCESS_OUTPUT} names a function that is called with the answers; it has to be one of {OUTPUT_PROCESSORS}*"
    )
