"""Reads the catalogue of HELM's leaderboards, and finds their schemas and conf files.

The catalogue is `leaderboards.yml`. A conf file lists a leaderboard's run entries for many models;
`without_models` returns the entries without their models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from eval_factory.config.value_types import PositiveInteger, Role
from eval_factory.core.errors import ConfigError, PrerequisiteError, did_you_mean
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.safe_files import read_text
from eval_factory.core.strict_model import StrictModel
from eval_factory.data.sources import AUGMENTATION, load_sources
from eval_factory.helm.environments import environment_of
from eval_factory.helm.names import conf_entries
from eval_factory.tasks.run_entry import JUDGE_DEPLOYMENT_ARGUMENT
from eval_factory.tasks.run_specs import IndexedRunSpec, load_index
from eval_factory.tasks.upstreams import HELM

_ORGANIZATION = "{organization}"  # the placeholder for an organization in the name of a conf file
CONF_URL = (
    "https://raw.githubusercontent.com/stanford-crfm/helm/v{version}/"
    "src/helm/benchmark/presentation/{conf}"
)
"""The URL of a conf file in HELM's repository."""


class Leaderboard(StrictModel):
    """A leaderboard of HELM's web page."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    description: str
    # the names of two files of HELM: "run_entries_medhelm_private_{organization}.conf" and
    # "schema_medhelm.yaml"
    conf: Annotated[str, Field(pattern=r"^run_entries[a-z0-9_{}]*\.conf$")]
    schema_file: Annotated[str, Field(alias="schema", pattern=r"^schema_[a-z0-9_]+\.yaml$")]
    num_train_trials: PositiveInteger
    max_eval_instances: PositiveInteger
    # only entries with this or a smaller number as their priority are run
    priority: PositiveInteger
    access: Literal["public", "gated", "private"] = "public"  # who can get the data
    # what every entry needs and a chat endpoint lacks; None if some entries can be run
    lacks: str | None = None
    # what only some entries need and a chat endpoint lacks, such as "log probabilities"
    leaves_out: str | None = None
    makes_images: bool = False  # True if the answers are pictures
    needs: tuple[str, ...] = ()  # a text for each thing that the user must provide
    judges: dict[Role, str] = {}  # HELM's name of each judge, by role
    schema_changes: dict[str, str] = {}
    """Corrections of HELM's schema: a dict from a text in the schema to its replacement. Without
    them, HELM cannot make the tables.
    """

    @property
    def needs_organization(self) -> bool:
        """True if the name of the conf file has the placeholder for an organization."""
        return _ORGANIZATION in self.conf

    def need_lines(self) -> list[str]:
        """Return a line for each need of the leaderboard beyond a chat endpoint."""
        lines = []
        if self.lacks:
            lines.append(f"{self.lacks}: the leaderboard cannot be run with a chat endpoint")
        if self.leaves_out:
            lines.append(f"{self.leaves_out} for some entries: these entries are left out")
        lines += self.needs
        if self.judges:
            models = ", ".join(name.partition("/")[2] for name in self.judges.values())
            lines.append(
                f"HELM's own judges: {models}, asked at the model's URL or as extra.judges says"
            )
        if schema_path(self) is None:
            lines.append(f"{self.schema_file}: HELM {helm_version()} does not have this file")
        return lines


class Catalogue(StrictModel):
    """The content of `leaderboards.yml`."""

    output_dir: str  # the default output folder; {name} is replaced by the leaderboard's name
    several: dict[str, dict[str, tuple[int, ...]]]
    """Values of entry arguments that HELM expands to several runs.

    Maps the name of an argument to such values, and each of these values to the values of the runs.
    For example, HELM makes three runs of an entry with `max_train_instances=melt`, with 0, 1 and 5:
    `{"max_train_instances": {"melt": (0, 1, 5)}}`.
    """
    leaderboards: tuple[Leaderboard, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Return the checked catalogue. The file is read once per process."""
    return Catalogue.model_validate(load_packaged("workflows/leaderboard/leaderboards.yml"))


