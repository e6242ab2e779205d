"""The pieces of work that are measured."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import decoding
from benchmarks.checks import (
    check_avro,
    check_batch,
    check_both,
    check_bronze,
    check_copy,
    check_json,
    check_month,
    check_raw,
    check_served,
    check_speed,
)
from benchmarks.events import DAY
from benchmarks.given import Work, WrongResult
from benchmarks.kafka_output import (
    check_published,
    check_sent,
    check_sent_by_rows,
    make_topics,
    publish_once,
    send_by_rows,
    send_by_spark,
)
from benchmarks.month import DAYS, come_late, copy, fill_month, month, repair, serve
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.io import read, small_rows
from pipelines.delta.record_tables import ensure_bronze
from pipelines.spark.streams import Trigger, each_batch
from pipelines.steps.ingest import IngestJob, ingest
from pipelines.steps.nightly import nightly
from pipelines.steps.speed import speed


def raw_append(work: Work) -> None:
    """Run the reference: Kafka -> Delta as Spark alone does it, with the defaults of both."""
    kafka = work.pipeline.config.kafka
    reader = work.pipeline.spark.readStream.format("kafka").option(
        "kafka.bootstrap.servers", kafka.bootstrap_servers
    )
    reader = reader.option("subscribe", kafka.topic).option("startingOffsets", "earliest")
    if kafka.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", kafka.max_offsets_per_trigger)
    writer = reader.load().writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{work.pipeline.config.root}/raw_checkpoint")
    writer.start(f"{work.pipeline.config.root}/raw").awaitTermination()


def ingest_once(work: Work) -> None:
    """Kafka -> bronze."""
    ingest(work.pipeline, once=True)


def speed_once(work: Work) -> None:
    """Bronze -> speed layer and quarantine."""
    speed(work.pipeline, once=True)


def speed_until_drained(work: Work) -> None:
    """Run the speed job as it runs in production, while another process fills bronze."""
    _stop_when_drained(work)
    speed(work.pipeline, once=False)


def together(work: Work) -> None:
    """Ingest and speed at once, in one application, until both have taken everything."""
    ensure_bronze(work.pipeline)
    writer = IdempotentWriter(work.pipeline.table("bronze"), None)
    job = IngestJob(work.pipeline, writer, once=True)
    trigger = Trigger(once=True, interval=work.pipeline.config.ingest.trigger_interval)
    checkpoint = work.pipeline.checkpoint("ingest")
    filling = each_batch(job.plan(), job.write, name="ingest", checkpoint=checkpoint, trigger=trigger)
    _stop_when_drained(work)
    speed(work.pipeline, once=False)
    filling.awaitTermination()


def rebuild(work: Work) -> None:
    """Run the nightly run of the one day that all events lie on: build, audit, certification."""
    nightly(work.pipeline, "benchmark", [DAY])


def steps(work: Work) -> list[dict[str, Any]]:
    """Return what the last nightly run has recorded of its four steps: `step`, `seconds`, `detail`."""
    rows = small_rows(read(work.pipeline.spark, work.pipeline.ops_table("runs")).orderBy("started_at"))
    return [
        {
            "step": row["step"],
            "seconds": round((row["ended_at"] - row["started_at"]).total_seconds(), 1),
            "detail": row["detail"],
        }
        for row in rows[-4:]
    ]


def built_at(work: Work) -> float:
    """Return when the rebuild had written the day, before its audit; seconds since the epoch."""
    history = DeltaTable.forPath(work.pipeline.spark, work.pipeline.table("batch")).history()
    row = history.where("userMetadata LIKE 'build benchmark%'").select(F.unix_millis("timestamp")).first()
    if row is None:
        raise WrongResult("the rebuild has committed nothing")
    return float(row[0]) / 1000


def scan(work: Work) -> None:
    """Read bronze and drop its bytes: what decoding is held against."""
    _drop(decoding.read_bytes(work.pipeline))


def decode_json(work: Work) -> None:
    """Decode bronze, and drop the events."""
    _drop(decoding.from_json(work.pipeline))


def decode_avro(work: Work) -> None:
    """Decode the same events from Avro, and drop them."""
    _drop(decoding.from_avro(work.pipeline))


def write_in_avro(work: Work) -> None:
    """Write what `decode_avro` reads."""
    decoding.write_in_avro(work.pipeline)


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _stop_when_drained(work: Work) -> None:
    """Send this process an operator's signal once speed and quarantine have taken everything."""

    def watch() -> None:
        work.progress.wait_for(work.truth.records, "speed")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class Item:
    """A piece of work.

    Attributes:
        run: does it.
        check: raises `WrongResult` if the result is not what it must be.
        lake: the lake it works on, shared with the items it needs.
        needs: the items that must have been done before on the same lake.
        label: how the table calls it.
        reference: it is not Oncelake's own work and gets none of its settings.
        prepare: what has to be done before, and is not measured.
        share: of all records, those that it works on.
        night: it is a nightly run, whose steps are told.
        with_most_alone: it is measured with the most events alone, since nobody asks what one more costs it.
        weight: about how long it takes, in raw appends of the same records; for the estimate of what is left.
    """

    run: Callable[[Work], None]
    check: Callable[[Work], None]
    lake: str
    label: str
    needs: tuple[str, ...] = ()
    reference: bool = False
    prepare: Callable[[Work], None] | None = None
    share: float = 1.0
    night: bool = False
    with_most_alone: bool = False
    weight: float = 1.0


