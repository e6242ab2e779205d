"""Speed: bronze, decoded and deduplicated in real time; what breaks the contract goes to quarantine."""

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from pipelines.config import PipelineConfig, QuarantineConfig
from pipelines.contract import DataContract
from pipelines.decode import BAD, VALID, broken_of, decode, events_of, routed
from pipelines.dedup import first_within_watermark
from pipelines.errors import OncelakeError, SourceError
from pipelines.ops.failures import explain_stream_failure
from pipelines.ops.preflight import find_topic
from pipelines.ops.streams import Totals, run_streams
from pipelines.sinks.delta import append_once, each_batch
from pipelines.sinks.kafka import send_dead_letters
from pipelines.sinks.tables import ensure_bronze, ensure_quarantine, ensure_speed, first_try

_log = logging.getLogger(__name__)


def speed(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, *, once: bool
) -> dict[str, Any]:
    """Keeps the speed layer and the quarantine up to date until told to stop, or once.

    One query decodes each record once and writes both tables, each micro-batch exactly once.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        once: take what bronze holds now and return.

    Returns:
        `counts`: `records` = `rows` + `duplicates` + `late` + `quarantined`; and `watermark`.

    Raises:
        ConfigError: the speed layer was made with another dedup key, event time or watermark, or there is no
            topic for dead letters.
        SourceError: bronze is not the table that the checkpoint knows, or too many records are broken.
        InfrastructureError: the query failed.
    """
    if config.quarantine.dead_letter_topic:
        topic, setting = config.quarantine.dead_letter_topic, "quarantine.dead_letter_topic"
        find_topic(spark, config.kafka, topic, setting)
    ensure_bronze(spark, config)
    ensure_speed(spark, config, contract)
    ensure_quarantine(spark, config)
    failures: list[Exception] = []
    decoded = decode(_bronze(spark, config), contract, config.decode.max_future).observe(
        "decoded", F.count(F.lit(1)).alias("records"), F.count_if(~F.col(VALID)).alias("quarantined")
    )
    deduplicated = first_within_watermark(routed(decoded, contract), contract, config.speed.watermark_delay)
    try:
        totals = run_streams(
            spark,
            lambda: [
                each_batch(
                    deduplicated.observe("written", F.count_if(F.col(BAD).isNull()).alias("rows")),
                    _divide(config, contract, failures),
                    name="speed",
                    checkpoint=config.checkpoint("speed"),
                    once=once,
                    interval=config.speed.trigger_interval,
                )
            ],
        )["speed"]
    except OncelakeError as error:
        # Spark hands on what our function raised as text in a stack trace.
        raise _reason(failures, error) from None
    return {"counts": _counts(totals), "watermark": totals.watermark}


def _bronze(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    reader = spark.readStream.format("delta")
    if config.speed.max_bytes_per_trigger:
        reader = reader.option("maxBytesPerTrigger", config.speed.max_bytes_per_trigger)
    return reader.load(config.table("bronze"))


def _reason(failures: list[Exception], error: OncelakeError) -> OncelakeError:
    if not failures:
        return error
    return failures[0] if isinstance(failures[0], OncelakeError) else explain_stream_failure(failures[0])


def _divide(
    config: PipelineConfig, contract: DataContract, failures: list[Exception]
) -> Callable[[DataFrame, int], None]:
    """Writes a micro-batch to its two tables, after a look at how much of it is broken."""

    def write(routes: DataFrame, batch: int) -> None:
        # Kept, since its second reading would run the deduplication again.
        routes.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            row = routes.agg(F.count(F.lit(1)), F.count_if(F.col(BAD).isNotNull())).first()
            new, broken = tuple(row or (0, 0))
            if too_many(broken, new, config.quarantine):
                raise _refusal(broken, new, config.quarantine)
            if broken:
                bad = broken_of(routes, contract)
                append_once(first_try(bad), config.table("quarantine"), batch)
                if config.quarantine.dead_letter_topic:
                    send_dead_letters(bad, config.kafka, config.quarantine.dead_letter_topic)
            if new > broken:
                append_once(events_of(routes, contract), config.table("speed"), batch)
        except Exception as error:
            failures.append(error)
            raise
        finally:
            routes.unpersist()

    return write


def too_many(broken: int, new: int, limit: QuarantineConfig) -> bool:
    """Whether so many of a micro-batch's records are broken that nothing of it may be written.

    Args:
        broken: its broken records.
        new: these and its events, without copies of events that are known.
        limit: what is too many.
    """
    return broken >= limit.min_records and broken > limit.max_share * new


def _refusal(broken: int, new: int, limit: QuarantineConfig) -> SourceError:
    return SourceError(
        f"{broken:,} of {new:,} new records of a micro-batch break the contract, which is more than"
        f" quarantine.max_share allows ({limit.max_share:g}); nothing of it was written. If producers have"
        " changed, mend them or the contract; if such records are to go to quarantine:"
        " --set quarantine.max_share=1. See docs/runbook.md, 'Too many broken records'"
    )


def _counts(totals: Totals) -> dict[str, int]:
    names = ("records", "rows", "duplicates", "late", "quarantined")
    counts = {name: totals.counts[name] for name in names}
    unaccounted = counts["records"] - sum(counts[name] for name in names[1:])
    if unaccounted:
        _log.warning(
            "%d records are in none of the counts; the audit will tell if rows are lost", unaccounted
        )
    return {**counts, "batches": totals.batches}
