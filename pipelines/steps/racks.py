"""Racks: what a pipeline's topic allows, what a read of it does, and how replicas would be spread better."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigError
from pipelines.kafka.admin import admin_client
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topics import end_offsets, find_topic, list_offsets
from pipelines.racks.advice import MODES, advise, crossing
from pipelines.racks.reassignment import reassignment, spread
from pipelines.racks.topology import RackedTopic, describe_racks
from pipelines.racks.traffic import RackTrafficMeter
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.streams import run_streams


def diagnose_racks(
    pipeline: Pipeline,
    executors: Sequence[str],
    gigabytes: float | None,
    price: float,
) -> dict[str, Any]:
    """Tell which share of the topic's bytes can be read within a rack, and what would raise it.

    Args:
        pipeline: The pipeline.
        executors: the rack of each executor; empty for one in each of the brokers' racks.
        gigabytes: that are read in a month, for the bill.
        price: of a gigabyte that crosses racks.

    Returns:
        `brokers` (id, rack, selector), `partitions` (number, racks where it can be read), `shares` by
        `kafka.rack.mode`, `mode` as configured, `hints`, with gigabytes a `bill`, and `lines` for people.

    Raises:
        ConfigError: there is no such topic.
        InfrastructureError: the cluster does not answer.
    """
    topic = describe_racks(pipeline.spark, pipeline.config.kafka)
    readers = list(executors) or sorted({rack for rack in topic.racks.values() if rack})
    mode = pipeline.config.kafka.rack.mode
    advice = advise(topic, readers, mode)
    found: dict[str, Any] = {
        "topic": topic.name,
        "mode": mode,
        "executors": readers,
        "brokers": [
            {"id": number, "rack": rack, "selector": (topic.selectors or {}).get(number)}
            for number, rack in topic.racks.items()
        ],
        "partitions": [{"partition": number, "racks": racks} for number, racks in advice.near.items()],
        "shares": {each: round(share, 4) for each, share in advice.shares.items()},
        "hints": advice.hints,
    }
    if gigabytes is not None and readers:
        bill = {each: crossing(share, gigabytes, price) for each, share in advice.shares.items()}
        found["bill"] = {
            each: {"gigabytes": round(crossed, 3), "price": round(cost, 2)}
            for each, (crossed, cost) in bill.items()
        }
    return {**found, "lines": _lines(found, topic)}


def plan_moves(pipeline: Pipeline, out: Path | None, throttle: int) -> dict[str, Any]:
    """Plan the fewest moves that spread replicas over racks, and change nothing.

    Args:
        pipeline: The pipeline.
        out: where the plan goes, for `kafka-reassign-partitions`; without it is only told.
        throttle: bytes a second that moving may take.

    Returns:
        `moves`: partitions that change; `plan`, in the tool's format; and `lines` for people.

    Raises:
        ConfigError: there is no such topic, brokers have no racks, or the plan cannot be written.
        InfrastructureError: the cluster does not answer.
    """
    config = pipeline.config
    topic = describe_racks(pipeline.spark, config.kafka)
    moved = spread(topic)
    plan = reassignment(topic.name, moved)
    if not moved:
        return {"moves": 0, "plan": plan, "lines": ["replicas are spread over racks as well as can be"]}
    before = {partition.number: partition.replicas for partition in topic.partitions}
    lines = [
        f"{topic.name}-{each.number}: brokers {_words(before[each.number])} -> {_words(each.replicas)}"
        for each in moved
    ]
    if out is None:
        lines += ["the plan, for a file of your own:", json.dumps(plan)]
    else:
        try:
            out.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out}: the plan cannot be written: {error.strerror}") from None
    secured = " --command-config CLIENT.properties" if config.kafka.options or config.kafka.secrets else ""
    command = (
        f"kafka-reassign-partitions --bootstrap-server {config.kafka.bootstrap_servers}{secured}"
        f" --reassignment-json-file {out or 'PLAN.json'}"
    )
    lines += ["to carry it out, and to end the throttle when it is done:"]
    lines += [f"  {command} --execute --throttle {throttle}", f"  {command} --verify"]
    return {"moves": len(moved), "plan": plan, "lines": lines}


def measure_traffic(pipeline: Pipeline, records: int) -> dict[str, Any]:
    """Read the newest records of the topic as ingest would, keep none, and count bytes by rack.

    Args:
        pipeline: The pipeline.
        records: how many to read at most.

    Returns:
        `counts`; `query_s`, seconds from the query's start to its end; `racks`, as
        `pipelines.racks.traffic.RackTrafficMeter` has it; and `lines` for people.

    Raises:
        ConfigError: there is no such topic.
        SourceError: records are gone before they could be read.
        InfrastructureError: the cluster does not answer.
    """
    spark, config = pipeline.spark, pipeline.config
    topic = find_topic(spark, config.kafka)
    reading = RackTrafficMeter(spark, config.kafka)
    ends = end_offsets(spark, config.kafka, topic)
    with admin_client(spark, config.kafka) as admin:
        earliest = list_offsets(admin, topic, "earliest")
    each = -(-records // max(len(ends), 1))
    starts = {str(number): max(end - each, earliest[number]) for number, end in ends.items()}
    source = read_envelopes(spark, config.kafka, starting=json.dumps({topic.name: starts}))
    with tempfile.TemporaryDirectory(prefix="oncelake-rack-") as checkpoint:
        writer = source.writeStream.queryName("measure").format("noop")
        # The driver's own disk, whatever file system the cluster takes for granted.
        writer = writer.option("checkpointLocation", Path(checkpoint).as_uri()).trigger(availableNow=True)
        began = time.monotonic()
        totals = run_streams(spark, lambda: [writer.start()])["measure"]
        seconds = time.monotonic() - began
    racks = reading.summary(totals.source)
    lines = [f"{totals.records:,} records in {seconds:.1f} s"]
    lines += [
        f"{reader} read {count / 1e6:,.1f} MB from {server}"
        for reader, served in racks["bytes"].items()
        for server, count in served.items()
    ]
    if not totals.records:
        lines.append("there was nothing to read")
    elif racks["share"] is None:
        lines.append("no executor has told its bytes: is spark.plugins=oncelake.rack.RackPlugin set?")
    else:
        lines.append(f"within the rack: {racks['share']:.3f}")
    counts = {"records": totals.records, "batches": totals.batches}
    return {"counts": counts, "query_s": round(seconds, 3), "racks": racks, "lines": lines}


def _lines(found: dict[str, Any], topic: RackedTopic) -> list[str]:
    lines = [
        f"topic {topic.name}, {len(topic.partitions)} partitions; executors in {_words(found['executors'])}"
    ]
    lines += [
        f"broker {broker['id']}: rack {broker['rack'] or 'not set'}, replica.selector.class"
        f" {'may not be asked for' if topic.selectors is None else broker['selector'] or 'not set'}"
        for broker in found["brokers"]
    ]
    lines += [
        f"partition {each['partition']}: can be read in {_words(each['racks']) or 'no rack'}"
        for each in found["partitions"]
    ]
    lines += [
        f"kafka.rack.mode: {each}: share within the rack {found['shares'][each]:.3f}"
        + ("; as configured" if each == found["mode"] else "")
        + _bill(found, each)
        for each in MODES
    ]
    return lines + [f"hint: {hint}" for hint in found["hints"]]


def _bill(found: dict[str, Any], mode: str) -> str:
    if "bill" not in found:
        return ""
    bill = found["bill"][mode]
    return f"; {bill['gigabytes']:,.0f} GB a month cross racks, for {bill['price']:,.2f}"


def _words(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items))