def find_leaderboard(name: str) -> Leaderboard:
    """Return the leaderboard with this name.

    `medhelm_private` may be followed by the name of an organization: `medhelm_private_stanford`.

    Raises:
        ConfigError: No leaderboard has this name.
    """
    wanted = name.lower().replace("-", "_").replace(".", "_")
    by_name = {leaderboard.name: leaderboard for leaderboard in load_catalogue().leaderboards}
    if wanted in by_name:
        return by_name[wanted]
    for leaderboard in by_name.values():
        prefix = f"{leaderboard.name}_"
        if not leaderboard.needs_organization or not wanted.startswith(prefix):
            continue
        organization = wanted.removeprefix(prefix)
        # The organization becomes a part of a file name, so it may only have letters, digits and _.
        if organization.replace("_", "").isalnum():
            conf = leaderboard.conf.replace(_ORGANIZATION, organization)
            return leaderboard.model_copy(update={"name": wanted, "conf": conf})
    hint = did_you_mean(wanted, list(by_name))
    raise ConfigError(
        f"no leaderboard is called {name!r}{hint}\n  'eval-factory leaderboard ls' lists them"
    )


def helm_version() -> str:
    """Return the version of the installed HELM, or a text if HELM is not installed."""
    return environment_of(HELM).version_of(HELM.package) or "(not installed)"


def schema_path(leaderboard: Leaderboard) -> Path | None:
    """Return the path of the schema in the installed HELM; None if HELM lacks the schema.

    HELM is not imported, because its import is slow.
    """
    return environment_of(HELM).helm_path("benchmark", "static", leaderboard.schema_file)


def schema_text(leaderboard: Leaderboard, schema: Path) -> str:
    """Return the text of HELM's schema with the corrections of the leaderboard."""
    text = schema.read_text(encoding="utf-8")
    for old, new in leaderboard.schema_changes.items():
        text = text.replace(old, new)
    return text


def conf_of(
    leaderboard: Leaderboard,
    *,
    file: Path | None,
    data_dir: Path | None,
    local_only: bool = False,
) -> tuple[str | None, str]:
    """Return the text of a leaderboard's conf file, and its path or address.

    Args:
        leaderboard: The leaderboard.
        file: The conf file that the user named, or None.
        data_dir: The data bundle that contains the conf file, or None. Without a file and a bundle,
            the conf file is downloaded from HELM's repository at the installed version.
        local_only: True to return None instead of a text that would have to be downloaded.

    Raises:
        ConfigError: The file cannot be read, or the leaderboard's name lacks an organization.
        PrerequisiteError: The bundle lacks the conf file, or the download failed.
    """
    if file is not None:
        return _read(file), str(file)
    if leaderboard.needs_organization:
        raise ConfigError(
            f"{leaderboard.name}: add the organization to the name ({leaderboard.name}_stanford), "
            "or give the conf file with --conf"
        )
    if data_dir is not None:
        bundled = data_dir / "presentation" / leaderboard.conf
        if not bundled.is_file():
            raise PrerequisiteError(
                f"{bundled} does not exist\n  on a machine with a network: "
                f"eval-factory data pull leaderboards --to {data_dir};"
                f" or give {leaderboard.conf} of HELM's repository with --conf FILE"
            )
        return _read(bundled), str(bundled)
    address = CONF_URL.format(version=helm_version(), conf=leaderboard.conf)
    if local_only:
        return None, address
    import requests  # imported late: the import is slow and seldom needed

    try:
        reply = requests.get(address, timeout=20.0)
        reply.raise_for_status()
    except requests.RequestException as error:
        status = error.response.status_code if error.response is not None else None
        reason = f"HTTP {status}" if status else type(error).__name__
        raise PrerequisiteError(
            f"the leaderboard's conf cannot be downloaded: {reason} from {address}\n"
            "  copy the conf to this machine, and give it with --conf FILE (or --data_dir DIR, "
            "with DIR/presentation/)"
        ) from None
    return reply.text, address


