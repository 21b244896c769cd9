"""Examines this machine, and one run config, for the command `doctor`.

Each finding says whether a prerequisite works and, if not, what to do. `doctor` writes no files.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core import sandbox
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.secrets import Redactor, secret_in
from eval_factory.endpoint import proxies
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import IMAGES
from eval_factory.helm.environments import how_to_install
from eval_factory.helm.picture_metrics import uncomputed_metric_lines
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.preflight import probe
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.upstreams import HELM, UPSTREAMS_WITH_HEIM
from eval_factory.workflows.context import HUB_TOKEN, redactor_of
from eval_factory.workflows.evaluate import look_for_prerequisites
from eval_factory.workflows.install_upstream import upstream_states
from eval_factory.workflows.prepare import find_bundle

MIN_FREE_GB = 5.0
"""The free disk space that a run should have. A run of the largest text benchmark writes less;
pictures and data bundles need more.
"""
KNOWN_PYTHONS = ("3.10", "3.11", "3.12", "3.13")  # the versions of Python that are supported
HUB_TIMEOUT_S = 5.0  # the maximum wait for an answer of the Hugging Face Hub, in seconds


@dataclass(frozen=True)
class Finding:
    """A finding about one prerequisite."""

    about: str  # the prerequisite, such as `Python`, `disk` or `keys`
    works: bool | None
    """True: the prerequisite works. False: a run would fail. None: the prerequisite was not tested,
    or it does not work but not every run needs it.
    """
    text: str  # the first line is the finding; further lines say what to do


def examine(request: RunRequest, env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known.

    If `request` has no run config and no options, only the machine is examined.
    """
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    is_supported = f"{sys.version_info.major}.{sys.version_info.minor}" in KNOWN_PYTHONS
    if not is_supported:
        python += f"\nneeds {', '.join(KNOWN_PYTHONS)}"
    yield Finding("Python", works=is_supported, text=python)
    yield from _upstream_findings()
    yield _disk_finding(Path.cwd())
    yield _finding_of_check(
        "sandbox",
        lambda: sandbox.require_working("needed by benchmarks that execute answers"),
        needed=False,
    )
    yield from _network_findings(env)
    if request.run_config is None and not request.flags:
        names = [  # the variables that most runs need
            "OPENAI_API_KEY",
            *(f"{role.upper()}_JUDGE_API_KEY" for role in load_framework().judges),
            HUB_TOKEN,
        ]
        set_names = []
        for name in names:
            if env.get(name):
                set_names.append(name)
        keys = f"set: {', '.join(set_names) or 'none'}; of these: {', '.join(names)}"
        yield Finding("keys", works=None, text=keys)
        yield Finding(
            "endpoint",
            works=None,
            text="not tested\nto test an endpoint: eval-factory doctor --run_config my_test.yml",
        )
    else:
        yield from _run_findings(request, env)


def _upstream_findings() -> Iterator[Finding]:
    """Yield a finding about each upstream. Only HELM is needed by every run."""
    for state in upstream_states():
        text = "not installed" if state.installed is None else f"{state.package} {state.installed}"
        works: bool | None = True
        if not state.works:
            advice = how_to_install(UPSTREAMS_WITH_HEIM[state.name])
            text += f"; {state.supported} is supported\n{advice}"
            works = False if state.name == HELM.name else None
        yield Finding(state.name, works=works, text=text)


def _disk_finding(folder: Path) -> Finding:
    """Return the finding about the free space of the folder's disk."""
    free_gb = shutil.disk_usage(folder).free / 1e9
    text = f"{free_gb:.0f} GB free in the current folder"
    if free_gb < MIN_FREE_GB:
        text += "\nmake room: a run stops at a full disk (all answers so far are stored)"
    return Finding("disk", works=free_gb >= MIN_FREE_GB, text=text)


