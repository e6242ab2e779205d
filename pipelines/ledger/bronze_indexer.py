"""Make the index of bronze from what has come since it was made last, decoded as everywhere else."""

import logging
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.delta.commits import commit_at
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import replace_rows_fenced
from pipelines.delta.fencing import DELETION
from pipelines.delta.io import read, small_rows
from pipelines.delta.replaced_rows import RowsOfPartition
from pipelines.delta.tables import table_id
from pipelines.delta.tables import version as table_version
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.bronze_index import EMPTIED, OFFSETS, RECORDS, BronzeIndex
from pipelines.ledger.bronze_state import (
    BronzeState,
    Indexed,
    bronze_id,
    bronze_state,
    continues,
    is_taken_at_its_word,
    require_indexed_offsets,
    require_same_bronze,
    unexplained_loss,
    was_cut,
)
from pipelines.ledger.decoding import decode_all, decoding_key_of_bronze
from pipelines.ledger.forgotten import bronze_record_counts, is_emptied, with_event_time
from pipelines.ledger.index_making import make_index
from pipelines.ledger.leases import Lease
from pipelines.ledger.ops_tables import BRONZE_INDEX
from pipelines.ledger.schema_lookup import ask_again
from pipelines.records.decode import ERROR, EVENT_DATE, VALID
from pipelines.records.send_time import sent_at
from pipelines.records.watermark import clock
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import instant, literal

_COMMIT: Final = "_commit_version"
# Kafka's `TimestampType` of a record to which the broker gave its own time when it wrote it.
_LOG_APPEND_TIME: Final = 1
_OF_DAY: Final = ("kind", "commit", "ingested_at", "day", "reason")
_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_log = logging.getLogger(__name__)


def index_bronze(
    pipeline: Pipeline,
    version: int,
    lease: Lease | None = None,
) -> BronzeIndex:
    """Return the index of bronze at a version; what it lacks is made.

    It is valid for one table and one way to decode. After a change of the contract, when the registry has a
    schema that it did not have before, or when bronze is another table, or was restored, it is rebuilt, for
    which the whole of bronze is read once. It is also rebuilt if some of its rows were made in another way.
    If it counts other records than the table has, as after retention has removed some, only the records of
    those hours of ingestion are decoded again of which the counts differ.

    Args:
        pipeline: The pipeline.
        version: The version of bronze, not older than what the index knows.
        lease: The pipeline's lease; without it nothing of what is built is written.

    Raises:
        InfrastructureError: A schema is neither in the lake nor to be had from the registry; or another run
            has taken the lease over.
        SourceError: Bronze lacks records that the index knows, or was replaced while it was read.
    """
    return make_index(_index_build(pipeline, version), lease.stamp if lease else None)


def index_as_of(pipeline: Pipeline, at: int) -> BronzeIndex:
    """Return what the index said at an earlier version of bronze, to read records from bronze as it is now.

    Delta does not keep old versions readable for long, and need not: the index says which micro-batches there
    were, and their records are still in bronze, but for what `forget` has emptied and retention has removed.
    Nothing is decoded that a nightly run has decoded already.

    Args:
        pipeline: The pipeline.
        at: A version of bronze that a nightly run has seen.
    """
    now = table_version(pipeline.spark, pipeline.table("bronze"))
    making = _index_build(pipeline, now)
    if making.known_until is not None and making.known_until >= at and not making.was_cut:
        return BronzeIndex(now, making.bronze_id, making.stored).until(at)
    return index_bronze(pipeline, now).until(at)


def require_known_offsets(pipeline: Pipeline) -> bool:
    """Make sure that bronze has every record that nightly runs have seen, but for what retention removed.

    Returns:
        Whether nightly runs have seen all losses that bronze tells of.

    Raises:
        SourceError: It was replaced or restored, or rows were deleted.
    """
    making = _index_build(pipeline, table_version(pipeline.spark, pipeline.table("bronze")))
    making.require_known_offsets()
    return making.indexed is None or not is_taken_at_its_word(making.bronze, making.indexed)


