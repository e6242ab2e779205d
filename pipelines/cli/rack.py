"""`oncelake rack`: diagnose cross-rack traffic and how to reduce it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import Command, CommonOptions, LogFormat, common_options, output_option
from pipelines.cli.parameter_types import Finite
from pipelines.config.clusters import require_one_cluster
from pipelines.config.kafka import KafkaConfig
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.racks.advice import MODES
from pipelines.racks.topology import TopicReplicas
from pipelines.racks.traffic import RackTraffic
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.racks import (
    MeasuredTraffic,
    PlannedMoves,
    RackDiagnosis,
    diagnose_racks,
    measure_traffic,
    plan_moves,
)


def _racks(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, (value or "").split(","))))


def _common(command: Command) -> Command:
    return common_options(output_option(command))


@click.group()
def rack() -> None:
    """Measure cross-rack traffic, and plan how to reduce it."""


@rack.command()
@_common
@click.option(
    "--executors",
    callback=_racks,
    metavar="RACK,RACK,...",
    help="Rack of each executor; default: one executor in each rack of the brokers.",
)
@click.option("--gigabytes", type=Finite(min=0), help="GB read per month, for the bill.")
@click.option(
    "--price",
    type=Finite(min=0),
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

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_diagnosis(diagnose_racks(pipeline, executors, gigabytes, price))

    run_job(Job("rack doctor", body, check=_require_one_cluster), _local_options(common), output)


def summary_of_diagnosis(diagnosis: RackDiagnosis) -> dict[str, Any]:
    """Tell which share of the topic's bytes can stay within the rack.

    Args:
        diagnosis: What was found.

    Returns:
        `brokers` (id, rack, selector), `partitions` (number, racks where it can be read), `shares` by
        `kafka.rack.mode`, `mode` as configured, `hints`, with gigabytes a `bill`, and `lines`.
    """
    topic, advice = diagnosis.topic, diagnosis.advice
    summary: dict[str, Any] = {
        "topic": topic.name,
        "mode": diagnosis.mode,
        "executors": diagnosis.executors,
        "brokers": [
            {"id": number, "rack": rack, "selector": (topic.selectors or {}).get(number)}
            for number, rack in topic.racks.items()
        ],
        "partitions": [{"partition": number, "racks": racks} for number, racks in advice.near.items()],
        "shares": {each: round(share, 4) for each, share in advice.shares.items()},
        "hints": advice.hints,
    }
    if diagnosis.bill:
        summary["bill"] = {
            each: {"gigabytes": round(crossed, 3), "price": round(cost, 2)}
            for each, (crossed, cost) in diagnosis.bill.items()
        }
    return {**summary, "lines": _lines(summary, topic)}


def _lines(summary: dict[str, Any], topic: TopicReplicas) -> list[str]:
    executors = _words(summary["executors"])
    return [
        f"topic {topic.name}, {len(topic.partitions)} partitions; executors in {executors}",
        *(
            f"broker {broker['id']}: rack {broker['rack'] or 'not set'}, replica.selector.class"
            f" {'unknown' if topic.selectors is None else broker['selector'] or 'not set'}"
            for broker in summary["brokers"]
        ),
        *(
            f"partition {each['partition']}: can be read in {_words(each['racks']) or 'no rack'}"
            for each in summary["partitions"]
        ),
        *(
            f"kafka.rack.mode: {mode}: share within the rack {summary['shares'][mode]:.3f}"
            + ("; as configured" if mode == summary["mode"] else "")
            + _bill(summary, mode)
            for mode in MODES
        ),
        *(f"hint: {hint}" for hint in summary["hints"]),
    ]


def _bill(summary: dict[str, Any], mode: str) -> str:
    if "bill" not in summary:
        return ""
    bill = summary["bill"][mode]
    return f"; {bill['gigabytes']:,.0f} GB a month cross racks, for {bill['price']:,.2f}"


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
    """Plan the fewest replica moves that spread replicas over racks, for kafka-reassign-partitions."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_moves(pipeline.config.kafka, plan_moves(pipeline, out), out, throttle)

    run_job(Job("rack moves", body, check=_require_one_cluster), _local_options(common), output)


