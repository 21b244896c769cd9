"""helm-run without anything of ours: HELM's own client, runner and logging, all runs in one
process.
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
Runs = Mapping[str, Sequence[str]]

SUITE = "bare"
NO_LIMIT = 10**9
THREADS = 8
SAMPLE_PLUGIN = "eval_factory.demo.benchmark"
"""Registers the sample benchmark, which HELM does not have; its metric is HELM's."""
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
"""A module without which helm-run could not even build these run specs there; no line of it is
about a score.
"""


COUNTS_TOKENS = {"tokenizer_name": "openai/cl100k_base", "max_sequence_length": 1_000_000}
"""medhelm's client counts each answer's tokens, and fails without; no prompt is as long. Needs
TIKTOKEN_CACHE_DIR.
"""


def room_for_gold(task: Task) -> int | None:
    """Tokens of an answer, where medhelm's client would cut the longest gold answers; None: the
    benchmark's own.
    """
    return 8192 if task.helm.judges and task.helm.upstream is not HELM else None


class BareHelm:
    """One helm-run of many runs, in a folder of its own."""

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
        """Take what to run, and where.

        Args:
            arguments: more arguments of run specs, by task.
            runs: the kinds of answers of each task; the first kind's answers need no knowledge of
                the questions.
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
        """The folder where HELM looks for the data, a folder for each scenario."""
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
        # SummarizationMetric downloads this table first: of news benchmarks, none of a medical one
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
            with_sample = {
                **env,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), env.get("PYTHONPATH", "")]),
            }
            subprocess.run(
                command, env=with_sample, stdout=log, stderr=subprocess.STDOUT, check=True
            )

    @property
    def _jury(self) -> Path:
        return self._folder / "judges.yaml"

    def _names(self) -> Iterator[str]:
        """Yield the names that the endpoint knows as models."""
        yield from JUDGES
        for task, kinds in self._runs.items():
            yield from (f"{task}/{kind}" for kind in kinds)

    def _deployments(self) -> list[dict[str, Any]]:
        return [
            {
                "name": _model(name),
                "model_name": _model(name),
                **({} if self._upstream is HELM else COUNTS_TOKENS),
                "client_spec": {
                    "class_name": "helm.clients.openai_client.OpenAIClient",
                    "args": {"base_url": self._url, "api_key": "none", "openai_model_name": name},
                },
            }
            for name in self._names()
        ]

    def _metadata(self) -> list[dict[str, Any]]:
        tags = ["TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG"]
        told = {"description": "scripted", "creator_organization_name": "none", "access": "open"}
        return [
            {"name": _model(name), "display_name": name, **told, "release_date": None, "tags": tags}
            for name in self._names()
        ]

    def _entries(self) -> Iterator[str]:
        for name, kinds in self._runs.items():
            helm = self._tasks[name].helm
            jury = {"jury_config_path": str(self._jury)} if helm.judges else {}
            room = (
                {"num_output_tokens": str(tokens)}
                if (tokens := room_for_gold(self._tasks[name]))
                else {}
            )
            for kind in kinds:
                arguments = {
                    **(helm.fixed_parameters or {}),
                    **self._arguments.get(name, {}),
                    **jury,
                    **room,
                    "model": _model(f"{name}/{kind}"),
                }
                pairs = ",".join(f"{key}={value}" for key, value in arguments.items())
                yield f"{helm.run_spec}:{pairs}"

    def written(self) -> list[Path]:
        """The instances of the runs that helm-run has started to write down and ended."""
        runs = self._folder / "runs" / SUITE
        return [
            run / STATE_FILE
            for run in runs.glob("*")
            if (run / "per_instance_stats.json").is_file()
        ]

    def stats(self, task: str, kind: str) -> list[dict[str, Any]]:
        """stats.json of one run."""
        loaded: list[dict[str, Any]] = json.loads(
            (self._run(task, kind) / "stats.json").read_text("utf-8")
        )
        return loaded

    def instances(self, task: str) -> Path:
        """The file with a task's instances: the same in each of its runs."""
        return self._run(task, self._runs[task][0]) / STATE_FILE

    def _run(self, task: str, kind: str) -> Path:
        name = re.compile(
            rf"(?:.*[:,])?model={re.escape(_model(f'{task}/{kind}').replace('/', '_'))}(?:,.*)?"
        )
        runs = self._folder / "runs" / SUITE
        (found,) = [run for run in runs.glob("*") if name.fullmatch(run.name)]
        return found


def _model(name: str) -> str:
    """HELM wants one slash."""
    return f"scripted/{name.replace('/', '.')}"


def environment() -> dict[str, str]:
    """This process's, without keys and proxies: the endpoint is on loopback."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().endswith(("_API_KEY", "_TOKEN", "_SECRET", "_PROXY"))
    }
