"""Runs bare helm-run, without eval-factory: with HELM's own client, runner and logging.

All runs are made by one process.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from scripts.validity.questions import JUDGES, STATE_FILE

from eval_factory.helm.command import MODULES
from eval_factory.helm.environments import environment_of
from eval_factory.tasks.framework import Task
from eval_factory.tasks.upstreams import HELM, Upstream

ROOT = Path(__file__).resolve().parents[2]
Runs = Mapping[str, Sequence[str]]  # task's name -> the kinds of answers that are given

SUITE = "bare"
NO_LIMIT = 10**9  # the value of --max-eval-instances for all instances
THREADS = 8
SAMPLE_PLUGIN = "eval_factory.demo.benchmark"
"""The plug-in that registers the sample benchmark, which HELM lacks; its metric is HELM's."""
STAND_INS = '''"""Without torch: the name of a device, that HELM's jury benchmarks ask for; \
metrics of weights."""
import importlib.util
import sys
import types


def stand_in(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


class NeedsWeights:
    def __init__(self, *args, **kwargs):
        raise ModuleNotFoundError("this metric needs torch")


if importlib.util.find_spec("torch") is None:
    names = {"is_cuda_available": lambda: False, "is_mps_available": lambda: False}
    stand_in("helm.common.gpu_utils", get_torch_device_name=lambda: "cpu", **names)
    stand_in("helm.benchmark.metrics.summac.model_summac", SummaCZS=NeedsWeights)
if importlib.util.find_spec("bert_score") is None:
    stand_in("bert_score", BERTScorer=NeedsWeights)
if importlib.util.find_spec("transformers") is None:
    # medalign imports it for other tokenizers than the one that it counts with
    stand_in("transformers", PreTrainedTokenizerBase=NeedsWeights)
'''
"""The source of a plug-in with placeholders for packages that are not installed. Without them,
helm-run could not make some run specs. No placeholder affects a score.
"""


TOKENIZER = {"tokenizer_name": "openai/cl100k_base", "max_sequence_length": 1_000_000}
"""The tokenizer of a deployment for medhelm, whose client counts the tokens of each answer, and
fails without a tokenizer. No prompt is longer than this limit. Needs TIKTOKEN_CACHE_DIR.
"""


def max_tokens_of_answer(task: Task) -> int | None:
    """Return the maximum number of tokens in an answer; None: the benchmark's own maximum.

    medhelm's client would cut the longest gold answers of juries at the benchmark's own maximum.
    """
    return 8192 if task.helm.judges and task.helm.upstream is not HELM else None


