"""The three commands of HELM that make a leaderboard. Pure functions."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.rundir import RunDir
from eval_factory.helm import names
from eval_factory.helm.programs import helm_program


def run_command(
    rundir: RunDir,
    *,
    suite: str,
    model: str,
    run_entries: Path,
    max_eval_instances: int,
    num_train_trials: int,
    priority: int,
    parallelism: int,
    debug: bool = False,
) -> list[str]:
    """helm-run over the rewritten conf; a run that is there with all its files is not run again."""
    return [
        *helm_program("helm-run"),
        "--conf-paths", str(run_entries),
        "--suite", suite,
        "--models-to-run", model,
        "--max-eval-instances", str(max_eval_instances),
        "--num-train-trials", str(num_train_trials),
        "--priority", str(priority),
        "--num-threads", str(parallelism),
        "--output-path", str(rundir.helm),
        "--local-path", str(rundir.model_configs),
        *_log_config(rundir, debug=debug),
        "--disable-cache",
        "--skip-completed-runs",
        "--plugins", names.PLUGIN_MODULE,
        "--runner-class-name", names.HELM_NAMED_RUNNER_CLASS,
    ]  # fmt: skip


def summarize_command(rundir: RunDir, *, suite: str, schema: str, debug: bool = False) -> list[str]:
    """helm-summarize. HELM's page says `--schema`, which 0.5.16 refuses as ambiguous."""
    return [
        *helm_program("helm-summarize"),
        "--schema-path", schema,
        "--suite", suite,
        "--output-path", str(rundir.helm),
        "--local-path", str(rundir.model_configs),
        *_log_config(rundir, debug=debug),
    ]  # fmt: skip


def server_command(rundir: RunDir, *, suite: str) -> list[str]:
    """helm-server, for the user to start."""
    return [*helm_program("helm-server"), "--suite", suite, "--output-path", str(rundir.helm)]


def _log_config(rundir: RunDir, *, debug: bool) -> list[str]:
    return [] if debug else ["--log-config", str(rundir.model_configs / names.LOGGING)]
