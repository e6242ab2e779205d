"""The pieces of work that are measured, and the proof that each did what it should."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import decoding
from benchmarks.events import DAY, Truth
from benchmarks.progress import Progress
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.layers.batch import nightly
from pipelines.layers.ingest import ingest
from pipelines.layers.speed import speed
from pipelines.sinks.delta import append_stream, read
from pipelines.sinks.tables import ensure_bronze
from pipelines.sources.kafka import read_envelopes


@dataclass(frozen=True)
class Work:
    """What a piece of work is given.

    Attributes:
        spark: the session.
        config: of the pipeline.
        contract: of the pipeline.
        truth: what the topic holds.
        progress: of all queries of the session.
    """

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract
    truth: Truth
    progress: Progress

    def table(self, layer: Any) -> DataFrame:
        """One of the pipeline's tables."""
        return read(self.spark, self.config.table(layer))


class WrongResult(Exception):
    """A piece of work was done, but not rightly: its time means nothing."""


def raw_append(work: Work) -> None:
    """The reference: Kafka -> Delta as Spark alone does it, with the defaults of both."""
    kafka = work.config.kafka
    reader = work.spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    reader = reader.option("subscribe", kafka.topic).option("startingOffsets", "earliest")
    if kafka.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", kafka.max_offsets_per_trigger)
    writer = reader.load().writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{work.config.root}/raw_checkpoint")
    writer.start(f"{work.config.root}/raw").awaitTermination()


def ingest_once(work: Work) -> None:
    """Kafka -> bronze."""
    ingest(work.spark, work.config, once=True)


def speed_once(work: Work) -> None:
    """Bronze -> speed layer and quarantine."""
    speed(work.spark, work.config, work.contract, once=True)


def speed_until_drained(work: Work) -> None:
    """The speed job as it runs in production, while another process fills bronze."""
    _stop_when_drained(work)
    speed(work.spark, work.config, work.contract, once=False)


def together(work: Work) -> None:
    """Ingest and speed at once, in one application, until both have taken everything."""
    ensure_bronze(work.spark, work.config)
    filling = append_stream(
        read_envelopes(work.spark, work.config.kafka),
        work.config.table("bronze"),
        name="ingest",
        checkpoint=work.config.checkpoint("ingest"),
        once=True,
        interval=timedelta(seconds=1),
    )
    _stop_when_drained(work)
    speed(work.spark, work.config, work.contract, once=False)
    filling.awaitTermination()


def rebuild(work: Work) -> None:
    """The nightly run of the one day that all events lie on: build, audit, certification."""
    nightly(work.spark, work.config, work.contract, "benchmark", [DAY])


def built_at(work: Work) -> float:
    """When the rebuild had written the day, before its audit; seconds since the epoch."""
    history = DeltaTable.forPath(work.spark, work.config.table("batch")).history()
    row = history.where("userMetadata = 'build benchmark'").select(F.unix_millis("timestamp")).first()
    if row is None:
        raise WrongResult("the rebuild has committed nothing")
    return float(row[0]) / 1000


def scan(work: Work) -> None:
    """Bronze is read and its bytes are dropped: what decoding is held against."""
    _drop(decoding.read_bytes(work.spark, work.config, work.contract))


def decode_json(work: Work) -> None:
    """Bronze is decoded, and the events are dropped."""
    _drop(decoding.from_json(work.spark, work.config, work.contract))


def decode_avro(work: Work) -> None:
    """The same events in Avro are decoded and dropped."""
    _drop(decoding.from_avro(work.spark, work.config, work.contract))


def write_in_avro(work: Work) -> None:
    """What `decode_avro` reads."""
    decoding.write_in_avro(work.spark, work.config, work.contract)


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def check_json(work: Work) -> None:
    """Each valid record became an event."""
    _check_decoded(work, decoding.from_json(work.spark, work.config, work.contract))


