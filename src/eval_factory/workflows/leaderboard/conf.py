"""Where a leaderboard's conf is from: a file, a data bundle, or HELM's repository at the tag of the installed HELM."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.workflows.leaderboard.registry import Leaderboard, helm_version

BUNDLE_FOLDER = "presentation"
ADDRESS = "https://raw.githubusercontent.com/stanford-crfm/helm/v{version}/src/helm/benchmark/presentation/{conf}"
TIMEOUT_S = 20.0


def conf_of(
    row: Leaderboard, *, file: Path | None, data_dir: Path | None, look_only: bool = False
) -> tuple[str | None, str]:
    """Text of the conf and where it is from.

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

    hint = "have it in a file and give that with --conf FILE (or --data_dir DIR, with DIR/presentation/)"
    try:
        reply = requests.get(address, timeout=TIMEOUT_S)
        reply.raise_for_status()
        return reply.text
    except requests.RequestException as error:
        status = error.response.status_code if error.response is not None else None
        reason = f"HTTP {status}" if status else type(error).__name__
        raise PrerequisiteError(
            f"the leaderboard's conf cannot be downloaded: {reason} from {address}\n  {hint}"
        ) from None
