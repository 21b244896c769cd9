"""`leaderboards.yml`, checked; where HELM's wheel keeps the schema of each, and where its run entries are."""

from __future__ import annotations

import importlib.util
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from eval_factory.config.model import Positive, Role
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.strict_model import StrictModel

FILE_NAME = "leaderboards.yml"
ORGANIZATION = "{organization}"
STATIC_FOLDER = ("benchmark", "static")
BUNDLE_FOLDER = "presentation"
ADDRESS = "https://raw.githubusercontent.com/stanford-crfm/helm/v{version}/src/helm/benchmark/presentation/{conf}"
TIMEOUT_S = 20.0


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
    lacks: str | None = None
    """What every entry asks of a model and an endpoint for text does not have."""
    leaves_out: str | None = None
    """The same of some entries."""
    needs: tuple[str, ...] = ()
    judges: dict[Role, str] = {}
    """Role of a judge -> the name that HELM asks it by."""

    @property
    def names_no_organization(self) -> bool:
        """Whether the conf's name still waits for an organization."""
        return ORGANIZATION in self.conf

    def needed(self) -> list[str]:
        """All that a text endpoint alone cannot give, a line each."""
        lines = [f"{self.lacks}: it cannot be run with an endpoint for text"] if self.lacks else []
        if self.leaves_out:
            lines.append(f"{self.leaves_out} for some entries: they are left out")
        lines += self.needs
        if self.judges:
            models = ", ".join(name.partition("/")[2] for name in self.judges.values())
            lines.append(f"HELM's own judges: {models}, asked at the model's URL or as extra.judges says")
        if schema_path(self) is None:
            lines.append(f"{self.schema_file}: HELM {helm_version()} does not have it")
        return lines


class Catalogue(StrictModel):
    """The whole file."""

    output_dir: str
    """Where results go unless the user says: {name} is the leaderboard's."""
    leaderboards: tuple[Leaderboard, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Read and check the file once per process."""
    text = (resources.files("eval_factory.workflows.leaderboard") / FILE_NAME).read_text(encoding="utf-8")
    return Catalogue.model_validate(parse_own(text))


def find(name: str) -> Leaderboard:
    """The leaderboard of that name; an organization's name may follow `medhelm_private`.

    Raises:
        ConfigError: there is none.
    """
    wanted = name.lower().replace("-", "_").replace(".", "_")
    known = {row.name: row for row in load_catalogue().leaderboards}
    if wanted in known:
        return known[wanted]
    for row in known.values():
        organization = wanted.removeprefix(f"{row.name}_")
        if row.names_no_organization and organization != wanted and organization.replace("_", "").isalnum():
            return row.model_copy(update={"name": wanted, "conf": row.conf.replace(ORGANIZATION, organization)})
    near = get_close_matches(wanted, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ConfigError(f"no leaderboard is called {name!r}\n  {hint} ('eval-factory leaderboard ls' lists them)")


def helm_version() -> str:
    try:
        return metadata.version("crfm-helm")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def schema_path(row: Leaderboard) -> Path | None:
    """The schema in the installed HELM, which is not imported; None where it does not have it."""
    spec = importlib.util.find_spec("helm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder).joinpath(*STATIC_FOLDER, row.schema_file)
        if path.is_file():
            return path
    return None


def conf_of(
    row: Leaderboard, *, file: Path | None, data_dir: Path | None, look_only: bool = False
) -> tuple[str | None, str]:
    """Text of the conf and where it is from: a file, a data bundle, or HELM's repository at the installed tag.

    Args:
        look_only: download nothing; the text is None where the conf is not on this machine.

    Raises:
        ConfigError: the file cannot be read, or the organization is not named.
        PrerequisiteError: it is not in the bundle, or cannot be downloaded.
    """
    if file is not None:
        return _read(file), str(file)
    if row.names_no_organization:
        raise ConfigError(
            f"{row.name}: whose benchmarks? Name the organization ({row.name}_stanford), or give the conf with --conf"
        )
    if data_dir is not None:
        bundled = data_dir / BUNDLE_FOLDER / row.conf
        if not bundled.is_file():
            raise PrerequisiteError(
                f"{bundled} is not there\n  with a network: eval-factory data pull leaderboards --to {data_dir};"
                f" or give {row.conf} of HELM's repository with --conf FILE"
            )
        return _read(bundled), str(bundled)
    address = ADDRESS.format(version=helm_version(), conf=row.conf)
    return None if look_only else _download(address), address


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _download(address: str) -> str:
    import requests  # imported here: it is slow, and seldom needed

    try:
        reply = requests.get(address, timeout=TIMEOUT_S)
        reply.raise_for_status()
        return reply.text
    except requests.RequestException as error:
        status = error.response.status_code if error.response is not None else None
        reason = f"HTTP {status}" if status else type(error).__name__
        raise PrerequisiteError(
            f"the leaderboard's conf cannot be downloaded: {reason} from {address}\n"
            "  have it in a file and give that with --conf FILE (or --data_dir DIR, with DIR/presentation/)"
        ) from None