def _network_findings(env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings about the proxies, the certificates and the Hugging Face Hub."""
    redactor = Redactor.from_environment(env)
    if problems := proxies.proxy_problems(env):
        yield Finding("proxies", works=False, text="\n".join(problems))
    else:
        variables = redactor.redact_text(", ".join(proxies.shown_variables(env)))
        text = variables or "none named in the environment"
        yield Finding("proxies", works=None, text=text)

    def certificates() -> str:
        proxies.tls_context()  # raises an error if the certificates cannot be loaded
        path, origin = proxies.find_trusted_certificates()
        return f"{path} ({origin})"

    yield _finding_of_check("certificates", certificates)
    yield _finding_of_check("hub", lambda: _hub_text(env), needed=False)


def _hub_text(env: Mapping[str, str]) -> str:
    """Send a request to the Hugging Face Hub, and return the text of the finding.

    If HF_HUB_OFFLINE is set, no request is sent.

    Raises:
        ConnectionError: The Hub cannot be reached.
    """
    import requests
    from huggingface_hub.constants import ENDPOINT

    if env.get("HF_HUB_OFFLINE"):
        return (
            "not asked: HF_HUB_OFFLINE is set\n"
            "take the data from a cache or a bundle: run_eval --offline --data_dir DIR"
        )
    try:
        requests.head(ENDPOINT, timeout=HUB_TIMEOUT_S, allow_redirects=False)
    except requests.RequestException as error:
        cause = type(error).__name__
        raise ConnectionError(
            f"{ENDPOINT} cannot be reached ({cause})\n"
            "on a machine with a network: eval-factory data pull TASK --to bundle; "
            "on this machine: run_eval --offline --data_dir bundle"
        ) from None
    text = f"{ENDPOINT} answers"
    if not env.get(HUB_TOKEN):
        text += f"; {HUB_TOKEN} is not set (gated data need it)"
    return text


def _run_findings(request: RunRequest, env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings about the run config, its packages, data, keys and endpoints."""
    plans: list[Plan] = []  # gets the plan of the run, unless the run config is wrong

    def run_config_text() -> str:
        evaluation = build_evaluation(request, load_framework(), env)
        plan = make_plan(evaluation)
        plans.append(plan)
        warnings = [f"warning: {text}" for text in evaluation.warnings]
        return "\n".join([f"{plan.task_name}: valid", *warnings])

    yield _finding_of_check("run config", run_config_text)
    if not plans:
        return
    (plan,) = plans
    yield _finding_of_check("packages", lambda: look_for_prerequisites(plan))
    if lines := uncomputed_metric_lines([plan], env):
        yield Finding("metrics", works=None, text="\n".join(lines))
    yield _data_finding(plan, env)
    keys = _finding_of_check(
        "keys", lambda: "\n".join(credentials_report(plan, env).lines) or "none needed"
    )
    yield keys
    if not keys.works:
        return
    # Keys may also come from files, such as HELM's credentials.conf.
    env = {**env, **credentials_report(plan, env).added_keys}
    redactor = redactor_of(plan.evaluation, env)
    for endpoint in plan.endpoints:
        for name in endpoint.secret_variables:
            redactor.learn(secret_in(env, name) or "")  # the redactor ignores an empty text
        yield _endpoint_finding(endpoint, env, redactor)


def _endpoint_finding(
    endpoint: EndpointSettings, env: Mapping[str, str], redactor: Redactor
) -> Finding:
    """Send a trial request to an endpoint, and return the finding about its answer."""
    about = "endpoint" if endpoint.role == MODEL_ROLE else f"judge {endpoint.role}"
    if endpoint.is_demo:
        return Finding(about, works=True, text=f"{endpoint.url}: the embedded demo endpoint")
    if endpoint.endpoint_type == IMAGES:
        text = "not asked: an answer would be a picture, which costs money"
        return Finding(about, works=None, text=text)
    try:
        # Messages about a sign-in are not shown.
        warning = probe(endpoint, env, redactor, say=lambda _message: None)
    except EvalFactoryError as error:
        return Finding(about, works=False, text=redactor.redact_text(str(error)))
    if warning is not None:  # no answer came: the endpoint is slow or busy
        return Finding(about, works=False, text=redactor.redact_text(warning))
    verb = "accepts batches" if endpoint.batch else f"answers as {endpoint.model_id}"
    text = f"{', '.join(endpoint.urls)} {verb}"
    return Finding(about, works=True, text=redactor.redact_text(text))


def _data_finding(plan: Plan, env: Mapping[str, str]) -> Finding:
    """Return the finding about the data of a run: where they are, or how a run gets them."""
    try:
        bundle = find_bundle(plan, env)
    except (EvalFactoryError, OSError) as error:
        return Finding("data", works=False, text=str(error))
    if bundle is not None:
        return Finding("data", works=True, text=f"the bundle {bundle.root}")
    source = plan.evaluation.task.about.source
    data_path = plan.evaluation.extra.data_path
    if data_path is not None or plan.evaluation.benchmark is not None:
        return Finding("data", works=True, text="your own files")
    if source == "in the package":
        return Finding("data", works=True, text=source)
    if not source.startswith(("Hugging Face", "GitHub")):
        return Finding("data", works=None, text=f"not tested; source: {source}")
    pull_command = f"eval-factory data pull {plan.task_name} --to bundle"
    if source.startswith("GitHub"):  # `doctor` sends no request to GitHub
        text = f"not downloaded; a run downloads the data from {source}\nin advance: {pull_command}"
        return Finding("data", works=None, text=text)
    try:
        _hub_text(env)  # called for its error; the text is in the finding about the hub
    except ConnectionError:
        text = f"not downloaded; the hub cannot be reached\nwith a network: {pull_command}"
        return Finding("data", works=None, text=text)
    if env.get("HF_HUB_OFFLINE"):
        text = f"not downloaded, and HF_HUB_OFFLINE is set\n{pull_command}"
        return Finding("data", works=None, text=text)
    text = f"not downloaded: a run downloads the data from {source}"
    return Finding("data", works=True, text=text)


def _finding_of_check(
    about: str, check: Callable[[], str | None], *, needed: bool = True
) -> Finding:
    """Return the finding of a check.

    Args:
        about: The prerequisite that is checked.
        check: The function that checks the prerequisite. It returns the text of the finding, or
            None for the text "available". It raises an error if the prerequisite does not work.
        needed: True if every run needs the prerequisite.
    """
    try:
        return Finding(about, works=True, text=check() or "available")
    except (EvalFactoryError, OSError) as error:
        lines = []
        for line in str(error).split("\n"):
            # This line of the message is about a run, and `doctor` runs no evaluation.
            if line.strip() != "nothing was asked":
                lines.append(line.strip())
        return Finding(about, works=False if needed else None, text="\n".join(lines))
