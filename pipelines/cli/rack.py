"""`oncelake rack`: diagnose cross-rack traffic and how to reduce it."""

import math
from pathlib import Path
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import Command, CommonOptions, LogFormat, common_options
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.steps import racks as step

_FORMAT = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    help="Default: that of --log-format.",
)


def _racks(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, (value or "").split(","))))


def _finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"expected a number, got {value}")
    return value


def _common(command: Command) -> Command:
    return common_options(_FORMAT(command))


@click.group()
def rack() -> None:
    """Diagnose cross-rack traffic and how to reduce it."""


@rack.command()
@_common
@click.option(
    "--executors",
    callback=_racks,
    metavar="RACK,RACK,...",
    help="Rack of each executor; default: one executor in each rack of the brokers.",
)
@click.option(
    "--gigabytes", type=click.FloatRange(min=0), callback=_finite, help="GB read per month, for the bill."
)
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    callback=_finite,
    default=0.02,
    show_default=True,
    help="Price per cross-rack GB, both directions combined.",
)
def doctor(
    output: LogFormat | None,
    executors: tuple[str, ...],
    gigabytes: float | None,
    price: float,
    **common: Any,
) -> None:
    """Show the share of bytes that can stay within the rack, and how to raise it."""
    run_job(
        Job(
            "rack doctor", lambda pipeline, run_id: step.diagnose_racks(pipeline, executors, gigabytes, price)
        ),
        _beside(common),
        output,
    )


@rack.command()
@_common
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File for the plan, as JSON.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    default=50_000_000,
    show_default=True,
    help="Maximum bytes per second for the moves.",
)
def moves(output: LogFormat | None, out: Path | None, throttle: int, **common: Any) -> None:
    """Plan the fewest replica moves that spread replicas over racks (kafka-reassign-partitions)."""
    run_job(
        Job("rack moves", lambda pipeline, run_id: step.plan_moves(pipeline, out, throttle)),
        _beside(common),
        output,
    )


@rack.command()
@_common
@click.option("--records", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="At most.")
def measure(output: LogFormat | None, records: int, **common: Any) -> None:
    """Read the newest records as ingest does, store none, and count the bytes per rack."""
    run_job(
        Job(
            "rack measure",
            lambda pipeline, run_id: step.measure_traffic(pipeline, records),
            check=_require_racks,
        ),
        CommonOptions(**common),
        output,
    )


def _beside(common: dict[str, Any]) -> CommonOptions:
    """Return questions to Kafka alone need no executors, so no cluster is troubled for them."""
    return CommonOptions(**{**common, "settings": (*common["settings"], "spark.master=local[1]")})


def _require_racks(config: PipelineConfig, contract: DataContract) -> None:
    if config.kafka.rack.executor_variable is None:
        raise ConfigError(
            "kafka.rack.mode: off, so executors would not count their bytes; add --set kafka.rack.mode=client"
            " or placement"
        )