def summary_of_moves(
    kafka: KafkaConfig, planned: PlannedMoves, out: Path | None, throttle: int
) -> dict[str, Any]:
    """Tell what is to be moved, and how that is carried out.

    Args:
        kafka: The cluster.
        planned: The moves.
        out: The file that holds the plan; without it the plan itself is told.
        throttle: Bytes a second that moving may take.

    Returns:
        `moves`, how many partitions change; `plan`, in the format of `kafka-reassign-partitions`; `lines`.
    """
    topic, plan = planned.topic, planned.plan
    if not planned.moved:
        return {"moves": 0, "plan": plan, "lines": ["no moves: replicas are spread over racks already"]}
    before = {partition.number: partition.replicas for partition in topic.partitions}
    secured = " --command-config CLIENT.properties" if kafka.options or kafka.secrets else ""
    command = (
        f"kafka-reassign-partitions --bootstrap-server {kafka.bootstrap_servers}{secured}"
        f" --reassignment-json-file {out or 'PLAN.json'}"
    )
    lines = [
        *(
            f"{topic.name}-{each.number}: brokers {_words(before[each.number])} -> {_words(each.replicas)}"
            for each in planned.moved
        ),
        *(["the plan, to be saved in a file:", json.dumps(plan)] if out is None else []),
        "to run the plan, and to remove the throttle when it is done:",
        f"  {command} --execute --throttle {throttle}",
        f"  {command} --verify",
    ]
    return {"moves": len(planned.moved), "plan": plan, "lines": lines}


@rack.command()
@_common
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Maximum number of records to read.",
)
def measure(output: LogFormat | None, records: int, **common: Any) -> None:
    """Read the newest records as ingest does, store none, and count the bytes by rack."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_traffic(measure_traffic(pipeline, records))

    run_job(Job("rack measure", body, check=_require_racks), CommonOptions(**common), output)


def summary_of_traffic(measured: MeasuredTraffic) -> dict[str, Any]:
    """Tell from which racks the bytes came.

    Args:
        measured: What was measured.

    Returns:
        `counts`; `query_s`, seconds from the query's start to its end; `racks`, as `traffic_document` has it;
        `lines`.
    """
    racks = measured.racks
    lines = [
        f"{measured.records:,} records in {measured.seconds:.1f} s",
        *(
            f"{reader} read {count / 1e6:,.1f} MB from {server}"
            for reader, served in racks.received.items()
            for server, count in served.items()
        ),
    ]
    if not measured.records:
        lines.append("there was nothing to read")
    elif racks.share is None:
        lines.append("no executor has reported its bytes: is spark.plugins=oncelake.rack.RackPlugin set?")
    else:
        lines.append(f"within the rack: {racks.share:.3f}")
    counts = {"records": measured.records, "batches": measured.batches}
    return {
        "counts": counts,
        "query_s": round(measured.seconds, 3),
        "racks": traffic_document(racks),
        "lines": lines,
    }


def traffic_document(traffic: RackTraffic) -> dict[str, Any]:
    """Return what was read from which rack, as a document.

    Returns:
        `mode`; `bytes` by reading rack and serving rack; `share` of the bytes that stayed in the rack, None
        without bytes; `placement`: what the driver decided, if it did.
    """
    document = {"mode": traffic.mode, "bytes": traffic.received, "share": traffic.share}
    return document | ({"placement": traffic.placement} if traffic.placement else {})


def _local_options(common: dict[str, Any]) -> CommonOptions:
    """Return the options with a local master: questions to Kafka alone need no executors of a cluster."""
    return CommonOptions(**{**common, "settings": (*common["settings"], "spark.master=local[1]")})


def _require_one_cluster(config: PipelineConfig, contract: DataContract) -> None:
    require_one_cluster(config.kafka.clusters, "rack")


def _require_racks(config: PipelineConfig, contract: DataContract) -> None:
    _require_one_cluster(config, contract)
    if config.kafka.rack.executor_variable is None:
        raise ConfigError(
            "kafka.rack.mode: off, so executors would not count their bytes; add --set kafka.rack.mode=client"
            " or placement"
        )


def _words(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