MAX_CONF_SIZE = 4 * 1024 * 1024  # in bytes


def _read(path: Path) -> str:
    """Return the text of a conf file. Raises ConfigError if the file cannot be read."""
    try:
        return read_text(path, max_size=MAX_CONF_SIZE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


# The names of arguments of entries. The entries of a conf file name models in three ways: a group
# of models (`model=text`), a particular model (`model=openai/gpt-4o,model_deployment=...`), or not
# at all. `without_models` removes `model` and `model_deployment`, because the target of a run
# determines its model.
_MODEL = "model"
_OUTPUT_LIMIT = "num_output_tokens"
DATA_PATH = "data_path"


@dataclass(frozen=True)
class Entry:
    """A run entry of a HELM conf file."""

    run_spec: str  # the name of HELM's function that makes the run spec
    arguments: tuple[tuple[str, str], ...]  # pairs (name, value)
    priority: int | None = None  # None: the entry is always run
    groups: tuple[str, ...] | None = None
    """HELM's groups of tables to which the run belongs, in addition to those of its run spec."""

    @property
    def description(self) -> str:
        """The entry without its groups, in HELM's notation: `name:key=value,key=value`."""
        joined = ",".join(f"{name}={value}" for name, value in self.arguments)
        if joined:
            return f"{self.run_spec}:{joined}"
        return self.run_spec

    @property
    def row_name(self) -> str:
        """The name of the entry's row in `leaderboard.json`: the description with the groups.

        Two entries that only differ in their groups are two rows of one run.
        """
        if self.groups is None:
            return self.description
        separator = "," if self.arguments else ":"
        return f"{self.description}{separator}groups={','.join(self.groups)}"

    @property
    def indexed(self) -> IndexedRunSpec | None:
        """The facts about the entry's run spec from the index; None if the index lacks it."""
        return load_index().run_specs.get(self.run_spec)

    @property
    def unmet_need(self) -> str | None:
        """The need of the entry that a chat endpoint cannot meet; None if no such need is known."""
        # The only online perturbation of HELM sends texts to Google Translate.
        augmentation = self.argument(AUGMENTATION)
        for perturbation in load_sources().perturbations.values():
            if perturbation.online and augmentation in perturbation.augmentations:
                return "translations by Google"
        if self.indexed is None:
            return None
        return self.indexed.asks

    def is_left_out(self, leaderboard: Leaderboard) -> bool:
        """Return True if the endpoints of the leaderboard lack what the entry needs."""
        # An endpoint that makes images meets the need that a chat endpoint cannot meet.
        if leaderboard.makes_images and self.indexed is not None and self.indexed.makes_images:
            return False
        return self.unmet_need is not None

    @property
    def judges(self) -> tuple[str, ...]:
        """The deployments of the judges that HELM prescribes for the entry."""
        chosen = self.argument(JUDGE_DEPLOYMENT_ARGUMENT)
        if chosen is not None:
            return (chosen,)
        if self.indexed is None:
            return ()
        return self.indexed.prescribed_judges

    def argument(self, name: str) -> str | None:
        """Return the value of an argument; None if the entry does not have the argument."""
        return dict(self.arguments).get(name)

    def without(self, *names: str) -> Entry:
        """Return the entry without the arguments of these names."""
        return replace(
            self, arguments=tuple(pair for pair in self.arguments if pair[0] not in names)
        )


def read_entries(text: str, origin: str) -> list[Entry]:
    """Return the entries of a conf file.

    Args:
        text: The text of the conf file.
        origin: The path or address of the conf file, for messages.

    Raises:
        ConfigError: The text is not a conf file, or entries are malformed.
    """
    try:
        raw = conf_entries(text)
    except ValueError as error:
        form = "entries: [{description: ..., priority: 1}]"
        raise ConfigError(f"{origin}: {error}\n  a conf file is HOCON: {form}") from None
    problems: list[str] = []
    entries = []
    for number, record in enumerate(raw, start=1):
        try:
            entries.append(_entry(record))
        except ValueError as error:
            problems.append(f"{origin}: entry {number} ({record['description'][:80]}): {error}")
    if problems:
        raise ConfigError(problems)
    return entries


def _entry(record: Mapping[str, Any]) -> Entry:
    """Return the entry of a record in a conf file. Raises ValueError if the record is malformed."""
    run_spec, colon, joined = record["description"].partition(":")
    pairs = []
    if colon:
        for argument in joined.split(","):
            name, equals, value = argument.partition("=")
            if not equals:
                raise ValueError(f"{argument!r} is not key=value")
            pairs.append((name, value))
    priority = record.get("priority")
    # In Python, a bool is an int as well.
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    if priority is not None and not is_number:
        raise ValueError("the priority is not a number")
    groups = record.get("groups")
    if groups is not None and not _is_list_of_texts(groups):
        raise ValueError("the groups are not a list of names")
    unknown = sorted(set(record) - {"description", "priority", "groups"})
    if unknown:
        raise ValueError(f"HELM knows no key {', '.join(unknown)}")
    return Entry(
        run_spec,
        tuple(pairs),
        priority=priority,
        groups=None if groups is None else tuple(groups),
    )


def _is_list_of_texts(value: object) -> bool:
    """Return True if the value is a list, and each of its items is a text."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def without_models(entries: Iterable[Entry], *, reasoning: bool = False) -> list[Entry]:
    """Return each entry once, without its model, with the smallest priority number of its copies.

    Copies of an entry are the same entry for other models. In MedHELM, the copies for reasoning
    models set a limit of output tokens, which the entry for the other models does not set. If
    `reasoning` is True, a copy with the limit is preferred; if False, a copy without the limit.
    """
    entry_of_key: dict[tuple[Any, ...], Entry] = {}
    for entry in chain.from_iterable(map(_expanded, entries)):
        model = entry.argument(_MODEL)
        has_particular_model = model is not None and "/" in model
        plain = entry.without(_MODEL, "model_deployment")
        # Copies for particular models may differ from the entry in the limit of tokens.
        compared = plain.without(_OUTPUT_LIMIT) if has_particular_model else plain
        # a set, because HELM ignores the order of arguments
        key = (plain.run_spec, frozenset(compared.arguments), plain.groups)
        earlier = entry_of_key.get(key)
        entry_of_key[key] = plain
        if earlier is not None:
            entry_of_key[key] = _preferred_copy(earlier, plain, reasoning=reasoning)
    return list(entry_of_key.values())


def _preferred_copy(earlier: Entry, later: Entry, *, reasoning: bool) -> Entry:
    """Return the preferred of two copies of an entry, with the smaller of their priority numbers.

    If `reasoning` is True, a copy that sets the limit of output tokens is preferred; if False, a
    copy that does not set it. If both copies or neither are preferred, the earlier is returned.
    """
    earlier_is_preferred = (earlier.argument(_OUTPUT_LIMIT) is not None) == reasoning
    later_is_preferred = (later.argument(_OUTPUT_LIMIT) is not None) == reasoning
    chosen = earlier
    if later_is_preferred and not earlier_is_preferred:
        chosen = later
    priority = None  # an entry without a priority is always run
    if earlier.priority is not None and later.priority is not None:
        priority = min(earlier.priority, later.priority)
    return replace(chosen, priority=priority)


def _expanded(entry: Entry) -> Iterator[Entry]:
    """Yield an entry for each run to which HELM expands the entry.

    An entry that HELM does not expand is yielded unchanged.
    """
    for name, runs_of_value in load_catalogue().several.items():
        value = entry.argument(name)
        if value in runs_of_value:
            for value_of_run in runs_of_value[value]:
                arguments = []
                for argument, old in entry.arguments:
                    arguments.append((argument, str(value_of_run) if argument == name else old))
                yield replace(entry, arguments=tuple(arguments))
            return
    yield entry
