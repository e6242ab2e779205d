"""Speed: bronze, decoded and deduplicated in real time; what breaks the contract goes to quarantine."""

import logging
from collections.abc import Iterator
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import VALID, decode, invalid, valid
from pipelines.dedup import first_within_watermark
from pipelines.ops.streams import Totals, run_streams
from pipelines.sinks.delta import append_stream
from pipelines.sinks.tables import ensure_bronze, ensure_quarantine, ensure_speed

_OBSERVED: Final = "decoded"

_log = logging.getLogger(__name__)


def speed(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, *, once: bool
) -> dict[str, Any]:
    """Keeps the speed layer and the quarantine up to date until told to stop, or once.

    Two queries read bronze, since one cannot divide its rows between two tables after a stateful step;
    each writes its own table exactly once.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        once: take what bronze holds now and return.

    Returns:
        `counts`: `records` = `rows` + `duplicates` + `late` + `quarantined`; and `watermark`.

    Raises:
        SourceError: bronze is not the table that the checkpoints know.
        InfrastructureError: a query failed.
    """
    ensure_bronze(spark, config)
    ensure_speed(spark, config, contract)
    ensure_quarantine(spark, config)

    def start() -> Iterator[StreamingQuery]:
        decoded = decode(_bronze(spark, config), contract, config.decode.max_future)
        observed = decoded.observe(
            _OBSERVED, F.count(F.lit(1)).alias("records"), F.count_if(~F.col(VALID)).alias("quarantined")
        )
        events = first_within_watermark(valid(observed, contract), contract, config.speed.watermark_delay)
        bad = invalid(decoded, contract).withColumn("_quarantined_at", F.current_timestamp())
        written = events.observe("written", F.count(F.lit(1)).alias("rows"))
        targets: list[tuple[DataFrame, Literal["speed", "quarantine"]]]
        targets = [(written, "speed"), (bad, "quarantine")]
        for rows, table in targets:
            yield append_stream(
                rows,
                config.table(table),
                name=table,
                checkpoint=config.checkpoint(table),
                once=once,
                interval=config.speed.trigger_interval,
            )

    totals = run_streams(spark, start)
    return {"counts": _counts(totals["speed"]), "watermark": totals["speed"].watermark}


def _bronze(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    reader = spark.readStream.format("delta")
    if config.speed.max_bytes_per_trigger:
        reader = reader.option("maxBytesPerTrigger", config.speed.max_bytes_per_trigger)
    return reader.load(config.table("bronze"))


def _counts(totals: Totals) -> dict[str, int]:
    names = ("records", "rows", "duplicates", "late", "quarantined")
    counts = {name: totals.counts[name] for name in names}
    unaccounted = counts["records"] - sum(counts[name] for name in names[1:])
    if unaccounted:
        _log.warning(
            "%d records are in none of the counts; the audit will tell if rows are lost", unaccounted
        )
    return {**counts, "batches": totals.batches}
