"""HELM's leaderboards (`leaderboards.yml`, checked), their schemas and confs, and these as
entries of any model.
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

_ORGANIZATION = "{organization}"
ADDRESS = "https://raw.githubusercontent.com/stanford-crfm/helm/v{version}/src/helm/benchmark/presentation/{conf}"


class Leaderboard(StrictModel):
    """One row of HELM's page."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    description: str
    conf: Annotated[str, Field(pattern=r"^run_entries[a-z0-9_{}]*\.conf$")]
    schema_file: Annotated[str, Field(alias="schema", pattern=r"^schema_[a-z0-9_]+\.yaml$")]
    num_train_trials: Positive
    max_eval_instances: Positive
    priority: Positive
    access: Literal["public", "gated", "private"] = "public"
    # the thing that every entry asks for and a chat endpoint does not have
    lacks: str | None = None
    leaves_out: str | None = None  # the same of some entries
    makes_images: bool = False  # True if its answers are pictures, of an endpoint that makes them
    needs: tuple[str, ...] = ()
    judges: dict[Role, str] = {}  # role of a judge -> the name that HELM asks it by
    schema_changes: dict[str, str] = {}
    """A text in HELM's schema -> what has to stand there for HELM to make its tables."""

    @property
    def names_no_organization(self) -> bool:
        """True if the conf's name still waits for an organization."""
        return _ORGANIZATION in self.conf

    def needed(self) -> list[str]:
        """Return all that a chat endpoint alone cannot give, a line each."""
        lines = [f"{self.lacks}: it cannot be run with a chat endpoint"] if self.lacks else []
        if self.leaves_out:
            lines.append(f"{self.leaves_out} for some entries: they are left out")
        lines += self.needs
        if self.judges:
            models = ", ".join(name.partition("/")[2] for name in self.judges.values())
            lines.append(
                f"HELM's own judges: {models}, asked at the model's URL or as extra.judges says"
            )
        if schema_path(self) is None:
            lines.append(f"{self.schema_file}: HELM {helm_version()} does not have it")
        return lines


