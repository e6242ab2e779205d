"""`oncelake rack`: what crosses racks or zones, why, and what would end it."""

import math
from pathlib import Path
from typing import Any

import click

from pipelines.cli.options import Command, CommonOptions, LogFormat, common_options
from pipelines.cli.running import run_job
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.steps import racks as step

_FORMAT = click.option(
    "--format", "output", type=click.Choice(["text", "json"]), help="As --log-format if not given."
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
    """See what crosses racks or zones, why, and what would end it."""


@rack.command()
@_common
@click.option(
    "--executors",
    callback=_racks,
    metavar="RACK,RACK,...",
    help="The rack of each executor; one in each rack of the brokers if not given.",
)
@click.option(
    "--gigabytes", type=click.FloatRange(min=0), callback=_finite, help="Read in a month, for the bill."
)
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    callback=_finite,
    default=0.02,
    show_default=True,
    help="Of a gigabyte that crosses, both directions together.",
)
def doctor(
    output: LogFormat | None,
    executors: tuple[str, ...],
    gigabytes: float | None,
    price: float,
    **common: Any,
) -> None:
    """Tell which share of the bytes can stay in the rack, with the replicas of now, and what raises it."""
    run_job(
        "rack doctor",
        _beside(common),
        lambda spark, config, contract, run_id: step.doctor(spark, config, executors, gigabytes, price),
        output=output,
    )


@rack.command()
@_common
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where the plan goes, as JSON.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    default=50_000_000,
    show_default=True,
    help="Bytes a second that moving may take.",
)
def moves(output: LogFormat | None, out: Path | None, throttle: int, **common: Any) -> None:
    """Plan the fewest moves that spread replicas over racks, for kafka-reassign-partitions."""
    run_job(
        "rack moves",
        _beside(common),
        lambda spark, config, contract, run_id: step.plan_moves(spark, config, out, throttle),
        output=output,
    )


@rack.command()
@_common
@click.option("--records", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="At most.")
def measure(output: LogFormat | None, records: int, **common: Any) -> None:
    """Read the newest records as ingest would, keep none, and count the bytes by rack."""
    run_job(
        "rack measure",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: step.measure(spark, config, records),
        check=_require_racks,
        output=output,
    )


def _beside(common: dict[str, Any]) -> CommonOptions:
    """Questions to Kafka alone need no executors, so no cluster is troubled for them."""
    return CommonOptions(**{**common, "settings": (*common["settings"], "spark.master=local[1]")})


def _require_racks(config: PipelineConfig, contract: DataContract) -> None:
    if config.kafka.rack.mode == "off":
        raise ConfigError(
            "kafka.rack.mode: off, so executors would not count their bytes; add --set kafka.rack.mode=client"
            " or placement"
        )
