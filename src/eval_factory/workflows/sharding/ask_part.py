"""One part of an evaluation, asked in an output folder of its own: whoever has all parts scores them elsewhere.

What the shards of one machine share, this part has for itself: its configuration says how much of the endpoint's limits
is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TextIO

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.core.errors import HelmError, NotReportableError
from eval_factory.core.shard_spec import DONE_FILE, ShardDone, ShardPart, ShardSpec
from eval_factory.executors.open_files import make_room
from eval_factory.plan.prices import prices_to_keep
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.context import hold
from eval_factory.workflows.evaluate import look_for_prerequisites, probe_all, raise_for_failure
from eval_factory.workflows.helm_run import run_helm
from eval_factory.workflows.options import Options
from eval_factory.workflows.prepare import prepare
from eval_factory.workflows.prepare_data import data_read, find_bundle, place_data, settings_of
from eval_factory.workflows.sharding.shard_folders import known_as, shard_command


def ask_part(
    request: Request, options: Options, part: ShardPart, *, env: Mapping[str, str], screen: TextIO
) -> ShardDone:
    """Ask it; the answers stand in the folder's cache.db, under the run of the whole.

    Raises:
        EvalFactoryError: as `evaluate` does.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    plan = make_plan(evaluation)
    argv = shard_command(plan, plan.model.parallelism, debug=options.debug)
    look_for_prerequisites(evaluation, plan)
    bundle = find_bundle(plan, env)
    with hold(plan, env, screen, debug=options.debug) as context:
        settings = replace(settings_of(plan, bundle, context.env), limits=options.limits)
        read = data_read(context, plan, bundle)
        prepare(context, plan, argv, settings, read.own, fresh=False, debug=options.debug)
        make_room(plan.model.parallelism * len(plan.endpoints))
        if options.probed is not None:
            settings = replace(settings, probed=options.probed)
        else:
            settings = replace(settings, probed=probe_all(context, plan.endpoints, options.limits))
        settings = replace(settings, prices=prices_to_keep(plan))
        place_data(context, plan, bundle)
        (plan.rundir.root / DONE_FILE).unlink(missing_ok=True)
        ShardSpec(part.index, part.of, part.run_id, known_as(plan, read), tuple(argv), ()).write(plan.rundir.root)
        raise_for_failure(context, plan, run_helm(context, evaluation, argv, settings, run_id=part.run_id))
    done = ShardDone.read(plan.rundir.root)
    if done is None:
        raise HelmError(f"helm-run ended without its part; its log: {plan.rundir.helm_log}")
    return done


def part_record(done: ShardDone) -> dict[str, Any]:
    """As the record of a run's end; what failed is a gap in the result of the whole."""
    gaps = f"{done.failed:,} requests of this part failed" if done.failed else None
    return {
        "event": "end",
        "exit_code": NotReportableError.exit_code if done.failed else 0,
        "status": "partial" if done.failed else "complete",
        "not_reportable": gaps,
        "error": None,
    }
