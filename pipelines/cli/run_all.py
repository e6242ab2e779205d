"""Runs a job for every pipeline of an environment, one after the other; none stops the others."""

import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, NoReturn

from pipelines.cli.job_runner import (
    ArgumentCheck,
    Job,
    StopRequest,
    print_summary,
    run_pipeline,
    set_up_logging,
)
from pipelines.cli.options import CommonOptions
from pipelines.cli.terminal import print_error
from pipelines.config.loader import require_pipelines
from pipelines.config.model import SparkConfig
from pipelines.errors import AuditFailed, ConfigError, OncelakeError, SourceError
from pipelines.spark.session import end_application, forget_tables, is_submitted, stop_session

# The first of these that a pipeline ended with is the exit code of all.
GRAVEST_FIRST: Final = (
    AuditFailed.exit_code,
    ConfigError.exit_code,
    SourceError.exit_code,
    OncelakeError.exit_code,
    0,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Planned:
    """A pipeline, and the Spark settings that it wants; none if it will be refused."""

    options: CommonOptions
    spark: SparkConfig | None


def run_all(job: Job, common: dict[str, Any]) -> NoReturn:
    """Run a job for every pipeline and leave the process with the gravest exit code.

    Pipelines that are refused come first, so that a mistake is reported before anything starts. Those that
    want the same Spark settings share an application; where the settings change, and after an unexpected
    error, the next pipeline gets a new one with a Java of its own.

    Args:
        job: The job.
        common: What the user said, as `CommonOptions` takes it, without the pipeline.
    """
    log_format = common["log_format"]
    set_up_logging(log_format)
    stop_request, began = StopRequest(), time.monotonic()
    summary: dict[str, Any] = {
        "job": job.name,
        "pipelines": [],
        "env": common["env"],
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        planned = _plan(common, job.check)
        _require_one_application(planned)
    except ConfigError as error:
        if log_format == "text":
            print_error(str(error))
        summary |= {"status": "failed", "error": str(error), "exit_code": error.exit_code}
    else:
        for ended in _run(job, planned, stop_request):
            summary["pipelines"].append(ended)
            if log_format == "text":
                print_summary(ended, log_format)
        summary |= _together(summary["pipelines"])
    stop_session()
    summary["duration_s"] = round(time.monotonic() - began, 3)
    print_summary({**summary, "pipeline": "--all"} if log_format == "text" else summary, log_format)
    sys.exit(summary["exit_code"])


def _plan(common: dict[str, Any], check: ArgumentCheck | None) -> list[_Planned]:
    names = require_pipelines(common["conf_dir"], common["env"])
    planned = [_planned(CommonOptions(pipeline=name, **common), check) for name in names]
    return sorted(planned, key=lambda one: one.spark is not None)


def _planned(options: CommonOptions, check: ArgumentCheck | None) -> _Planned:
    try:
        config, contract = options.load()
        if check:
            check(config, contract)
    except Exception:  # noqa: BLE001 - the others have their turn, whatever is wrong with this one
        # It is reported when its turn comes, which is at once.
        return _Planned(options, None)
    return _Planned(options, config.spark)


def _require_one_application(planned: list[_Planned]) -> None:
    on_spark = [one for one in planned if one.spark]
    for one, other in pairwise(on_spark) if is_submitted() else ():
        if one.spark != other.spark:
            raise ConfigError(
                f"spark: the settings of {one.options.pipeline} and {other.options.pipeline} differ, but"
                " under spark-submit all pipelines of --all run in one application; make the settings equal,"
                " or submit each pipeline with --pipeline"
            )


def _run(job: Job, planned: list[_Planned], stop_request: StopRequest) -> Iterator[dict[str, Any]]:
    last: SparkConfig | None = None
    for number, one in enumerate(planned, start=1):
        _log.info("pipeline %s, %d of %d", one.options.pipeline, number, len(planned))
        if last and one.spark != last:
            end_application()
        ended = run_pipeline(job, one.options, stop_request)
        last = one.spark
        if (ended["status"], ended["exit_code"]) == ("failed", OncelakeError.exit_code):
            # Whatever it was, it is not passed on: a Java without memory fails the next one, too.
            end_application()
            last = None
        forget_tables()
        yield ended


def _together(ended: list[dict[str, Any]]) -> dict[str, Any]:
    states = [one["status"] for one in ended]
    return {
        "status": next((state for state in ("stopped", "failed") if state in states), "done"),
        "counts": {
            "pipelines": len(ended),
            **{f"pipelines_{state}": states.count(state) for state in ("done", "failed", "stopped")},
        },
        "exit_code": min((one["exit_code"] for one in ended), key=GRAVEST_FIRST.index),
    }
