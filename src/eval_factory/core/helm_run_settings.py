"""Settings of helm-run beside its command line: one record, to and from environment variables and a file.

eval-factory sets the variables itself and writes the file beside the model files. A helm-run that somebody else started
takes them from there: the printed command, pasted into a shell, does the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval_factory.core.budget import Budget, Price

RUN_ID = "EVAL_FACTORY_RUN_ID"
PARENT = "EVAL_FACTORY_PARENT"
PROBED = "EVAL_FACTORY_PROBED"
OFFLINE = "EVAL_FACTORY_OFFLINE"
PROXIES = "EVAL_FACTORY_PROXIES"
PINS = "EVAL_FACTORY_PINS"
_FILE_LISTS = "EVAL_FACTORY_FILE_LISTS"
WITHOUT = "EVAL_FACTORY_WITHOUT"
MEDHELM_HOME = "EVAL_FACTORY_MEDHELM"  # names medhelm's environment, where it is not in the user's folder of data
LIMITS = "EVAL_FACTORY_LIMITS"
BUDGET = "EVAL_FACTORY_BUDGET"
PRICES = "EVAL_FACTORY_PRICES"
ALL_FILES = "MEDICAL_DATA_ALL_FILES"
PROBE_JUDGES = "EVAL_FACTORY_PROBE_JUDGES"
ONLY_GENERATE = "EVAL_FACTORY_ONLY_GENERATE"
ASKS_MODEL = "EVAL_FACTORY_ASKS_MODEL"
SAMPLE = "EVAL_FACTORY_SAMPLE"

ON_STDIN = "on standard input"  # what PROBED says while the endpoints are still being asked

PROXY_VARIABLES = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
)
"""An offline helm-run does not see them: what they name would be a way round."""

Place = tuple[str, int]  # (host, port)


@dataclass(frozen=True)
class Pins:
    """What HELM downloads, at the revisions of our table of sources."""

    files: Mapping[str, str] = field(default_factory=dict)  # URL that HELM asks for -> the same file at a commit
    hub: Mapping[str, str] = field(default_factory=dict)  # data set of the Hub -> revision


@dataclass(frozen=True)
class SharedLimitsSettings:
    """Where a run asks for its share of the limits that several runs have together."""

    address: str  # a socket's path
    groups: Mapping[str, str]  # role -> name of its limits


@dataclass(frozen=True)
class SampleSettings:
    """With what the instances of a limited run are drawn, where HELM does not draw them."""

    seed: int
    source: str | None = None  # the field of an instance that names what it shares with others: no group
    in_one_order: bool = False  # whatever groups they come in: a greater sample holds the smaller one exactly
    ids: Sequence[str] = ()  # of the instances that are asked: none is drawn


@dataclass(frozen=True)
class HelmRunSettings:
    """None, or empty: not set."""

    run_id: str | None = None
    parent: int | None = None  # the id of the process that started helm-run, and with which it ends
    probed: frozenset[str] | None = None  # the roles whose endpoints answered the probe before the run
    is_being_probed: bool = False
    """They are asked while HELM is imported: `probed` comes on standard input, and nothing is asked before."""
    allowed: tuple[Place, ...] | None = None  # offline: what may be contacted
    proxies: Mapping[str, str] | None = None  # offline: URL of an endpoint -> the proxy that leads there
    pins: Pins | None = None
    file_lists: str | None = None  # a folder of <scenario>.json: the names of files that GitHub would be asked for
    all_files: bool | None = None  # whether more files are read than GitHub's own list, of 1,000 entries, holds
    probe_judges: bool = False  # whether judges are asked about an answer that says nothing, too
    only_generate: bool = False  # whether metrics that look at pictures are left out
    asks_model: bool = True
    """Whether the model is asked; else its stored answers are scored, and what is not stored ends the run."""
    sample: SampleSettings | None = None  # None: HELM draws
    without: frozenset[str] = frozenset()  # patches of HELM that the user switched off
    limits: SharedLimitsSettings | None = None
    """None: the run has its limits for itself. Not in the file: they end with the runs that share them."""
    budget: Budget = field(default_factory=Budget)  # what the run may ask and cost
    prices: Mapping[str, Price] = field(default_factory=dict)  # role -> what its tokens cost, where that is known
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell libraries where data are (HF_HOME ...)."""

    def environment(self) -> dict[str, str]:
        """The variables that say the same."""
        variables = {
            RUN_ID: self.run_id,
            PARENT: None if self.parent is None else str(self.parent),
            PROBED: ON_STDIN if self.is_being_probed else probed_text(self.probed),
            OFFLINE: None if self.allowed is None else json.dumps(self.allowed),
            PROXIES: None if self.proxies is None else json.dumps(dict(self.proxies)),
            PINS: None if self.pins is None else json.dumps(vars(self.pins), default=dict),
            _FILE_LISTS: self.file_lists,
            LIMITS: None if self.limits is None else json.dumps(vars(self.limits), default=dict),
            ALL_FILES: None if self.all_files is None else str(int(self.all_files)),
            PROBE_JUDGES: "1" if self.probe_judges else None,
            ONLY_GENERATE: "1" if self.only_generate else None,
            ASKS_MODEL: None if self.asks_model else "0",
            SAMPLE: None if self.sample is None else json.dumps(vars(self.sample)),
            WITHOUT: ",".join(sorted(self.without)) or None,
            BUDGET: json.dumps(vars(self.budget)) if self.budget else None,
            PRICES: json.dumps({role: asdict(price) for role, price in self.prices.items()}) if self.prices else None,
        }
        return {**self.libraries, **{name: value for name, value in variables.items() if value is not None}}

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> HelmRunSettings:
        """What `env` says; `libraries` stay empty: their variables are for others.

        Raises ValueError: a variable does not hold what `environment` writes.
        """
        is_being_probed = env.get(PROBED) == ON_STDIN
        probed = None if is_being_probed else _json(env, PROBED)
        allowed, proxies, pins, limits = (_json(env, name) for name in (OFFLINE, PROXIES, PINS, LIMITS))
        prices, sample = _json(env, PRICES) or {}, _json(env, SAMPLE)
        return cls(
            run_id=env.get(RUN_ID),
            parent=int(env[PARENT]) if PARENT in env else None,
            probed=None if probed is None else frozenset(probed),
            is_being_probed=is_being_probed,
            allowed=None if allowed is None else tuple((host, port) for host, port in allowed),
            proxies=proxies,
            pins=None if pins is None else Pins(**pins),
            file_lists=env.get(_FILE_LISTS),
            all_files=env[ALL_FILES] == "1" if ALL_FILES in env else None,
            probe_judges=env.get(PROBE_JUDGES) == "1",
            only_generate=env.get(ONLY_GENERATE) == "1",
            asks_model=env.get(ASKS_MODEL) != "0",
            sample=None if sample is None else SampleSettings(**{**sample, "ids": tuple(sample.get("ids", ()))}),
            without=frozenset(filter(None, env.get(WITHOUT, "").split(","))),
            limits=None if limits is None else SharedLimitsSettings(**limits),
            budget=Budget(**(_json(env, BUDGET) or {})),
            prices={role: Price.from_dict(price) for role, price in prices.items()},
        )

    def file_text(self) -> str:
        """The content of the file. Of proxies it holds what they lead to: their URLs may hold passwords."""
        not_in_it = (PROXIES, LIMITS)
        variables = {name: value for name, value in self.environment().items() if name not in not_in_it}
        document: dict[str, Any] = {"variables": variables}
        if self.proxies is not None:
            document["through_proxies"] = list(self.proxies)
        return json.dumps(document, indent=2) + "\n"


def read_file(text: str) -> tuple[dict[str, str], list[str] | None]:
    """Variables, and the URLs to which the shell's proxies lead, and nowhere else.

    Raises ValueError where the text is not ours.
    """
    try:
        document = json.loads(text)
        return dict(document["variables"]), document.get("through_proxies")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("these are no settings of a run") from error


def probed_text(probed: frozenset[str] | None) -> str | None:
    """The value of PROBED."""
    return None if probed is None else json.dumps(sorted(probed))


def _json(env: Mapping[str, str], name: str) -> Any:
    return json.loads(env[name]) if env.get(name) else None