def check_avro(work: Work) -> None:
    """Each valid record became an event, in Avro, too."""
    _check_decoded(work, decoding.from_avro(work.spark, work.config, work.contract))


def _check_decoded(work: Work, events: DataFrame) -> None:
    truth = work.truth
    found = events.agg(F.count(F.lit(1)), F.count_distinct("sequence")).first()
    _expect("events, different events", tuple(found or ()), (truth.records - truth.broken, truth.unique))


def check_raw(work: Work) -> None:
    """The raw append has every record once."""
    _check_envelopes(
        work, work.spark.read.format("delta").load(f"{work.config.root}/raw"), "partition", "offset"
    )


def check_bronze(work: Work) -> None:
    """Bronze has every record once."""
    _check_envelopes(work, work.table("bronze"), "_partition", "_offset")


def check_speed(work: Work) -> None:
    """The speed layer has every event once, and quarantine every broken record."""
    _check_events(work, "speed")
    _expect("rows of quarantine", work.table("quarantine").count(), work.truth.broken)


def check_both(work: Work) -> None:
    """Bronze, speed layer and quarantine are whole."""
    check_bronze(work)
    check_speed(work)


def check_batch(work: Work) -> None:
    """The batch layer has every event once."""
    _check_events(work, "batch")


def sizes(work: Work) -> dict[str, dict[str, float]]:
    """Files and megabytes of every table there is."""
    found = {}
    for name in ("raw", "bronze/events", "speed/events", "quarantine/events", "batch/events"):
        path = f"{work.config.root}/{name}"
        if Path(path).is_dir():
            detail = DeltaTable.forPath(work.spark, path).detail().select("numFiles", "sizeInBytes").first()
            if detail:
                found[name] = {"files": detail[0], "mb": round(detail[1] / 1e6, 1)}
    return found


def _check_envelopes(work: Work, rows: DataFrame, partition: str, offset: str) -> None:
    found = rows.agg(F.count(F.lit(1)), F.count_distinct(partition, offset), F.sum(F.length("value"))).first()
    truth = work.truth
    _expect(
        "records, different records, bytes",
        tuple(found or ()),
        (truth.records, truth.records, truth.value_bytes),
    )


def _check_events(work: Work, layer: str) -> None:
    rows = work.table(layer)
    found = rows.agg(F.count(F.lit(1)), F.count_distinct(*work.contract.key), F.sum("sequence")).first()
    truth = work.truth
    _expect(
        f"rows, keys, sum of `sequence` of {layer}",
        tuple(found or ()),
        (truth.unique, truth.unique, truth.sequence_sum),
    )


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongResult(f"{what}: found {found}, expected {expected}")


def _stop_when_drained(work: Work) -> None:
    """Sends this process an operator's signal once speed and quarantine have taken everything."""

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
    """

    run: Callable[[Work], None]
    check: Callable[[Work], None]
    lake: str
    label: str
    needs: tuple[str, ...] = ()
    reference: bool = False
    prepare: Callable[[Work], None] | None = None


ITEMS: Final[dict[str, Item]] = {
    "raw": Item(raw_append, check_raw, "raw", "raw append", reference=True),
    "ingest": Item(ingest_once, check_bronze, "steps", "ingest"),
    "speed": Item(speed_once, check_speed, "steps", "speed", ("ingest",)),
    "rebuild": Item(rebuild, check_batch, "steps", "rebuild with audit", ("ingest", "speed")),
    "scan": Item(scan, check_bronze, "steps", "bronze read, not decoded", ("ingest",)),
    "json": Item(decode_json, check_json, "steps", "JSON decoded", ("ingest",)),
    "avro": Item(decode_avro, check_avro, "steps", "Avro decoded", ("ingest",), prepare=write_in_avro),
    "together": Item(together, check_both, "one", "both, one application"),
    "apart": Item(speed_until_drained, check_both, "two", "both, two processes"),
}
