"""A suite as a visible list of steps."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from eval_factory.config.suite import Suite
from eval_factory.core.errors import EndpointUnreachableError, InterruptedRunError, NotReportableError
from eval_factory.core.redaction import Redactor
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.rundir import write_atomic
from eval_factory.endpoint.response_cache import read_roles
from eval_factory.report.documents import to_yaml
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.suite.cell_host import CellHost
from eval_factory.workflows.suite.cell_loop import CellLoop
from eval_factory.workflows.suite.cell_outcome import COMPLETE, worst_code
from eval_factory.workflows.suite.cell_process import SAFE_TO_FORK
from eval_factory.workflows.suite.endpoint_pauses import EndpointPauses
from eval_factory.workflows.suite.finished_cells import finished
from eval_factory.workflows.suite.planned_cells import PlannedCell, plan_cells
from eval_factory.workflows.suite.reuse import finished_below, source_for, take_over
from eval_factory.workflows.suite.suite_hold import held
from eval_factory.workflows.suite.suite_journal import (
    CELL_ENDED,
    SUITE_ENDED,
    SUITE_STARTED,
    SuiteJournal,
    cell_fields,
)
from eval_factory.workflows.suite.suite_observer import SuiteObserver
from eval_factory.workflows.suite.suite_options import CellReport, SuiteOptions, SuiteReport
from eval_factory.workflows.suite.suite_probe import Answer, EndpointProbe
from eval_factory.workflows.suite.suite_summary import summary_of
