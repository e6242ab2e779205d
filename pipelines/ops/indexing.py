"""Makes the index of bronze, from what has come since it was made last, by the one way to decode."""

import logging
from dataclasses import dataclass, fields
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import ERROR, EVENT_DATE, VALID, sent_at
from pipelines.ops.bronze_index import INDEX, OFFSETS, RECORDS, BronzeIndex
from pipelines.ops.bronze_state import (
    BronzeState,
    Indexed,
    bronze_id,
    bronze_state,
    continues,
    records_in,
    require_held,
)
from pipelines.ops.decoding_key import decoding_key
from pipelines.ops.failures import first_line
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality.offset_ledger import partition_offsets
from pipelines.sinks.delta import read, replace_rows, small_rows
from pipelines.sinks.tables import ensure_table, shape
from pipelines.sinks.tables import version as table_version
from pipelines.sinks.versions import version_by_note
from pipelines.sql_text import literal
from pipelines.watermark import clock

_COMMIT: Final = "_commit_version"
# Kafka's `TimestampType` of a record to which the broker gave its own time when it wrote it.
_LOG_APPEND_TIME: Final = 1

_log = logging.getLogger(__name__)


def index_bronze(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, version: int, *, keep: bool
) -> BronzeIndex:
    """The index of bronze at a version; what it lacks is made.

    It holds for one table and one way to decode. After a change of the contract, when the registry has come
    to know a schema that it did not know, or when bronze is another table, or was put back, it is made anew,
    for which the whole of bronze is read once. So it is where it counts other records than the table does.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        version: the version of bronze, not older than what the index knows.
        keep: whether what is made is written down, for which the caller must hold the pipeline's lease.

    Raises:
        InfrastructureError: a schema is neither in the lake nor to be had from the registry.
        SourceError: bronze lacks records that the index knows.
    """
    making = _making(spark, config, contract, version)
    index = making.continued(keep=keep)
    if index is not None:
        indexed, there = index.total(), records_in(spark, config, version)
        if indexed == there:
            return index
        _log.warning("the index counts %d records of bronze, and the table %d", indexed, there)
    return making.anew(keep=keep)


def index_as_of(spark: SparkSession, config: PipelineConfig, contract: DataContract, at: int) -> BronzeIndex:
    """What the index said at an earlier version of bronze, for reading records from bronze as it is now.

    Delta lets no old version be read for long, and need not: bronze is only added to, and the index tells
    which micro-batches there were. Nothing is decoded that a nightly run has decoded already.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        at: a version of bronze that a nightly run has seen.
    """
    now = table_version(spark, config.table("bronze"))
    making = _making(spark, config, contract, now)
    if making.known is not None and making.fits and making.known.until >= at:
        return BronzeIndex(now, making.bronze_id, making.stored).until(at)
    return index_bronze(spark, config, contract, now, keep=False).until(at)


