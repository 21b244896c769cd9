"""Makes the commands of the measured programs, which ask the same questions at an endpoint.

eval-factory and helm-run are those of this environment. The other programs have environments of
their own in `.venv-bench/`, which are made when they are first needed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
ENVIRONMENTS = HERE.parent / ".venv-bench"
REQUIREMENTS = {
    "lm-eval": ["lm_eval[api]==0.4.13"],
    "inspect": ["inspect_ai==0.3.285", "openai==3.52.0"],
}
WORDS_OF_AN_ABSTRACT = 230
MODEL = "endpoint/bench"
LETTERS = {"yes": "A", "no": "B", "maybe": "C"}


@dataclass(frozen=True)
class Command:
    """The command of a program, which is run in the job's folder."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)  # further environment variables


@dataclass(frozen=True)
class Job:
    """The work of a program."""

    folder: Path  # the folder for everything that the program reads and writes
    url: str  # the URL of the endpoint, without `/v1`
    count: int  # the number of questions
    concurrency: int  # the number of requests at the same time


def invented_words() -> tuple[random.Random, list[str]]:
    """Return a generator of random numbers, and the 3,000 words that it has drawn.

    Both are the same in each call, so the generator can draw the same texts again.
    """
    source = random.Random(0)  # noqa: S311 - invented text, not a secret
    return source, [
        "".join(source.choices("abcdefghilmnoprstuv", k=source.randint(3, 11))) for _ in range(3000)
    ]


def invented_data(count: int) -> dict[str, dict[str, object]]:
    """Return the content of an invented `test_set.json` of pubmed_qa.

    An abstract has about 1,700 characters of invented words.
    """
    source, words = invented_words()
    return {
        str(number): {
            "QUESTION": " ".join(source.choices(words, k=14)) + "?",
            "CONTEXTS": [" ".join(source.choices(words, k=WORDS_OF_AN_ABSTRACT))],
            "LABELS": ["BACKGROUND"],
            "MESHES": [],
            "final_decision": source.choice(["yes", "no", "maybe"]),
            "LONG_ANSWER": "x",
        }
        for number in range(count)
    }


def pubmed_qa_data(helm_output: Path, count: int) -> None:
    """Write pubmed_qa's data where HELM looks for them."""
    file = helm_output / "scenarios" / "pubmed_qa" / "data" / "test_set.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(invented_data(count)))


def questions(job: Job) -> Path:
    """Write the same data as prompts and answers, for programs that read a file of both."""
    file = job.folder / "questions.jsonl"
    with file.open("w") as lines:
        for row in invented_data(job.count).values():
            contexts: Any = row["CONTEXTS"]
            prompt = (
                "Answer A for yes, B for no or C for maybe.\n\n"
                f"Context: BACKGROUND. {' '.join(contexts)}\n\n"
                f"Question: {row['QUESTION']} Answer with a single letter.\nA. yes\nB. no\n"
                "C. maybe\n\nAnswer:"
            )
            lines.write(
                json.dumps({"input": prompt, "target": LETTERS[str(row["final_decision"])]}) + "\n"
            )
    return file


def eval_factory(job: Job) -> Command:
    """Return the command of eval-factory."""
    pubmed_qa_data(job.folder / "out" / "helm", job.count)
    overrides = (
        f"config.params.parallelism={job.concurrency},config.params.limit_samples={job.count}"
    )
    return Command(
        [
            str(BIN / "eval-factory"),
            "run_eval",
            "--eval_type",
            "pubmed_qa",
            "--output_dir",
            str(job.folder / "out"),
            "--model_url",
            f"{job.url}/v1",
            "--model_id",
            "bench",
            "--overrides",
            overrides,
        ]
    )


