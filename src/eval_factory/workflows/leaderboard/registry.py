"""Reads the catalogue of HELM's leaderboards, and finds their schemas and conf files.

The catalogue is `leaderboards.yml`. A conf file lists run entries for many models; `of_any_model`
returns the entries without their models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from eval_factory.config.model import Positive, Role
from eval_factory.core.errors import ConfigError, PrerequisiteError, did_you_mean
from eval_factory.core.plain_yaml import packaged
from eval_factory.core.safe_files import read_text
from eval_factory.core.strict_model import StrictModel
from eval_factory.data.sources import AUGMENTATION, load_sources
from eval_factory.helm.environments import environment_of
from eval_factory.helm.names import conf_entries
from eval_factory.tasks.run_entry import JUDGE_DEPLOYMENT
from eval_factory.tasks.run_specs import IndexedRunSpec, load_index
from eval_factory.tasks.upstreams import HELM

_ORGANIZATION = "{organization}"  # the placeholder for an organization in the name of a conf file
ADDRESS = "https://raw.githubusercontent.com/stanford-crfm/helm/v{version}/src/helm/benchmark/presentation/{conf}"
"""The URL of a conf file in HELM's repository."""


class Leaderboard(StrictModel):
    """A leaderboard of HELM's web page."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    description: str
    conf: Annotated[str, Field(pattern=r"^run_entries[a-z0-9_{}]*\.conf$")]
    schema_file: Annotated[str, Field(alias="schema", pattern=r"^schema_[a-z0-9_]+\.yaml$")]
    num_train_trials: Positive
    max_eval_instances: Positive
    priority: Positive
    access: Literal["public", "gated", "private"] = "public"
    # what every entry needs and a chat endpoint lacks; None if some entries can be run
    lacks: str | None = None
    # what only some entries need and a chat endpoint lacks, such as "log probabilities"
    leaves_out: str | None = None
    makes_images: bool = False  # True if the answers are pictures
    needs: tuple[str, ...] = ()
    judges: dict[Role, str] = {}  # the name of each judge at HELM, by role
    schema_changes: dict[str, str] = {}
    """Corrections of HELM's schema, without which HELM cannot make the tables: new text by old."""

    @property
    def names_no_organization(self) -> bool:
        """True if the name of the conf file still has the placeholder for an organization."""
        return _ORGANIZATION in self.conf

    def needed(self) -> list[str]:
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
    """Arguments with values that HELM expands to several runs: for each argument and each such
    value, the values of the runs.
    """
    leaderboards: tuple[Leaderboard, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Return the checked catalogue. The file is read once per process."""
    return Catalogue.model_validate(packaged("workflows/leaderboard/leaderboards.yml"))


def find(name: str) -> Leaderboard:
    """Return the leaderboard with this name.

    `medhelm_private` may be followed by the name of an organization: `medhelm_private_stanford`.

    Raises:
        ConfigError: No leaderboard has this name.
    """
    wanted = name.lower().replace("-", "_").replace(".", "_")
    by_name = {row.name: row for row in load_catalogue().leaderboards}
    if wanted in by_name:
        return by_name[wanted]
    for row in by_name.values():
        organization = wanted.removeprefix(f"{row.name}_")
        if (
            row.names_no_organization
            and organization != wanted
            and organization.replace("_", "").isalnum()
        ):
            return row.model_copy(
                update={"name": wanted, "conf": row.conf.replace(_ORGANIZATION, organization)}
            )
    hint = did_you_mean(wanted, list(by_name))
    raise ConfigError(
        f"no leaderboard is called {name!r}{hint}\n  'eval-factory leaderboard ls' lists them"
    )


def helm_version() -> str:
    """Return the version of the installed HELM, or a text if HELM is not installed."""
    return environment_of(HELM).version_of(HELM.package) or "(not installed)"


def schema_path(row: Leaderboard) -> Path | None:
    """Return the path of the schema in the installed HELM; None if HELM lacks the schema.

    HELM is not imported.
    """
    return environment_of(HELM).helm_path("benchmark", "static", row.schema_file)


def schema_text(row: Leaderboard, schema: Path) -> str:
    """Return the text of HELM's schema with the corrections of the leaderboard."""
    text = schema.read_text(encoding="utf-8")
    for old, new in row.schema_changes.items():
        text = text.replace(old, new)
    return text


def conf_of(
    row: Leaderboard, *, file: Path | None, data_dir: Path | None, look_only: bool = False
) -> tuple[str | None, str]:
    """Return the text of a leaderboard's conf file, and its path or address.

    Args:
        row: The leaderboard.
        file: The conf file that the user named, or None.
        data_dir: The data bundle that contains the conf file, or None. Without a file and a bundle,
            the conf file is downloaded from HELM's repository at the installed version.
        look_only: True to download nothing: the text is then None.

    Raises:
        ConfigError: The file cannot be read, or the leaderboard's name lacks an organization.
        PrerequisiteError: The bundle lacks the conf file, or the download failed.
    """
    if file is not None:
        return _read(file), str(file)
    if row.names_no_organization:
        raise ConfigError(
            f"{row.name}: add the organization to the name ({row.name}_stanford), "
            "or give the conf file with --conf"
        )
    if data_dir is not None:
        bundled = data_dir / "presentation" / row.conf
        if not bundled.is_file():
            raise PrerequisiteError(
                f"{bundled} does not exist\n  on a machine with a network: "
                f"eval-factory data pull leaderboards --to {data_dir};"
                f" or give {row.conf} of HELM's repository with --conf FILE"
            )
        return _read(bundled), str(bundled)
    address = ADDRESS.format(version=helm_version(), conf=row.conf)
    if look_only:
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


MAX_CONF_SIZE = 4 << 20  # in bytes


def _read(path: Path) -> str:
    """Return the text of a conf file. Raises ConfigError if the file cannot be read."""
    try:
        return read_text(path, max_size=MAX_CONF_SIZE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


# The names of arguments of entries. The entries of a conf file name models in three ways: a group
# of models (`model=text`), a particular model (`model=openai/gpt-4o,model_deployment=...`), or not
# at all. `of_any_model` removes both arguments, because the target of a run determines its model.
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
    def run(self) -> str:
        """The name of the entry's row: the description with the groups.

        Two entries that only differ in their groups are two rows of one run.
        """
        if self.groups is None:
            return self.description
        return f"{self.description}{',' if self.arguments else ':'}groups={','.join(self.groups)}"

    @property
    def known(self) -> IndexedRunSpec | None:
        """The facts about the entry's run spec; None if the run spec is unknown."""
        return load_index().run_specs.get(self.run_spec)

    @property
    def asks(self) -> str | None:
        """The need of the entry that a chat endpoint cannot meet; None if no such need is known."""
        augmentation = self.argument(AUGMENTATION)
        for perturbation in load_sources().perturbations.values():
            if perturbation.online and augmentation in perturbation.augmentations:
                return "translations by Google"
        if self.known is None:
            return None
        return self.known.asks

    def is_left_out(self, row: Leaderboard) -> bool:
        """Return True if the endpoints of the leaderboard lack what the entry needs."""
        if row.makes_images and self.known is not None and self.known.makes_images:
            return False
        return self.asks is not None

    @property
    def judges(self) -> tuple[str, ...]:
        """The deployments of the judges that HELM prescribes for the entry."""
        chosen = self.argument(JUDGE_DEPLOYMENT)
        prescribed = () if self.known is None else self.known.prescribed_judges
        if chosen is None:
            return prescribed
        return (chosen,)

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
    for argument in joined.split(",") if colon else ():
        name, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument!r} is not key=value")
        pairs.append((name, value))
    priority = record.get("priority")
    groups = record.get("groups")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise ValueError("the priority is not a number")
    if groups is not None and not (
        isinstance(groups, list) and all(isinstance(group, str) for group in groups)
    ):
        raise ValueError("the groups are not a list of names")
    unknown = sorted(set(record) - {"description", "priority", "groups"})
    if unknown:
        raise ValueError(f"HELM knows no key {', '.join(unknown)}")
    return Entry(run_spec, tuple(pairs), priority, None if groups is None else tuple(groups))


def of_any_model(entries: Iterable[Entry], *, reasoning: bool = False) -> list[Entry]:
    """Return each entry once, without its model, with the lowest priority of its copies.

    A conf file may have an entry for most models and a copy with a higher limit of output tokens
    for some models (MedHELM's reasoning models). Only one of the two is returned: with `reasoning`
    the first copy that sets the limit, otherwise the entry that does not set it.
    """
    entry_of_key: dict[tuple[Any, ...], Entry] = {}
    for entry in chain.from_iterable(map(_single, entries)):
        has_particular_model = "/" in (entry.argument(_MODEL) or "")
        plain = entry.without(_MODEL, "model_deployment")
        # Copies for particular models differ from their original in the limit of output tokens.
        compared = plain.without(_OUTPUT_LIMIT) if has_particular_model else plain
        # a set, because HELM ignores the order of arguments
        key = (plain.run_spec, frozenset(compared.arguments), plain.groups)
        earlier = entry_of_key.setdefault(key, plain)
        has_limit = plain.argument(_OUTPUT_LIMIT) is not None
        earlier_has_limit = earlier.argument(_OUTPUT_LIMIT) is not None
        # The earlier entry is replaced only if it is the wrong one of the two kinds.
        chosen = plain if has_limit != earlier_has_limit and has_limit == reasoning else earlier
        always = earlier.priority is None or plain.priority is None
        # `or 0` is only for the type checker: without `always`, no priority is None
        priority = None if always else min(earlier.priority or 0, plain.priority or 0)
        entry_of_key[key] = replace(chosen, priority=priority)
    return list(entry_of_key.values())


def _single(entry: Entry) -> Iterator[Entry]:
    """Yield an entry for each run of an entry whose argument means several runs.

    Any other entry is yielded unchanged.
    """
    for name, values in load_catalogue().several.items():
        argument_value = entry.argument(name)
        if argument_value in values:
            for value in values[argument_value]:
                pairs = tuple(
                    (key, str(value) if key == name else argument)
                    for key, argument in entry.arguments
                )
                yield replace(entry, arguments=pairs)
            return
    yield entry
