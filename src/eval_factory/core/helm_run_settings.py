"""Defines the settings that eval-factory passes to helm-run in addition to its command line.

eval-factory passes the settings in an environment variable. It also writes them to a file next to
the model files. If the user runs the printed helm-run command in a shell, helm-run reads this file
and therefore uses the same settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from eval_factory.core.budget import Budget, Price

SETTINGS_VARIABLE = "EVAL_FACTORY_SETTINGS"  # the variable with the settings, as JSON
SKIPPED_PATCHES_VARIABLE = (
    "EVAL_FACTORY_WITHOUT"  # set by the user: the names of HELM patches to skip
)
# set by the user: the paths of environments that are not in the user's data folder
MEDHELM_HOME_VARIABLE = "EVAL_FACTORY_MEDHELM"
HEIM_HOME_VARIABLE = "EVAL_FACTORY_HEIM"
# set by the user to 1: read all files, also those after the 1,000 entries of GitHub's list
ALL_FILES_VARIABLE = "MEDICAL_DATA_ALL_FILES"

PROXY_VARIABLES = frozenset(
    {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
    }
)
"""Variables that are removed for an offline helm-run, because a proxy could reach other hosts."""

_OLD_NAMES = {"libraries": "library_variables", "asks_rest_of_batches": "sends_singly"}
"""A dict from a setting's name in files of earlier versions to its name."""

HostAndPort = tuple[str, int]  # (host, port)


@dataclass(frozen=True)
class Pins:
    """The fixed revisions of the files that HELM downloads."""

    # URL in HELM's code -> URL of the same file at a fixed commit
    files: Mapping[str, str] = field(default_factory=dict)
    hub: Mapping[str, str] = field(default_factory=dict)  # data set of the Hub -> revision


@dataclass(frozen=True)
class SharedLimitsSettings:
    """The connection to the process that shares request limits among several runs."""

    address: str  # the path of a socket
    groups: Mapping[str, str]  # role -> name of the group of limits that applies to the role


@dataclass(frozen=True)
class SampleSettings:
    """The settings with which eval-factory itself, not HELM, draws a sample of the instances."""

    seed: int
    # the field of the instances that names their source (several instances share a source); the
    # sample is never stratified by this field
    source: str | None = None
    # True if the sample is not stratified (drawn in proportion to groups): a larger sample then
    # contains each smaller sample
    in_one_order: bool = False
    ids: tuple[str, ...] = ()  # the ids of the instances to ask; if set, no sample is drawn


@dataclass(frozen=True)
class HelmRunSettings:
    """The settings of a helm-run. A field that is None or empty is not set."""

    run_id: str | None = None
    parent: int | None = None  # the id of the parent process: helm-run ends when the parent ends
    probed: frozenset[str] | None = None
    """The roles whose endpoints answered the probe. If None and `parent` is set, helm-run reads the
    roles from standard input before its first request: the parent probes the endpoints while
    helm-run imports HELM. If both are None, no endpoint is probed.
    """
    allowed: tuple[HostAndPort, ...] | None = None  # offline: the hosts that may be contacted
    # offline: URL of an endpoint -> URL of the proxy for this endpoint
    proxies: Mapping[str, str] | None = None
    pins: Pins | None = None
    # a folder with <scenario>.json files: the file names that HELM would request from GitHub
    file_lists: str | None = None
    probe_judges: bool = False  # True if judges also rate an answer without content
    only_generate: bool = False  # True if metrics that load pictures are skipped
    # the classes of metrics that are skipped because this machine cannot compute them
    uncomputed: tuple[str, ...] = ()
    weights: str | None = None  # the folder for the downloads of picture metrics
    # False: only stored answers are scored, and a missing answer ends the run
    asks_model: bool = True
    sample: SampleSettings | None = None  # None: HELM draws the sample
    # None: no limits are shared. Never written to the file: the socket ends with the runs
    limits: SharedLimitsSettings | None = None
    budget: Budget = field(default_factory=Budget)  # the limits on requests and cost of the run
    # role -> the price of its tokens, if it is known
    prices: Mapping[str, Price] = field(default_factory=dict)
    # True if requests without an answer in a batch are sent one by one
    sends_singly: bool = False
    library_variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables with which libraries find their data (HF_HOME ...)."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass the settings to helm-run."""
        settings = json.dumps(asdict(self), default=sorted)  # `sorted` turns sets into lists
        return {**self.library_variables, SETTINGS_VARIABLE: settings}

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> HelmRunSettings:
        """Return the settings in the environment; without the variable, default settings.

        Raises ValueError if `environment` did not write the variable.
        """
        return cls.from_json(env[SETTINGS_VARIABLE]) if SETTINGS_VARIABLE in env else cls()

    def file_text(self) -> str:
        """Return the content of the settings file, without the URLs of proxies and without limits.

        The URL of a proxy may contain a password, so the file has only the URLs of the endpoints.
        The socket of shared limits does not exist any more when a user reads the file.
        """
        proxies = None if self.proxies is None else dict.fromkeys(self.proxies, "")
        settings = replace(self, proxies=proxies, limits=None)
        return json.dumps(asdict(settings), indent=2, default=sorted) + "\n"

    @classmethod
    def from_json(cls, text: str) -> HelmRunSettings:
        """Return the settings in a JSON text.

        Raises ValueError if neither `environment` nor `file_text` wrote the text.
        """
        try:
            values = json.loads(text)
            for old_name, name in _OLD_NAMES.items():
                if old_name in values:
                    values[name] = values.pop(old_name)
            # A missing key raises KeyError: `environment` and `file_text` write all fields.
            probed = values["probed"]
            allowed = values["allowed"]
            pins = values["pins"]
            sample = values["sample"]
            limits = values["limits"]
            prices = values["prices"]
            if probed is not None:
                values["probed"] = frozenset(probed)
            if allowed is not None:
                values["allowed"] = tuple((host, port) for host, port in allowed)
            if pins is not None:
                values["pins"] = Pins(**pins)
            if sample is not None:
                values["sample"] = SampleSettings(**{**sample, "ids": tuple(sample["ids"])})
            if limits is not None:
                values["limits"] = SharedLimitsSettings(**limits)
            values["uncomputed"] = tuple(values["uncomputed"])
            values["budget"] = Budget(**values["budget"])
            values["prices"] = {role: Price.from_dict(price) for role, price in prices.items()}
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("these are not the settings of a run") from error
