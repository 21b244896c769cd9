from __future__ import annotations

import pytest

from eval_factory.executors.slurm import can_never_start, reason_in_words

NEVER = (
    "BadConstraints", "PartitionConfig", "(PartitionTimeLimit)", "InvalidQOS", "AccountNotAllowed",
    "launch failed requeued held", "job requeued in held state", "JobHoldMaxRequeue", "ReservationDeleted",
    "QOSMaxCpuPerJobLimit", "QOSMaxGRESPerNode", "QOSMaxWallDurationPerJobLimit", "QOSMaxMemoryMinutesPerJob",
    "AssocMaxCpuPerJobLimit", "AssocMaxMemPerNode", "QOSMinCpuNotSatisfied", "QOSMinGRES",
)  # fmt: skip
"""What one task asks for and cannot have."""
PERHAPS = (
    "Resources", "Priority", "None", "", "JobArrayTaskLimit", "JobHeldUser", "JobHeldAdmin", "PartitionDown",
    "ReqNodeNotAvail, UnavailableNodes:n1", "QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "QOSGrpCpuLimit",
    "AssocGrpGRES", "AssocMaxJobsLimit", "MaxGRESPerAccount", "QOSMaxGRESPerUser", "Dependency", "BeginTime",
)  # fmt: skip
"""What others or somebody may give free."""


@pytest.mark.parametrize("reason", [*NEVER, *PERHAPS])
def test_what_can_never_start(reason: str) -> None:
    assert can_never_start(reason) is (reason in NEVER)


@pytest.mark.parametrize(("reason", "expected"), [
    ("(Priority)", "Priority: others come first"),
    ("JobHeldUser", "JobHeldUser: you hold it: scontrol release 7_2 lets it go on"),
    ("ReqNodeNotAvail, UnavailableNodes:n1", "ReqNodeNotAvail, UnavailableNodes:n1: its nodes are down, drained or reserved"),
    ("QOSGrpCpuLimit", "QOSGrpCpuLimit: a limit of the account or QOS, until other jobs have ended"),
    ("MaxGRESPerAccount", "MaxGRESPerAccount: a limit of the account or QOS, until other jobs have ended"),
    ("BurstBufferStageIn", "BurstBufferStageIn"),
])  # fmt: skip
def test_what_is_waited_for(reason: str, expected: str) -> None:
    assert reason_in_words(reason, "7_2") == expected
