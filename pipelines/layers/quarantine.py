"""Quarantine: what broke its contract is looked at, put back when the contract takes it, or given up.

No row is ever deleted: `_status` says what became of it (`open`, `replayed`, `discarded`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from operator import and_
from typing import Any, Final

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import ERROR, EVENT_DATE, VALID, decode, valid
from pipelines.dedup import winners
from pipelines.errors import SourceError
from pipelines.ops.certification import certified
from pipelines.ops.lease import lease
from pipelines.quality.facts import small_rows
from pipelines.sinks.delta import append, read
from pipelines.sinks.tables import ensure_speed, exists, version

STATUSES: Final = ("open", "replayed", "discarded")
_COORDINATES: Final = ("_topic", "_partition", "_offset")


@dataclass(frozen=True)
class Selection:
    """Which records of the quarantine are meant; what is left empty does not narrow it.

    Attributes:
        status: one of `STATUSES`, or None for any.
        reasons: reason codes.
        since: sent (by Kafka's timestamp) at this moment or later.
        until: sent before this moment.
        partitions: Kafka partitions.
        contract_versions: versions of the contract that refused them.
    """

    status: str | None = "open"
    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    partitions: tuple[int, ...] = ()
    contract_versions: tuple[str, ...] = ()

    def condition(self) -> Column:
        """Whether a row of the quarantine is meant."""
        parts = [F.lit(True)]
        if self.status:
            parts.append(F.col("_status") == self.status)
        for column, values in (
            ("_reason", self.reasons),
            ("_partition", self.partitions),
            ("_contract_version", self.contract_versions),
        ):
            if values:
                parts.append(F.col(column).isin(*values))
        if self.since:
            parts.append(F.col("_kafka_timestamp") >= F.lit(self.since))
        if self.until:
            parts.append(F.col("_kafka_timestamp") < F.lit(self.until))
        return reduce(and_, parts)


def summarise(spark: SparkSession, config: PipelineConfig, selection: Selection) -> list[dict[str, Any]]:
    """Counts records by what became of them and why they are there.

    Returns:
        For each group `status, reason, column, contract_version, records, attempts` (the most tries of one
        record), `first_sent` and `last_sent`; the largest groups first.
    """
    picked = _picked(spark, config, selection)
    groups = picked.groupBy(
        *(F.col(f"_{name}").alias(name) for name in ("status", "reason", "column", "contract_version"))
    ).agg(
        F.count_distinct(*_COORDINATES).alias("records"),
        F.max("_attempts").alias("attempts"),
        F.min("_kafka_timestamp").alias("first_sent"),
        F.max("_kafka_timestamp").alias("last_sent"),
    )
    return small_rows(groups.orderBy(F.desc("records"), "status", "reason", "column"))


def examples(
    spark: SparkSession, config: PipelineConfig, selection: Selection, limit: int
) -> list[dict[str, Any]]:
    """The first records in Kafka's order, each with its coordinates, reason and value (as bytes)."""
    picked = _picked(spark, config, selection).orderBy("_kafka_timestamp", *_COORDINATES).limit(limit)
    return small_rows(picked.drop("key", "headers"))


def discard(spark: SparkSession, config: PipelineConfig, selection: Selection) -> dict[str, Any]:
    """Marks open records as given up; they are not shown as open and not replayed any more.

    Nothing else changes: a rebuild that finds them valid under a later contract takes them in.
    """
    chosen = _picked(spark, config, selection).select(*_COORDINATES).distinct()
    records = chosen.count()
    _mark(spark, config, chosen, {"_status": F.lit("discarded"), "_tried_at": F.current_timestamp()})
    return {"counts": {"records": records}}


@dataclass(frozen=True)
class Replay:
    """What a replay has done so far, and what a rebuild has to complete.

    Attributes:
        counts: `records` = `still_broken` + `rows` (new in the speed layer) + `copies` (of events that
            readers have) + `closed` (of certified days).
        days: certified days that must be rebuilt to take records in.
        closed: the coordinates of these records.
    """

    counts: dict[str, int]
    days: tuple[date, ...]
    closed: DataFrame


def replay(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    selection: Selection,
    *,
    dry_run: bool,
) -> Replay:
    """Decodes records again by today's contract and puts those that pass where they belong.

    Events of days that are not certified enter the speed layer, unless their key is there. Events of
    certified days are left to a rebuild of these days, which reads them from bronze; call `rebuilt`
    afterwards. What is still broken stays open, with its new reason. Done twice, the second adds nothing.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: the contract of today.
        run_id: the holder of the lease meanwhile.
        selection: which of the open records.
        dry_run: count, and change nothing.

    Raises:
        InfrastructureError: another run holds the pipeline's lease.
        SourceError: there is no quarantine yet.
    """
    ensure_speed(spark, config, contract)
    with lease(spark, config, run_id):
        at = version(spark, _table(spark, config))
        picked = _picked(spark, config, selection, at).dropDuplicates(list(_COORDINATES))
        judged = decode(
            picked.drop(*(name for name in picked.columns if name in _OURS)),
            contract,
            config.decode.max_future,
        ).persist()
        try:
            return _put_back(spark, config, contract, judged, dry_run=dry_run)
        finally:
            judged.unpersist()


_OURS: Final = (
    "_reason",
    "_column",
    "_found",
    "_contract_version",
    "_quarantined_at",
    "_status",
    "_attempts",
    "_tried_at",
)


def _put_back(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, judged: DataFrame, *, dry_run: bool
) -> Replay:
    state = certified(spark, config)
    is_closed = F.col(EVENT_DATE).isin(*state.days) if state else F.lit(False)
    passed = valid(judged, contract)
    closed = passed.where(is_closed)
    days = tuple(row["day"] for row in small_rows(_days(closed)))
    new = _unknown(spark, config, contract, passed.where(~is_closed)).persist()
    try:
        counts = {
            "records": judged.count(),
            "still_broken": judged.where(~F.col(VALID)).count(),
            "rows": new.count(),
            "closed": closed.count(),
        }
        counts["copies"] = counts["records"] - counts["still_broken"] - counts["rows"] - counts["closed"]
        if not dry_run:
            if counts["rows"]:
                append(new, config.table("speed"))
            _mark(spark, config, passed.where(~is_closed).select(*_COORDINATES), _tried("replayed"))
            _mark_broken(spark, config, contract, judged.where(~F.col(VALID)))
    finally:
        new.unpersist()
    return Replay(counts, days, _fixed(spark, closed.select(*_COORDINATES)))


def rebuilt(spark: SparkSession, config: PipelineConfig, done: Replay) -> None:
    """Marks the records of certified days as replayed; to be called when their days are rebuilt."""
    _mark(spark, config, done.closed, _tried("replayed"))


def _unknown(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, events: DataFrame
) -> DataFrame:
    """The winners among events whose keys no reader has within the horizon."""
    horizon = config.batch.dedup_horizon_days
    chosen = winners(events, contract, horizon)
    layers = [read(spark, config.table("speed"))]
    state = certified(spark, config)
    if state:
        layers.append(read(spark, config.table("batch"), state.version))
    for layer in layers:
        known = layer.select(
            *(F.col(name).alias(f"_s_{name}") for name in contract.key), F.col(EVENT_DATE).alias("_s_day")
        )
        same = reduce(and_, (F.col(name) == F.col(f"_s_{name}") for name in contract.key))
        near = F.abs(F.datediff(EVENT_DATE, "_s_day")) <= F.lit(horizon)
        chosen = chosen.join(known, same & near, "left_anti")
    return chosen


def _days(closed: DataFrame) -> DataFrame:
    return closed.select(F.col(EVENT_DATE).alias("day")).distinct().orderBy("day")


def _fixed(spark: SparkSession, coordinates: DataFrame) -> DataFrame:
    """The same rows, whatever becomes of the tables that they were read from."""
    return spark.createDataFrame(coordinates.toArrow(), coordinates.schema)


def _table(spark: SparkSession, config: PipelineConfig) -> str:
    table = config.table("quarantine")
    if not exists(spark, table):
        raise SourceError(f"{table}: no such table; run speed_stream first, or mend lake.root")
    return table


def _picked(
    spark: SparkSession, config: PipelineConfig, selection: Selection, at: int | None = None
) -> DataFrame:
    return read(spark, _table(spark, config), at).where(selection.condition())


def _tried(status: str) -> dict[str, str | Column]:
    return {
        "_status": F.lit(status),
        "_attempts": F.col("q._attempts") + 1,
        "_tried_at": F.current_timestamp(),
    }


def _mark_broken(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, broken: DataFrame
) -> None:
    error = {f"_{part}": F.col(f"{ERROR}.{part}") for part in ("reason", "column", "found")}
    found = broken.select(*_COORDINATES, *(value.alias(f"_new{name}") for name, value in error.items()))
    changes: dict[str, str | Column] = {name: F.col(f"o._new{name}") for name in error}
    changes["_contract_version"] = F.lit(contract.version)
    _mark(spark, config, found, changes | _tried("open"))


@retry(
    retry=retry_if_exception_type(DeltaConcurrentModificationException),
    wait=wait_random_exponential(multiplier=0.5, max=10),
    stop=stop_after_attempt(6),
    reraise=True,
)
def _mark(
    spark: SparkSession, config: PipelineConfig, chosen: DataFrame, changes: dict[str, str | Column]
) -> None:
    """Changes columns of the open rows whose coordinates are among `chosen`."""
    same: Sequence[str] = [f"q.{name} = o.{name}" for name in _COORDINATES]
    (
        DeltaTable.forPath(spark, _table(spark, config))
        .alias("q")
        .merge(chosen.alias("o"), " AND ".join([*same, "q._status = 'open'"]))
        .whenMatchedUpdate(set=changes)
        .execute()
    )
