from __future__ import annotations

import pytest

from eval_factory.executors.slurm import can_never_start

NEVER = (
    "BadConstraints",
    "PartitionConfig",
    "(PartitionTimeLimit)",
    "InvalidQOS",
    "AccountNotAllowed",
    "launch failed requeued held",
    "job requeued in held state",
    "JobHoldMaxRequeue",
    "ReservationDeleted",
    "QOSMaxCpuPerJobLimit",
    "QOSMaxGRESPerNode",
    "QOSMaxWallDurationPerJobLimit",
    "QOSMaxMemoryMinutesPerJob",
    "AssocMaxCpuPerJobLimit",
    "AssocMaxMemPerNode",
    "QOSMinCpuNotSatisfied",
    "QOSMinGRES",
)
"""What one task asks for and cannot have."""
PERHAPS = (
    "Resources",
    "Priority",
    "None",
    "",
    "JobArrayTaskLimit",
    "JobHeldUser",
    "JobHeldAdmin",
    "PartitionDown",
    "ReqNodeNotAvail, UnavailableNodes:n1",
    "QOSMaxJobsPerUserLimit",
    "QOSMaxCpuPerUserLimit",
    "QOSGrpCpuLimit",
    "AssocGrpGRES",
    "AssocMaxJobsLimit",
    "MaxGRESPerAccount",
    "QOSMaxGRESPerUser",
    "Dependency",
    "BeginTime",
)
"""What others or somebody may give free."""


@pytest.mark.parametrize("reason", [*NEVER, *PERHAPS])
def test_what_can_never_start(reason: str) -> None:
    assert can_never_start(reason) is (reason in NEVER)