@dataclass(frozen=True)
class _Making:
    """One making of the index.

    Attributes:
        bronze: bronze as it is.
        stored: the rows that are there of the pipeline, at one version of the index.
        known: what they were made from; None if there are none.
        is_same: whether bronze is that table still.
        bronze_id: see `BronzeIndex`.
        made_for: the table and the way to decode.
    """

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract
    bronze: BronzeState
    stored: DataFrame
    known: Indexed | None
    is_same: bool
    bronze_id: str
    made_for: str

    @property
    def fits(self) -> bool:
        """Whether the rows that are there hold for bronze and for the way to decode of now."""
        return self.known is not None and self.known.made_for == self.made_for

    def continued(self, *, keep: bool) -> BronzeIndex | None:
        """The index with what came since it was made last; None if it has to be made anew."""
        version = self.bronze.version
        if self.known is None or not self.fits:
            return None
        last = self.known.until
        if last >= version:
            # What the index knows already may be more than an older version had.
            return BronzeIndex(version, self.bronze_id, self.stored).until(version)
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", last + 1).option("endingVersion", version)
        try:
            rows = self._rows(feed.load(self.bronze.table).where("_change_type = 'insert'"))
        except (PySparkException, Py4JJavaError) as error:
            # Its log or its files are cleaned up after some time.
            _log.warning(
                "what came after version %d of bronze cannot be told: %s", last, first_line(str(error))
            )
            return None
        if not keep or rows.isEmpty():
            return BronzeIndex(version, self.bronze_id, self.stored.unionByName(rows))
        # Another run's, if this one has lost its lease, are written over, not doubled.
        return self._written(rows, f"{self._of_pipeline} AND until > {last}")

    def anew(self, *, keep: bool) -> BronzeIndex:
        """The index, made from the whole of bronze.

        Raises:
            SourceError: bronze lacks records that it had: it was replaced, put back or cut.
        """
        version = self.bronze.version
        if self.known is not None:
            held = partition_offsets(BronzeIndex(version, "", self.stored).offsets())
            require_held(self.spark, self.bronze, self.known, held)
        _log.info("making the index of all of bronze")
        # Versions of another table say nothing of the micro-batches of this one.
        records = self.stored.where((F.col("kind") == RECORDS) & F.lit(self.is_same))
        batches = records.groupBy(F.col("ingested_at").alias("_ingested_at"))
        commits = F.broadcast(batches.agg(F.min("commit").alias(_COMMIT)))
        whole = read(self.spark, self.bronze.table, version).join(commits, "_ingested_at", "left")
        rows = self._rows(whole.fillna(version, [_COMMIT]))
        if not keep or (self.known is None and rows.isEmpty()):
            return BronzeIndex(version, self.bronze_id, rows)
        return self._written(rows, self._of_pipeline)

    @property
    def _of_pipeline(self) -> str:
        return f"pipeline = {literal(self.config.name)}"

    def _rows(self, envelopes: DataFrame) -> DataFrame:
        bronze, of_index = self.bronze, shape(INDEX)
        common = {
            "pipeline": self.config.name,
            "made_for": self.made_for,
            "until": bronze.version,
            "bronze_id": self.bronze_id,
            "until_commit": bronze.commit,
            "topic_id": bronze.topic_id,
            "whole_from": bronze.whole_from,
        }
        rows = _rows(self.spark, self.config, self.contract, envelopes)
        values = {name: F.lit(value).cast(of_index[name].dataType) for name, value in common.items()}
        return rows.withColumns(values).select(*of_index.names)

    def _written(self, rows: DataFrame, condition: str) -> BronzeIndex:
        """The index as written; a run keeps to the version that its own commit made.

        Delta makes no commit where nothing changes, so something must.
        """
        table, note = self.config.ops_table("bronze_index"), f"index {uuid4().hex}"
        replace_rows(rows, table, condition, note=note)
        rows.unpersist()
        stored = read(self.spark, table, version_by_note(self.spark, table, note)).where(self._of_pipeline)
        return BronzeIndex(self.bronze.version, self.bronze_id, stored)


def _making(spark: SparkSession, config: PipelineConfig, contract: DataContract, version: int) -> _Making:
    table = config.ops_table("bronze_index")
    ensure_table(spark, table, shape(INDEX), partitions=["pipeline"])
    stored = read(spark, table, table_version(spark, table)).where(F.col("pipeline") == config.name)
    known = _indexed(stored)
    bronze = bronze_state(spark, config, version)
    is_same = known is not None and continues(spark, bronze, known)
    name = bronze_id(bronze, known, is_same=is_same)
    made_for = decoding_key(spark, config, contract, (name, bronze.whole_from))
    return _Making(spark, config, contract, bronze, stored, known, is_same, name, made_for)


def _indexed(stored: DataFrame) -> Indexed | None:
    names = [field.name for field in fields(Indexed)]
    newest = F.max_by(F.struct(*(F.col(name) for name in names)), "until")
    row = small_rows(stored.agg(newest.alias("newest")))[0]["newest"]
    return None if row is None else Indexed(**row)


def _rows(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, envelopes: DataFrame
) -> DataFrame:
    decoded = decode_all(spark, config, contract, envelopes, asks=True)
    records = decoded.select(
        F.col(_COMMIT).alias("commit"),
        F.col("_ingested_at").alias("ingested_at"),
        F.when(F.col(VALID), F.col(EVENT_DATE)).alias("day"),
        F.col(f"{ERROR}.reason").alias("reason"),
        F.when(F.col(VALID), F.col(contract.event_time)).alias("newest"),
        F.when(F.col(VALID), F.expr(clock(contract))).alias("clock"),
        F.col("_topic").alias("topic"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        sent_at().alias("sent"),
        F.when(F.col("_kafka_timestamp_type") == _LOG_APPEND_TIME, sent_at()).alias("appended"),
    ).persist()
    try:
        by_day = records.groupBy("commit", "ingested_at", "day", "reason").agg(
            F.count(F.lit(1)).alias("records"),
            F.max("newest").alias("newest"),
            F.max("clock").alias("clock"),
        )
        by_partition = records.groupBy("topic", "partition").agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count(F.lit(1)).alias("records"),
            F.count_distinct("offset").alias("distinct"),
            F.max("sent").alias("sent"),
            F.max("appended").alias("appended"),
        )
        kinds = by_day.withColumn("kind", F.lit(RECORDS)).unionByName(
            by_partition.withColumn("kind", F.lit(OFFSETS)), allowMissingColumns=True
        )
        rows = kinds.persist()
        rows.count()
        return rows
    finally:
        records.unpersist()