class BareHelm:
    """One helm-run that makes many runs, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        url: str,
        tasks: Mapping[str, Task],
        runs: Runs,
        *,
        limit: int | None,
        upstream: Upstream = HELM,
        arguments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Store what to run.

        Args:
            folder: the folder for the data, the configuration and the output of helm-run.
            url: the URL of the endpoint.
            tasks: the tasks by name.
            runs: the kinds of answers of each task; the answers of the first kind must not depend
                on the questions (`questions.KnownQuestions`).
            limit: the maximum number of instances of a task; None: all.
            upstream: the upstream whose helm-run is used.
            arguments: further arguments of the run specs, by task.
        """
        self._folder = folder
        self._url = url
        self._tasks = tasks
        self._runs = runs
        self._limit = limit
        self._upstream = upstream
        self._arguments = arguments

    @property
    def scenarios(self) -> Path:
        """The folder from which HELM reads the data; it has a folder for each scenario."""
        return self._folder / "scenarios"

    def run(self, env: Mapping[str, str]) -> None:
        """Run helm-run.

        Raises:
            subprocess.CalledProcessError: a run failed; helm-run.log in the folder says why.
        """
        config = self._folder / "prod_env"
        config.mkdir(parents=True)
        (config / "model_deployments.yaml").write_text(
            yaml.safe_dump({"model_deployments": self._deployments()})
        )
        (config / "model_metadata.yaml").write_text(yaml.safe_dump({"models": self._metadata()}))
        judges = [
            {"name": name, "model": _model(name), "model_deployment": _model(name)}
            for name in JUDGES
        ]
        self._jury.write_text(yaml.safe_dump({"judges": judges}))
        plugin = self._folder / "stand_ins.py"
        plugin.write_text(
            STAND_INS + f"\nsys.path.append({sysconfig.get_path('purelib')!r})  "
            "# the OpenAI client's package\n"
        )
        cache = self._folder / "runs" / SUITE / "eval_cache"
        cache.mkdir(parents=True)
        # Without this file, SummarizationMetric would download a table about news benchmarks.
        (cache / "qafacteval.pk").write_bytes(pickle.dumps({}))
        command = [
            environment_of(self._upstream).python,
            "-m",
            MODULES["helm-run"],
            "--run-entries",
            *self._entries(),
            "--suite",
            SUITE,
            "--max-eval-instances",
            str(self._limit or NO_LIMIT),
            "--num-threads",
            str(THREADS),
            "--output-path",
            str(self._folder),
            "--local-path",
            str(config),
            "--disable-cache",
            "--plugins",
            str(plugin),
            SAMPLE_PLUGIN,
        ]
        with (self._folder / "helm-run.log").open("wb") as log:
            # `SAMPLE_PLUGIN` is imported from src/.
            python_path = os.pathsep.join([str(ROOT / "src"), env.get("PYTHONPATH", "")])
            subprocess.run(
                command,
                env={**env, "PYTHONPATH": python_path},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )

    @property
    def _jury(self) -> Path:
        return self._folder / "judges.yaml"

    def _names(self) -> Iterator[str]:
        """Yield the ids of the endpoint's models: of the judges, and `<task>/<kind>`."""
        yield from JUDGES
        for task, kinds in self._runs.items():
            yield from (f"{task}/{kind}" for kind in kinds)

    def _deployments(self) -> list[dict[str, Any]]:
        return [
            {
                "name": _model(name),
                "model_name": _model(name),
                **({} if self._upstream is HELM else TOKENIZER),
                "client_spec": {
                    "class_name": "helm.clients.openai_client.OpenAIClient",
                    "args": {"base_url": self._url, "api_key": "none", "openai_model_name": name},
                },
            }
            for name in self._names()
        ]

    def _metadata(self) -> list[dict[str, Any]]:
        tags = ["TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG"]
        return [
            {
                "name": _model(name),
                "display_name": name,
                "description": "scripted",
                "creator_organization_name": "none",
                "access": "open",
                "release_date": None,
                "tags": tags,
            }
            for name in self._names()
        ]

    def _entries(self) -> Iterator[str]:
        """Yield the run entries."""
        for name, kinds in self._runs.items():
            helm = self._tasks[name].helm
            task_arguments = {
                **(helm.fixed_parameters or {}),
                **self._arguments.get(name, {}),
            }
            if helm.judges:
                task_arguments["jury_config_path"] = str(self._jury)
            tokens = max_tokens_of_answer(self._tasks[name])
            if tokens is not None:
                task_arguments["num_output_tokens"] = str(tokens)
            for kind in kinds:
                arguments = {**task_arguments, "model": _model(f"{name}/{kind}")}
                pairs = ",".join(f"{key}={value}" for key, value in arguments.items())
                yield f"{helm.run_spec}:{pairs}"

    def written(self) -> list[Path]:
        """Return the files with the instances of all runs that have ended so far."""
        runs = self._folder / "runs" / SUITE
        return [
            run / STATE_FILE
            for run in runs.glob("*")
            if (run / "per_instance_stats.json").is_file()
        ]

    def stats(self, task: str, kind: str) -> list[dict[str, Any]]:
        """Return the content of the stats.json of a run."""
        loaded: list[dict[str, Any]] = json.loads(
            (self._run(task, kind) / "stats.json").read_text("utf-8")
        )
        return loaded

    def instances(self, task: str) -> Path:
        """Return the file with a task's instances, which are the same in each of its runs."""
        return self._run(task, self._runs[task][0]) / STATE_FILE

    def _run(self, task: str, kind: str) -> Path:
        """Return the run folder of a task and a kind of answers.

        A run folder has a name such as `medec:model=scripted_medec.gold`.
        """
        model = re.escape(_model(f"{task}/{kind}").replace("/", "_"))
        name = re.compile(rf"(?:.*[:,])?model={model}(?:,.*)?")
        runs = self._folder / "runs" / SUITE
        (run_folder,) = [run for run in runs.glob("*") if name.fullmatch(run.name)]
        return run_folder


def _model(name: str) -> str:
    """Return HELM's name of a model of the endpoint; HELM requires exactly one slash."""
    return f"scripted/{name.replace('/', '.')}"


def environment() -> dict[str, str]:
    """Return the environment variables of this process, without keys and proxies.

    The endpoint is on loopback, so requests need neither.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().endswith(("_API_KEY", "_TOKEN", "_SECRET", "_PROXY"))
    }