def helm_run(job: Job) -> Command:
    """Return the command of bare helm-run, with HELM's own OpenAI client."""
    pubmed_qa_data(job.folder / "helm", job.count)
    local = job.folder / "prod_env"
    local.mkdir()
    client = {
        "class_name": "helm.clients.openai_client.OpenAIClient",
        "args": {"base_url": f"{job.url}/v1", "api_key": "none", "openai_model_name": "bench"},
    }
    deployment = {"name": MODEL, "model_name": MODEL, "client_spec": client}
    metadata = {
        "name": MODEL,
        "display_name": "m",
        "description": "m",
        "creator_organization_name": "o",
        "access": "open",
        "release_date": None,
        "tags": ["TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG"],
    }
    (local / "model_deployments.yaml").write_text(
        yaml.safe_dump({"model_deployments": [deployment]})
    )
    (local / "model_metadata.yaml").write_text(yaml.safe_dump({"models": [metadata]}))
    return Command(
        [
            str(BIN / "helm-run"),
            "--run-entries",
            f"pubmed_qa:model={MODEL}",
            "--suite",
            "bench",
            "--max-eval-instances",
            str(job.count),
            "--num-threads",
            str(job.concurrency),
            "--output-path",
            str(job.folder / "helm"),
            "--local-path",
            str(local),
        ]
    )


def helm_run_without_cache(job: Job) -> Command:
    return Command([*helm_run(job).argv, "--disable-cache"])


def lm_evaluation_harness(job: Job) -> Command:
    """Return the command of lm-evaluation-harness: exact matches with one token of output."""
    task = {
        "task": "bench",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions(job))}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{input}}",
        "doc_to_target": "{{target}}",
        "generation_kwargs": {
            "max_gen_toks": 1,
            "until": [],
            "temperature": 0.0,
            "do_sample": False,
        },
        "metric_list": [{"metric": "exact_match"}],
    }
    (job.folder / "bench.yaml").write_text(yaml.safe_dump(task))
    endpoint = f"{job.url}/v1/chat/completions"
    arguments = (
        f"model=bench,base_url={endpoint},num_concurrent={job.concurrency},"
        "max_retries=5,tokenizer_backend=None"
    )
    return Command(
        [
            str(environment("lm-eval") / "lm_eval"),
            "run",
            "--model",
            "local-chat-completions",
            "--model_args",
            arguments,
            "--tasks",
            "bench",
            "--include_path",
            str(job.folder),
            "--apply_chat_template",
            "--output_path",
            str(job.folder / "out"),
            "--log_samples",
        ],
        {"HF_HOME": str(job.folder / "hub"), "HF_HUB_OFFLINE": "1"},
    )


def inspect_ai(job: Job) -> Command:
    task = job.folder / "bench.py"
    task.write_text(
        "from inspect_ai import Task, task\n"
        "from inspect_ai.dataset import json_dataset\n"
        "from inspect_ai.scorer import exact\n"
        "from inspect_ai.solver import generate\n\n\n"
        "@task\n"
        "def bench():\n"
        f"    return Task(dataset=json_dataset({str(questions(job))!r}), solver=generate(), "
        "scorer=exact())\n"
    )
    return Command(
        [
            str(environment("inspect") / "inspect"),
            "eval",
            task.name,
            "--model",
            "openai-api/bench/bench",
            "--max-connections",
            str(job.concurrency),
            "--max-samples",
            str(job.concurrency),
            "--max-tokens",
            "1",
            "--display",
            "none",
            "--log-dir",
            str(job.folder / "out"),
        ],
        {"BENCH_API_KEY": "none", "BENCH_BASE_URL": f"{job.url}/v1"},
    )


TOOLS: dict[str, Callable[[Job], Command]] = {
    "eval-factory": eval_factory,
    "helm-run": helm_run,
    "helm-run, its cache off": helm_run_without_cache,
    "lm-evaluation-harness": lm_evaluation_harness,
    "inspect_ai": inspect_ai,
}


def environment(name: str) -> Path:
    """Return the folder of the programs in another program's environment; install it if needed."""
    home = ENVIRONMENTS / name
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    marker = home / "installed"
    if not marker.is_file():
        print(f"installing {' '.join(REQUIREMENTS[name])} into {home.name} ...", flush=True)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            [str(programs / "python"), "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]],
            check=True,
        )
        marker.touch()
    return programs