@dataclass(frozen=True)
class _IndexBuild:
    """One making of the index, see `pipelines.ledger.index_making.IndexLake`.

    Attributes:
        bronze: Bronze as it is.
        stored: The rows that are there of the pipeline, at one version of the index.
        indexed: What the newest were made from; None if there are none.
        is_uniform: Whether all were made from one bronze in one way to decode. They are not after somebody
            has restored the index from a copy between a run's read and its commit.
        is_same: Whether bronze is that table still.
        bronze_id: See `BronzeIndex`.
        made_for: The table and the way to decode.
    """

    pipeline: Pipeline
    bronze: BronzeState
    stored: DataFrame
    indexed: Indexed | None
    is_uniform: bool
    is_same: bool
    bronze_id: str
    made_for: str

    @property
    def version(self) -> int:
        """The version of bronze."""
        return self.bronze.version

    @property
    def is_there(self) -> bool:
        """Whether the index has rows."""
        return self.indexed is not None

    @property
    def known_until(self) -> int | None:
        """The newest version that the index knows; None if rows hold for another bronze or way to decode."""
        if self.indexed is None or not self.is_uniform or self.indexed.made_for != self.made_for:
            return None
        return self.indexed.until

    @property
    def was_cut(self) -> bool:
        """Whether retention has removed records, or a loss was told, since these rows were made."""
        return was_cut(self.bronze, self.indexed)

    def as_known(self) -> BronzeIndex:
        """Return what the rows that are there say of the version."""
        return BronzeIndex(self.version, self.bronze_id, self.stored).until(self.version)

    def came_after(self, version: int) -> DataFrame | None:
        """Return the rows of what came after a version; None if that can no longer be told."""
        if not self._has_only_lost_by_retention():
            # Where a record was changed in place, the rows that are there may have it under another day.
            return None
        try:
            return _rows(self.pipeline, self._changes(version).where("_change_type = 'insert'"))
        except (PySparkException, Py4JJavaError) as error:
            # Its log or its files are cleaned up after some time.
            _log.warning(
                "the changes of bronze after version %d cannot be read: %s", version, first_line(str(error))
            )
            return None

    def _changes(self, after: int) -> DataFrame:
        feed = self.pipeline.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", after + 1).option("endingVersion", self.version)
        return feed.load(self.bronze.table)

    def of_all(self) -> DataFrame:
        """Return the rows of all that bronze has: of hours that have lost nothing those that are there."""
        # Versions of another table say nothing of the micro-batches of this one.
        micro_batches = BronzeIndex(self.version, "", self.stored.where(F.lit(self.is_same))).micro_batches()
        commits = micro_batches.withColumnsRenamed({"at": "_ingested_at", "commit": _COMMIT}).persist()
        try:
            # By Delta's own list of files: the audit, which follows the log, is compared with it.
            whole = read(self.pipeline.spark, self.bronze.table, self.version)
            whole = whole.join(commits, "_ingested_at", "left")
            hours = self._differing_hours(whole) if self._has_only_lost_by_retention() else None
            whole = whole.fillna(self.version, [_COMMIT])
            if hours is not None:
                return self._counted_anew(whole, hours)
            _log.info("building the bronze index from all of bronze")
            return _rows(self.pipeline, whole)
        finally:
            commits.unpersist()

    def _has_only_lost_by_retention(self) -> bool:
        """Return whether nothing but retention has removed or changed records that the rows there count."""
        if self.known_until is None:
            # They hold for another bronze, or another way to decode.
            return False
        if self.known_until >= self.version:
            return True
        try:
            changed = self._changes(self.known_until).where("_change_type <> 'insert'")
            versions = small_rows(changed.select(F.col(_COMMIT).alias("at")).distinct())
            commits = [commit_at(self.pipeline.spark, self.bronze.table, row["at"]) for row in versions]
        except (PySparkException, Py4JJavaError) as error:
            # Its log or its files are cleaned up after some time.
            _log.warning("the changes of bronze cannot be read: %s", first_line(str(error)))
            return False
        return all(
            commit.operation == "WRITE" and (commit.note or "").startswith(f"{DELETION} ")
            for commit in commits
        )

    def _differing_hours(self, whole: DataFrame) -> DataFrame:
        """Return the hours of ingestion of which bronze has other records than the rows that are there count.

        Args:
            whole: The records of bronze, with the version that each came by, if these rows tell.
        """
        in_bronze = whole.groupBy(_hour("_ingested_at")).agg(
            F.count(F.lit(1)).alias("records"),
            F.count_if(F.expr(is_emptied(whole))).alias("emptied"),
            F.count_if(F.col(_COMMIT).isNull()).alias("further"),
        )
        emptied = F.sum(F.when(F.col("kind") == EMPTIED, F.col("records")).otherwise(0))
        indexed = (
            self._counts()
            .groupBy(_hour("ingested_at"))
            .agg(F.sum("records").alias("indexed"), emptied.alias("indexed_emptied"))
        )
        # Of an hour that one of them lacks the counts are null. As many as were removed may have come since.
        both = in_bronze.join(indexed, "hour", "full_outer")
        is_same = "records <=> indexed AND emptied <=> indexed_emptied AND further = 0"
        return both.where(f"NOT coalesce({is_same}, false)")

    def _counted_anew(self, whole: DataFrame, hours: DataFrame) -> DataFrame:
        """Return the rows of all that bronze has: of some hours decoded anew, of all others as they are.

        Args:
            whole: The records of bronze, with the version that each came by.
            hours: The hours of ingestion, as `_differing_hours` gives them.
        """
        counts = self._counts()
        hours = hours.persist()
        try:
            of_hours = whole.where(_span_of(hours.where("records > 0"))).join(
                hours, _hour("_ingested_at") == hours["hour"], "left_semi"
            )
            kept = counts.join(hours, _hour("ingested_at") == hours["hour"], "left_anti")
            by_day = _by_day(_blocks(_records(self.pipeline, of_hours), *_OF_DAY))
            offsets = _pieces(_blocks(whole.select(F.col(_COMMIT).alias("commit"), *_places()), "commit"))
            return _in_memory(kept, by_day, offsets)
        finally:
            hours.unpersist()

    def _counts(self) -> DataFrame:
        return self.stored.where(F.col("kind").isin(RECORDS, EMPTIED))

    def is_empty(self, rows: DataFrame) -> bool:
        """Return whether these are none."""
        return rows.isEmpty()

    def beside(self, rows: DataFrame) -> BronzeIndex:
        """Return the rows that are there and others, without writing them."""
        return BronzeIndex(self.version, self.bronze_id, self.stored.unionByName(self._named(rows)))

    def alone(self, rows: DataFrame) -> BronzeIndex:
        """Return rows in place of those that are there, without writing them."""
        return BronzeIndex(self.version, self.bronze_id, self._named(rows))

    def written(self, rows: DataFrame, after: int | None, stamp: Stamp) -> BronzeIndex:
        """Return the index as written; a run keeps to the version that its own commit made.

        Rows that were made in another way are not of it: their number could agree with bronze.
        """
        replaced = RowsOfPartition({"pipeline": self.pipeline.name}, "until", after)
        at = replace_rows_fenced(self._named(rows), BRONZE_INDEX.path(self.pipeline), replaced, stamp)
        rows.unpersist()
        kept = BRONZE_INDEX.rows(self.pipeline, at)
        kept = kept.where(_made_for(self.made_for, self.bronze.whole_from))
        return BronzeIndex(self.version, self.bronze_id, kept)

    def counted(self, index: BronzeIndex) -> tuple[int, int]:
        """Return how many records the index counts, and how many of them were emptied."""
        return index.total(), index.emptied()

    def in_bronze(self) -> tuple[int, int]:
        """Return how many records bronze has, and how many of them were emptied."""
        return bronze_record_counts(self.pipeline, self.version)

    def require_known_offsets(self) -> None:
        """Make sure that bronze has every offset that the index knows."""
        if self.indexed is not None:
            # Rows of a copy of the index may name offsets of another bronze, or of this one before retention.
            known = self.stored.where(_made_for(self.indexed.made_for, self.indexed.whole_from))
            offsets = BronzeIndex(self.version, "", known).offsets()
            require_indexed_offsets(self.pipeline.spark, self.bronze, self.indexed, offsets)

    def require_same_bronze(self) -> None:
        """Make sure that bronze is still the table that it was when this began."""
        spark, table = self.pipeline.spark, self.bronze.table
        require_same_bronze(self.bronze, table_id(spark, table), commit_hash(spark, table, self.version))

    def _named(self, rows: DataFrame) -> DataFrame:
        """Return rows as the index has them, with what they were made from."""
        bronze, of_index = self.bronze, BRONZE_INDEX.schema
        common: dict[str, Any] = {
            "pipeline": self.pipeline.config.name,
            "made_for": self.made_for,
            "until": bronze.version,
            "bronze_id": self.bronze_id,
            "until_commit": bronze.commit,
            "topic_id": bronze.topic_id,
            "whole_from": bronze.whole_from,
        }
        # What only folded rows have is empty.
        common |= dict.fromkeys({*of_index.names} - {*common, *rows.columns})
        # As SQL: each `Column` takes several calls of Java.
        values = {
            name: f"CAST({literal(value)} AS {of_index[name].dataType.simpleString()}) AS {name}"
            for name, value in common.items()
        }
        return rows.selectExpr(*(values.get(name, name) for name in of_index.names))


