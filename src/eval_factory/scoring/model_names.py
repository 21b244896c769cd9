"""Compares the name of the requested model with the model name that a response states."""

from __future__ import annotations

import re
from typing import NamedTuple

from eval_factory.core.results import MODEL_ROLE, AskedEndpoint

OTHER_MODEL_STATED = "state another model than"
"""The words of a reason or note about answers that state another model than requested."""
_PROVIDER = re.compile(r"\A(?:[a-z]+\.)+(?=[a-z])")  # `us.anthropic.` before `claude`
# the revision of a repository (`org/model@refs/pr/1`); a name may begin with an @
_REVISION = re.compile(r"(.+?)@(.+)", re.DOTALL)
_DEPLOYED_VERSION = re.compile(r"-v\d+:\d+\Z")  # `-v1:0`, as Amazon Bedrock writes it
_MONTH = "(?:0[1-9]|1[0-2])"
_DAY = "(?:0[1-9]|[12]\\d|3[01])"
# the forms of a release; the longer forms come first
_RELEASES = (
    rf"20\d\d-{_MONTH}-{_DAY}",  # 2024-08-06
    rf"20\d\d{_MONTH}{_DAY}",  # 20250219
    rf"{_MONTH}-20\d\d",  # 08-2024
    f"{_MONTH}{_DAY}",  # 0613
    rf"2\d{_MONTH}",  # 2407, a year and a month
    r"00\d",  # 002
    "latest",
)
_RELEASE = re.compile(rf"[-@:](?:{'|'.join(_RELEASES)})\Z")


def same_model(model: str, stated: str) -> bool:
    """Return True if the requested model and the model that a response states may be the same.

    The comparison ignores case, any prefix of the model's own name (`openai/`, `us.anthropic.`) and
    a deployed version (`-v1:0`). A release (`-2024-08-06`, `@20250219`, `-0613`, `-002`) is ignored
    if only one of the two names has a release. A revision (`@refs/pr/1`) is ignored if only one of
    the two names has a revision. `-latest` and `@main` do not count as release or revision, because
    the model behind these names changes. Names with two different releases or revisions are two
    models.

    Args:
        model: the name of the requested model.
        stated: the name of the model that the response states.
    """
    if model == stated:
        return True
    parts = _parts_of(model)
    stated_parts = _parts_of(stated)
    if not parts.name or parts.name != stated_parts.name:
        return False
    has_other_release = _differ(parts.release, stated_parts.release)
    has_other_revision = _differ(parts.revision, stated_parts.revision)
    return not has_other_release and not has_other_revision


def _differ(version: str, stated_version: str) -> bool:
    """Return True if two releases or revisions are stated, and differ."""
    if not version or not stated_version:
        return False
    return version != stated_version


class _NameParts(NamedTuple):
    """The parts of a model's name; an absent part is empty."""

    name: str  # the model's own name
    release: str
    revision: str


def _parts_of(model: str) -> _NameParts:
    """Split a model's name into its parts."""
    full_name = model.strip().casefold()
    with_revision = _REVISION.fullmatch(full_name)
    if with_revision is None:
        path = full_name
        revision = ""
    elif _RELEASE.fullmatch(f"@{with_revision[2]}"):
        # `model@20250219` is the release `model-20250219`, not a revision.
        path = f"{with_revision[1]}-{with_revision[2]}"
        revision = ""
    else:
        path = with_revision[1]
        revision = with_revision[2]
    _, _, name = path.rpartition("/")
    name = _PROVIDER.sub("", name)
    name = _DEPLOYED_VERSION.sub("", name)
    match = _RELEASE.search(name)
    release = ""
    if match is not None:
        name = name[: match.start()]
        release = match[0][1:]  # without the separator before the release
    return _NameParts(name, _fixed_version(release), _fixed_version(revision))


def _fixed_version(version: str) -> str:
    """Return the version; an empty text if the version may stand for another model tomorrow."""
    if version in ("latest", "main"):
        return ""
    return version


def noun_for_role(role: str) -> str:
    """Return a noun for the endpoint with this role: "the model", or "judge judge_a"."""
    if role == MODEL_ROLE:
        return "the model"
    return f"judge {role}"


def sentence_on_stated_models(role: str, endpoint: AskedEndpoint) -> str:
    """Return a sentence on the answers that state another model than requested.

    The sentence contains the number of these answers, and each stated model with its own number.
    """
    other_models = []
    for name, count in endpoint.stated_models.items():
        if not same_model(endpoint.model, name):
            other_models.append(f"{name} ({count})")
    return (
        f"{noun_for_role(role)}: {endpoint.other_model} of {endpoint.answers} "
        f"answers {OTHER_MODEL_STATED} {endpoint.model}, "
        f"which was requested: {', '.join(other_models)}"
    )