class Catalogue(StrictModel):
    """The whole file."""

    output_dir: str  # the folder of results unless the user names one: {name} is the leaderboard's
    several: dict[str, dict[str, tuple[int, ...]]]
    """Argument -> value that stands for several runs -> the value of each."""
    leaderboards: tuple[Leaderboard, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Read and check the file once per process."""
    return Catalogue.model_validate(packaged("workflows/leaderboard/leaderboards.yml"))


def find(name: str) -> Leaderboard:
    """Return the leaderboard of that name; an organization's name may follow `medhelm_private`.
    Raises ConfigError: there is none.
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
    return environment_of(HELM).version_of(HELM.package) or "(not installed)"


def schema_path(row: Leaderboard) -> Path | None:
    """Return the schema in the installed HELM, which is not imported; None if it has none."""
    return environment_of(HELM).helm_path("benchmark", "static", row.schema_file)


def schema_text(row: Leaderboard, schema: Path) -> str:
    """Return HELM's schema with the row's changes."""
    text = schema.read_text(encoding="utf-8")
    for wrong, right in row.schema_changes.items():
        text = text.replace(wrong, right)
    return text


def conf_of(
    row: Leaderboard, *, file: Path | None, data_dir: Path | None, look_only: bool = False
) -> tuple[str | None, str]:
    """Return the text of the conf and where it is from: a file, a data bundle, or HELM's repository
    at the installed tag.

    `look_only`: download nothing; the text is None if the conf is not on this machine. Raises
        ConfigError,
    PrerequisiteError: the file cannot be read, the organization is not named; it is not in the
    bundle or on the net.
    """
    if file is not None:
        return _read(file), str(file)
    if row.names_no_organization:
        raise ConfigError(
            f"{row.name}: whose benchmarks? Name the organization ({row.name}_stanford), "
            "or give the conf with --conf"
        )
    if data_dir is not None:
        bundled = data_dir / "presentation" / row.conf
        if not bundled.is_file():
            raise PrerequisiteError(
                f"{bundled} is not there\n  with a network: "
                f"eval-factory data pull leaderboards --to {data_dir};"
                f" or give {row.conf} of HELM's repository with --conf FILE"
            )
        return _read(bundled), str(bundled)
    address = ADDRESS.format(version=helm_version(), conf=row.conf)
    if look_only:
        return None, address
    import requests  # imported here: it is slow, and seldom needed

    try:
        reply = requests.get(address, timeout=20.0)
        reply.raise_for_status()
    except requests.RequestException as error:
        status = error.response.status_code if error.response is not None else None
        reason = f"HTTP {status}" if status else type(error).__name__
        raise PrerequisiteError(
            f"the leaderboard's conf cannot be downloaded: {reason} from {address}\n"
            "  have it in a file and give that with --conf FILE (or --data_dir DIR, "
            "with DIR/presentation/)"
        ) from None
    return reply.text, address


MAX_CONF = 4 << 20  # bytes


def _read(path: Path) -> str:
    try:
        return read_text(path, max_size=MAX_CONF)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


# Confs name models in three ways: a group (`model=text`), somebody's model
# (`model=openai/gpt-4o,model_deployment=...`, an entry for each), or not at all. Here no entry
# names one: the target of each run does.
_MODEL = "model"
_LIMIT = "num_output_tokens"
DATA_PATH = "data_path"


@dataclass(frozen=True)
class Entry:
    """One run entry of HELM's; one without a priority is always run."""

    run_spec: str
    arguments: tuple[tuple[str, str], ...]
    priority: int | None = None
    groups: tuple[str, ...] | None = None
    """HELM's groups of tables that its run belongs to, beside those of its run spec."""

    @property
    def description(self) -> str:
        joined = ",".join(f"{name}={value}" for name, value in self.arguments)
        if joined:
            return f"{self.run_spec}:{joined}"
        return self.run_spec

    @property
    def run(self) -> str:
        """The name of the entry's run: entries that differ in their groups alone are two rows of
        one run.
        """
        if self.groups is None:
            return self.description
        return f"{self.description}{',' if self.arguments else ':'}groups={','.join(self.groups)}"

    @property
    def known(self) -> IndexedRunSpec | None:
        return load_index().run_specs.get(self.run_spec)

    @property
    def asks(self) -> str | None:
        """The thing that it asks for beside a model's answers to a chat, as far as is known."""
        made = self.argument(AUGMENTATION)
        if any(
            perturbation.online and made in perturbation.augmentations
            for perturbation in load_sources().perturbations.values()
        ):
            return "translations by Google"
        if self.known is None:
            return None
        return self.known.asks

    def is_left_out(self, row: Leaderboard) -> bool:
        """Tell whether the endpoints of a leaderboard do not have what it asks for."""
        if row.makes_images and self.known is not None and self.known.makes_images:
            return False
        return self.asks is not None

    @property
    def judges(self) -> tuple[str, ...]:
        """Deployments of the judges that HELM prescribes for it."""
        chosen = self.argument(JUDGE_DEPLOYMENT)
        prescribed = () if self.known is None else self.known.prescribed_judges
        if chosen is None:
            return prescribed
        return (chosen,)

    def argument(self, name: str) -> str | None:
        return dict(self.arguments).get(name)

    def without(self, *names: str) -> Entry:
        return replace(
            self, arguments=tuple(pair for pair in self.arguments if pair[0] not in names)
        )


def read_entries(text: str, origin: str) -> list[Entry]:
    """Return the entries of a conf file; `origin` is where it is from, for messages. Raises
    ConfigError: it is not a conf file of run entries.
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
        raise ValueError("its priority is not a number")
    if groups is not None and not (
        isinstance(groups, list) and all(isinstance(group, str) for group in groups)
    ):
        raise ValueError("its groups are not a list of names")
    unknown = sorted(set(record) - {"description", "priority", "groups"})
    if unknown:
        raise ValueError(f"HELM knows no {', '.join(unknown)}")
    return Entry(run_spec, tuple(pairs), priority, None if groups is None else tuple(groups))


def of_any_model(entries: Iterable[Entry], *, reasoning: bool = False) -> list[Entry]:
    """Return each entry once, without its model, in their order, with the lowest of its priorities.

    Where a conf has an entry for most models and the same with more output tokens for some
    (MedHELM's reasoning models), one of the two is kept: with `reasoning` the first that sets the
    limit, else the one that does not.
    """
    kept: dict[tuple[Any, ...], Entry] = {}
    for entry in chain.from_iterable(map(_single, entries)):
        of_somebody = "/" in (entry.argument(_MODEL) or "")
        ours = entry.without(_MODEL, "model_deployment")
        # The order of arguments is no difference to HELM.
        key = (
            ours.run_spec,
            frozenset(ours.without(_LIMIT if of_somebody else "").arguments),
            ours.groups,
        )
        before = kept.setdefault(key, ours)
        limited = ours.argument(_LIMIT) is not None
        before_limited = before.argument(_LIMIT) is not None
        chosen = ours if limited != before_limited and limited == reasoning else before
        always = before.priority is None or ours.priority is None
        kept[key] = replace(
            chosen, priority=None if always else min(before.priority or 0, ours.priority or 0)
        )
    return list(kept.values())


def _single(entry: Entry) -> Iterator[Entry]:
    """Yield an entry for each of the runs that it stands for."""
    for name, values in load_catalogue().several.items():
        given = entry.argument(name)
        if given in values:
            for value in values[given]:
                pairs = tuple(
                    (key, str(value) if key == name else argument)
                    for key, argument in entry.arguments
                )
                yield replace(entry, arguments=pairs)
            return
    yield entry