def _index_build(pipeline: Pipeline, version: int) -> _IndexBuild:
    spark = pipeline.spark
    BRONZE_INDEX.ensure(pipeline)
    stored = BRONZE_INDEX.rows(pipeline, table_version(spark, BRONZE_INDEX.path(pipeline)))
    indexed, is_uniform = _indexed(stored)
    bronze = bronze_state(pipeline, version)
    is_same = indexed is not None and continues(spark, bronze, indexed)
    name = bronze_id(bronze, indexed, is_same=is_same)
    ask_again(pipeline)
    # Of what retention has removed the counts tell. What else was lost is not known.
    made_for = decoding_key_of_bronze(pipeline, name, unexplained_loss(bronze))
    return _IndexBuild(pipeline, bronze, stored, indexed, is_uniform, is_same, name, made_for)


def _indexed(stored: DataFrame) -> tuple[Indexed | None, bool]:
    """Return what the newest rows were made from, and whether the others were made in the same way."""
    names = [field.name for field in fields(Indexed)]
    newest = F.max_by(F.struct(*(F.col(name) for name in names)), "until")
    # After retention all rows are written anew, so a copy of before has another first complete day.
    made_from = F.struct("made_for", "whole_from")
    is_uniform = F.min(made_from).eqNullSafe(F.max(made_from))
    row = small_rows(stored.agg(newest.alias("newest"), is_uniform.alias("is_uniform")))[0]
    return (None, True) if row["newest"] is None else (Indexed(**row["newest"]), bool(row["is_uniform"]))