ITEMS: Final[dict[str, Item]] = {
    "raw": Item(raw_append, check_raw, "raw", "raw append", reference=True),
    "ingest": Item(ingest_once, check_bronze, "steps", "ingest", weight=1.5),
    "speed": Item(speed_once, check_speed, "steps", "speed", ("ingest",), weight=3),
    # Before the rebuild: publishing begins with days that are not certified.
    "sink": Item(
        *(send_by_spark, check_sent, "steps", "Spark's Kafka sink", ("ingest", "speed")),
        prepare=make_topics,
        weight=1.5,
    ),
    "rows": Item(
        *(send_by_rows, check_sent_by_rows, "steps", "by rdd.foreachPartition", ("ingest", "speed")),
        prepare=make_topics,
        weight=4,
    ),
    "publish": Item(
        *(publish_once, check_published, "steps", "published exactly once", ("ingest", "speed")),
        prepare=make_topics,
        weight=2,
    ),
    "rebuild": Item(
        rebuild, check_batch, "steps", "rebuild with audit", ("ingest", "speed"), night=True, weight=6
    ),
    "month": Item(
        month,
        check_month,
        "month",
        "rebuild of 30 days",
        ("ingest",),
        prepare=fill_month,
        night=True,
        with_most_alone=True,
        weight=6,
    ),
    "copy": Item(copy, check_copy, "month", "these days copied", ("ingest", "month"), with_most_alone=True),
    "serving": Item(
        serve, check_served, "month", "these days served", ("ingest", "month"), with_most_alone=True
    ),
    "repair": Item(
        *(repair, check_batch, "month", "repair of one of them", ("ingest", "month")),
        prepare=come_late,
        share=1 / len(DAYS),
        night=True,
        with_most_alone=True,
    ),
    "scan": Item(scan, check_bronze, "steps", "bronze read, not decoded", ("ingest",)),
    "json": Item(decode_json, check_json, "steps", "JSON decoded", ("ingest",)),
    "avro": Item(decode_avro, check_avro, "steps", "Avro decoded", ("ingest",), prepare=write_in_avro),
    "together": Item(together, check_both, "one", "both, one application", with_most_alone=True, weight=4),
    "apart": Item(
        speed_until_drained, check_both, "two", "both, two processes", with_most_alone=True, weight=4
    ),
}
