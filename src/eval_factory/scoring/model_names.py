"""Compares the name of the requested model with the model name that an answer states."""

from __future__ import annotations

import re

from eval_factory.core.results import MODEL_ROLE, AskedEndpoint

_PROVIDER = re.compile(r"\A(?:[a-z]+\.)+(?=[a-z])")
# the revision of a repository (`org/model@refs/pr/1`); a name may begin with an @
_REVISION = re.compile(r"(.+?)@(.+)", re.DOTALL)
_DEPLOYED_VERSION = re.compile(r"-v\d+:\d+\Z")
_MONTH = "(?:0[1-9]|1[0-2])"
_DAY = "(?:0[1-9]|[12]\\d|3[01])"
_RELEASES = (
    rf"20\d\d-{_MONTH}-{_DAY}",
    rf"20\d\d{_MONTH}{_DAY}",
    rf"{_MONTH}-20\d\d",
    f"{_MONTH}{_DAY}",
    rf"2\d{_MONTH}",
    r"00\d",
    "latest",
)
_RELEASE = re.compile(rf"[-@:](?:{'|'.join(_RELEASES)})\Z")


def same_model(model: str, stated: str) -> bool:
    """Return True if the requested model and the model that an answer states can be the same.

    The comparison ignores case and any prefix of the model's own name (`openai/`, `us.anthropic.`).
    It ignores a release or a revision at the end (`-2024-08-06`, `@20250219`, `-0613`, `-002`) if
    only one of the two names has one. `-latest` and `@main` count as no release and no revision,
    because they move from model to model. Two different releases or revisions are two models.
    """
    if model == stated:
        return True
    name, *versions = _name_release_revision(model)
    stated_name, *stated_versions = _name_release_revision(stated)
    if not name or name != stated_name:
        return False
    for version, stated_version in zip(versions, stated_versions, strict=True):
        if version and stated_version and version != stated_version:
            return False
    return True


def _name_release_revision(model: str) -> tuple[str, str, str]:
    """Split a model's name into name, release and revision; an absent part is empty."""
    full_name = model.strip().casefold()
    parts = _REVISION.fullmatch(full_name)
    if parts is None:
        path = full_name
        revision = ""
    elif _RELEASE.fullmatch(f"@{parts[2]}"):
        path = f"{parts[1]}-{parts[2]}"
        revision = ""
    else:
        path = parts[1]
        revision = parts[2]
    name = _DEPLOYED_VERSION.sub("", _PROVIDER.sub("", path.rpartition("/")[2]))
    match = _RELEASE.search(name)
    release = ""
    if match is not None:
        name = name[: match.start()]
        release = match[0][1:]
    return name, _fixed(release), _fixed(revision)


def _fixed(version: str) -> str:
    """Return the version; an empty text if the version can move to another model."""
    if version in ("latest", "main"):
        return ""
    return version


def who_answered(role: str) -> str:
    """Return the words for the endpoint with this role, such as "judge judge_a"."""
    if role == MODEL_ROLE:
        return "the model"
    return f"judge {role}"


def what_was_stated(role: str, endpoint: AskedEndpoint) -> str:
    """Return in words how many answers state another model than requested, and which models."""
    other_models = []
    for name, count in endpoint.stated_models.items():
        if not same_model(endpoint.model, name):
            other_models.append(f"{name} ({count})")
    return (
        f"{who_answered(role)}: {endpoint.other_model} of {endpoint.answers} "
        f"answers state another model than {endpoint.model}, "
        f"which was requested: {', '.join(other_models)}"
    )