def _made_for(made_for: str, whole_from: date | None) -> Column:
    """Return which rows were made in one way, and from bronze with one first complete day."""
    return (F.col("made_for") == made_for) & F.col("whole_from").eqNullSafe(F.lit(whole_from))


def _rows(pipeline: Pipeline, envelopes: DataFrame) -> DataFrame:
    """Return the rows of records of bronze, each with the version that it came by."""
    blocks = _blocks(_records(pipeline, envelopes), *_OF_DAY).persist()
    try:
        return _in_memory(_by_day(blocks), _pieces(blocks))
    finally:
        blocks.unpersist()


def _in_memory(*parts: DataFrame) -> DataFrame:
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts).persist()
    rows.count()
    return rows


def _hour(moment: str) -> Column:
    """Return the hour of a moment; of the same are rows that are folded to one.

    What somebody has added by hand, without a moment, is of the first one.
    """
    return F.floor(F.coalesce(F.unix_seconds(moment), F.lit(0)) / _HOUR.total_seconds()).alias("hour")


def _span_of(hours: DataFrame) -> str:
    """Return the ingestion of the records of some hours, as a condition by which files are passed over.

    Retention removes the oldest records, and what has come since is the newest.
    """
    earlier, later = "max(hour) FILTER (WHERE further = 0)", "min(hour) FILTER (WHERE further > 0)"
    (ends,) = small_rows(hours.selectExpr(f"{earlier} AS earlier", f"{later} AS later"))
    before = None if ends["earlier"] is None else _EPOCH + (ends["earlier"] + 1) * _HOUR
    since = None if ends["later"] is None else _EPOCH + ends["later"] * _HOUR
    spans = [f"_ingested_at < {instant(before)}", "_ingested_at IS NULL"] if before else []
    spans += [f"_ingested_at >= {instant(since)}"] if since else []
    return " OR ".join(spans) or "false"


