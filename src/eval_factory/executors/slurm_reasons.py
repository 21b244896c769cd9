"""Why a task waits: whether it can ever start, and what it waits for in plain words. Pure.

The names are those of squeue's `%r` (https://slurm.schedmd.com/job_reason_codes.html; Slurm 22.05's own list).
"""

from __future__ import annotations

import re

NEVER = frozenset(
    {
        "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
        "JobHoldMaxRequeue", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed",
        "ReservationDeleted", "launch_failed_requeued_held", "job_requeued_in_held_state",
    }
)  # fmt: skip
"""What one task asks for is not to be had, or Slurm itself has given up: nothing but another request helps."""
_ONE_TASK_ALONE = re.compile(r"(QOS|Assoc)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+")
"""Limits of a single job. Those of a user, an account or a group (`PerUser`, `Grp`) are free again when others end."""
_WORDS = {
    "BeginTime": "its time to start has not come; Slurm waits two minutes where a task could not start",
    "Cleaning": "it is put back into the queue after a lost node",
    "JobHeldAdmin": "an administrator holds it, and has to release it",
    "JobHeldUser": "you hold it: scontrol release {job} lets it go on",
    "Licenses": "licenses that others use",
    "NodeDown": "a node that is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "Priority": "others come first",
    "Prolog": "its node is made ready",
    "ReqNodeNotAvail": "its nodes are down, drained or reserved",
    "Resources": "nodes that others use",
}
_LIMITS = re.compile(r"(QOS|Assoc|Max)\w*")
OWN = frozenset({"", "None", "JobArrayTaskLimit"})
"""Nothing is said yet, or the suite's own `tasks_at_once` has been reached."""


def can_never_start(reason: str) -> bool:
    """Whether a task that waits for this has to be submitted in another way. What is held may be released: it waits."""
    name = _name(reason).replace(" ", "_")
    return name in NEVER or _ONE_TASK_ALONE.fullmatch(name) is not None


def in_words(reason: str, job: str) -> str:
    """`Priority: others come first`; Slurm's own words where there are no plainer ones."""
    name = _name(reason)
    found = _WORDS.get(name.partition(",")[0])
    if found is None and _LIMITS.fullmatch(name):
        found = "a limit of the account or QOS, until other jobs have ended"
    return name if found is None else f"{name}: {found.format(job=job)}"


def _name(reason: str) -> str:
    return reason.strip().strip("()")
