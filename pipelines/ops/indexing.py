"""Makes the index of bronze, from what has come since it was made last, by the one way to decode."""

import hashlib
import logging
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import ERROR, EVENT_DATE, VALID, sent_at
from pipelines.intervals import format_interval
from pipelines.ops.bronze_index import INDEX, OFFSETS, RECORDS, BronzeIndex
from pipelines.ops.failures import first_line
from pipelines.ops.retention import first_whole_day
from pipelines.ops.writer_schemas import ask_again, decode_all
from pipelines.sinks.delta import read, replace_rows
from pipelines.sinks.tables import ensure_table, exists, shape
from pipelines.sinks.tables import version as table_version
from pipelines.sql_text import literal
from pipelines.watermark import clock

_COMMIT: Final = "_commit_version"
# To be raised whenever the same contract comes to decode otherwise.
_RULES: Final = 3

_log = logging.getLogger(__name__)


def index_bronze(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, version: int, *, keep: bool
) -> BronzeIndex:
    """The index of bronze at a version; what it lacks is made.

    It holds for one way to decode. After a change of the contract, or when the registry has come to know a
    schema that it did not know, it is made anew, for which the whole of bronze is read once.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        version: the version of bronze, not older than what the index knows.
        keep: whether what is made is written down, for which the caller must hold the pipeline's lease.

    Raises:
        InfrastructureError: a schema is neither in the lake nor to be had from the registry.
    """
    table = config.ops_table("bronze_index")
    ensure_table(spark, table, shape(INDEX), partitions=["pipeline"])
    of_pipeline = read(spark, table).where(F.col("pipeline") == config.name)
    made_for = _made_for(spark, config, contract)
    known = of_pipeline.where(F.col("made_for") == made_for)
    last = _last(known)
    if last is not None and last >= version:
        # What the index knows already may be more than an older version had.
        return BronzeIndex(version, known).until(version)
    rows, is_whole = _made(spark, config, contract, of_pipeline, last, version)
    rows = rows.selectExpr(
        f"{literal(config.name)} AS pipeline", f"'{made_for}' AS made_for", f"{version}L AS until", "*"
    ).select(*shape(INDEX).names)
    if not keep:
        return BronzeIndex(version, rows if is_whole else known.unionByName(rows))
    if is_whole:
        replace_rows(rows, table, f"pipeline = {literal(config.name)}")
    else:
        # Another run's, if this one has lost its lease, are written over, not doubled.
        replace_rows(rows, table, f"pipeline = {literal(config.name)} AND until > {last}")
    rows.unpersist()
    return BronzeIndex(version, read(spark, table).where(F.col("pipeline") == config.name))


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
    now, table = table_version(spark, config.table("bronze")), config.ops_table("bronze_index")
    if exists(spark, table):
        known = read(spark, table).where(
            (F.col("pipeline") == config.name) & (F.col("made_for") == _made_for(spark, config, contract))
        )
        last = _last(known)
        if last is not None and last >= at:
            return BronzeIndex(now, known).until(at)
    return index_bronze(spark, config, contract, now, keep=False).until(at)


def _last(known: DataFrame) -> int | None:
    """The newest version of bronze that an index knows."""
    until = known.agg(F.max("until").alias("until")).first()
    return until["until"] if until else None


def _made(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    stored: DataFrame,
    last: int | None,
    version: int,
) -> tuple[DataFrame, bool]:
    """Rows for what came after a version, or for all of bronze; and whether it is all of it."""
    bronze = config.table("bronze")
    if last is not None:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", last + 1).option("endingVersion", version)
        try:
            came = feed.load(bronze).where("_change_type = 'insert'")
            return _rows(spark, config, contract, came), False
        except (PySparkException, Py4JJavaError) as error:
            # Its log or its files are cleaned up after some time.
            _log.warning(
                "what came after version %d of bronze cannot be told: %s", last, first_line(str(error))
            )
    _log.info("making the index of all of bronze")
    batches = stored.where(F.col("kind") == RECORDS).groupBy(F.col("ingested_at").alias("_ingested_at"))
    commits = F.broadcast(batches.agg(F.min("commit").alias(_COMMIT)))
    whole = read(spark, bronze, version).join(commits, "_ingested_at", "left")
    return _rows(spark, config, contract, whole.fillna(version, [_COMMIT])), True


def _rows(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, envelopes: DataFrame
) -> DataFrame:
    decoded = decode_all(spark, config, contract, envelopes)
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
        )
        kinds = by_day.withColumn("kind", F.lit(RECORDS)).unionByName(
            by_partition.withColumn("kind", F.lit(OFFSETS)), allowMissingColumns=True
        )
        rows = kinds.persist()
        rows.count()
        return rows
    finally:
        records.unpersist()


def _made_for(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> str:
    """A text that is another one when records may be decoded to something else."""
    decoding = (
        _RULES,
        contract.schema.json(),
        contract.event_time,
        contract.day_time_zone,
        contract.row_rules,
        contract.conditions,
        contract.value_format,
        format_interval(config.decode.max_future),
        config.registry.url if config.registry else None,
        ask_again(spark, config, contract),
        first_whole_day(spark, config),
    )
    return hashlib.sha256(repr(decoding).encode()).hexdigest()[:16]