def _places() -> list[Column]:
    """Return where records stand in Kafka, and when they were sent."""
    return [
        F.col("_topic").alias("topic"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        sent_at().alias("sent"),
        F.when(F.col("_kafka_timestamp_type") == _LOG_APPEND_TIME, sent_at()).alias("appended"),
    ]


def _records(pipeline: Pipeline, envelopes: DataFrame) -> DataFrame:
    """Return what the index counts of records: `_OF_DAY`, `newest`, `clock`, and `_places`."""
    contract = pipeline.contract
    decoded = decode_all(pipeline, envelopes, retries_passed_over=True)
    decoded = with_event_time(decoded, contract.event_time)
    emptied = F.expr(is_emptied(decoded))
    moves = F.col(VALID) | emptied
    return decoded.select(
        F.col(_COMMIT).alias("commit"),
        F.col("_ingested_at").alias("ingested_at"),
        F.when(F.col(VALID), F.col(EVENT_DATE)).alias("day"),
        F.when(~emptied, F.col(f"{ERROR}.reason")).alias("reason"),
        F.when(emptied, F.lit(EMPTIED)).otherwise(F.lit(RECORDS)).alias("kind"),
        F.when(moves, F.col(contract.event_time)).alias("newest"),
        F.when(moves, F.expr(clock(contract))).alias("clock"),
        *_places(),
    )


def _by_day(blocks: DataFrame) -> DataFrame:
    """Return the rows of kind `records` and `emptied`."""
    return blocks.groupBy(*_OF_DAY).agg(F.sum("records").alias("records"), *_newest("newest", "clock"))


def _blocks(records: DataFrame, *by: str) -> DataFrame:
    """Return the figures of the records by blocks of 64 offsets, with one bit for each offset.

    So records are read once, and distinct offsets are counted without a shuffle of the records.

    Args:
        records: The columns `by`, `topic, partition, offset, sent, appended`; perhaps `newest, clock`.
        by: What further columns the blocks are divided by.

    Returns:
        The columns `by`, `topic, partition, block bigint, offsets bigint` (the bits), `first, last, records`,
        and the newest of the others.
    """
    block, bit = F.expr("shiftright(offset, 6)"), F.expr("shiftleft(1L, CAST(offset & 63 AS INT))")
    moments = {"newest", "clock", "sent", "appended"} & {*records.columns}
    return records.groupBy(*by, "topic", "partition", block.alias("block")).agg(
        F.bit_or(bit).alias("offsets"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("records"),
        *_newest(*sorted(moments)),
    )


def _newest(*names: str) -> list[Column]:
    return [F.max(name).alias(name) for name in names]


def _pieces(blocks: DataFrame) -> DataFrame:
    """Return the rows of kind `offsets`: one for each partition, and one for each commit that goes back.

    A backfill does. If its offsets and those of ingest were one piece, the offsets that are missing in
    between could not be told.

    Args:
        blocks: As `_blocks` gives them.
    """
    ends = (F.min("first").alias("first"), F.max("last").alias("last"))
    whole_blocks = blocks.groupBy("topic", "partition", "commit", "block").agg(
        F.bit_or("offsets").alias("offsets"),
        F.sum("records").alias("records"),
        *ends,
        *_newest("sent", "appended"),
    )
    by_commit = whole_blocks.groupBy("topic", "partition", "commit").agg(
        *ends,
        F.sum("records").alias("records"),
        F.sum(F.bit_count("offsets")).alias("distinct"),
        *_newest("sent", "appended"),
    )
    earlier = Window.partitionBy("topic", "partition").orderBy("commit")
    until = F.max("last").over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    apart = by_commit.withColumn("apart", F.when(F.col("first") <= until, F.col("commit")))
    sums = (F.sum("records").alias("records"), F.sum("distinct").alias("distinct"))
    of_piece = apart.groupBy("topic", "partition", "apart")
    pieces = of_piece.agg(*ends, *sums, *_newest("sent", "appended")).drop("apart")
    return pieces.withColumn("kind", F.lit(OFFSETS))
