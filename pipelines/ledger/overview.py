"""What the tables under `ops/` say of many pipelines of a lake, each table read once for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.delta.io import small_rows
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import conform, exists
from pipelines.ledger.certifications import Verdict, newest, standing
from pipelines.ledger.lease_holders import Holder, backfill_lease_name
from pipelines.ledger.ops_tables import (
    CERTIFICATIONS,
    LEASES,
    PUBLISHED_DAYS,
    RUNS,
    VALIDATION_RESULTS,
    TableSpec,
)

_CHECKS_NAMED: Final = 20


@dataclass(frozen=True)
class RunStep:
    """A step of the newest nightly run.

    Attributes:
        run_id: The run.
        step: Its name.
        status: `done` or `failed`.
        first_day: The first day that the run works on.
        last_day: The last one.
        detail: What the step says.
        started_at: When it began.
        seconds: How long it took.
    """

    run_id: str
    step: str
    status: str
    first_day: date
    last_day: date
    detail: str
    started_at: datetime
    seconds: float


@dataclass(frozen=True)
class LeaseState:
    """Who holds, or was the last to hold, a lease of a pipeline.

    Attributes:
        run_id: The run.
        job: The command that the run is of; None if it did not tell, as those of earlier releases.
        host: The name of its machine.
        pid: Its process.
        since: Since when.
        until: Until when, unless it is renewed; past, if it was given back.
        is_gone: Whether the process is known to have ended.
    """

    run_id: str
    job: str | None
    host: str
    pid: int
    since: datetime
    until: datetime
    is_gone: bool

    def is_held(self, now: datetime) -> bool:
        """Return whether the lease has not been given back, and its time is not over."""
        return self.until > now


@dataclass(frozen=True)
class SettledDays:
    """What `publish_stream` has settled on the output topic.

    Attributes:
        days: How many days.
        newest: The newest of them.
        version: The version of the batch table that they follow.
    """

    days: int
    newest: date
    version: int


@dataclass(frozen=True)
class PipelineLedger:
    """What the ledgers say of one pipeline.

    Attributes:
        verdicts: The newest verdict that stands on each day of the last ones, in the order of the days.
        older_failed: How many days before those have a newest verdict that failed.
        failed_checks: Names of the checks that failed, by day, for verdicts that failed.
        steps: The steps of the newest nightly run, in their order.
        lease: Who holds its lease, or held it last; None if nobody ever has.
        settled: By the id of a publishing query, what it has settled.
        backfill_lease: Who holds, or held last, the lease of its backfills; None if nobody ever has.
    """

    verdicts: tuple[Verdict, ...] = ()
    older_failed: int = 0
    failed_checks: Mapping[date, tuple[str, ...]] = field(default_factory=dict)
    steps: tuple[RunStep, ...] = ()
    lease: LeaseState | None = None
    settled: Mapping[str, SettledDays] = field(default_factory=dict)
    backfill_lease: LeaseState | None = None


def ledgers(spark: SparkSession, configs: Sequence[PipelineConfig], days: int) -> dict[str, PipelineLedger]:
    """Return what the ledgers of one lake say of its pipelines, by their names.

    Args:
        spark: The session.
        configs: Of pipelines with the same `lake.root`, one at least.
        days: Of how many days verdicts are returned, up to the newest day with one.
    """
    tables = _Tables(spark, configs)
    verdicts, older = _verdicts(tables, configs, days), _older_failed(tables, days)
    checks = _failed_checks(tables, [each for of_one in verdicts.values() for each in of_one])
    steps, leases, settled = _steps(tables), _leases(tables), _settled(tables)
    return {
        name: PipelineLedger(
            shown := tuple(verdicts.get(name, ())),
            older.get(name, 0),
            {
                each.day: checks.get((name, each.run_id, each.day), ())
                for each in shown
                if each.status == "failed"
            },
            steps.get(name, ()),
            leases.get(name),
            settled.get(name, {}),
            leases.get(backfill_lease_name(name)),
        )
        for name in (config.name for config in configs)
    }


class _Tables:
    """The tables under `ops/` of a lake, of some pipelines alone."""

    def __init__(self, spark: SparkSession, configs: Sequence[PipelineConfig]) -> None:
        self._spark, self._configs = spark, configs

    @property
    def names(self) -> list[str]:
        """The names of the pipelines."""
        return [config.name for config in self._configs]

    def rows(self, spec: TableSpec, names: Sequence[str] = ()) -> DataFrame | None:
        """Return the rows of the pipelines; None if there is no such table yet.

        Args:
            spec: The table.
            names: Further names whose rows are returned.
        """
        path = self._configs[0].ops_table(spec.name)
        if not exists(self._spark, path):
            return None
        wanted = [*self.names, *names]
        # A table of an earlier release lacks columns.
        return conform(read_small(self._spark, path), spec.schema).where(F.col("pipeline").isin(wanted))


def _collected(rows: DataFrame | None) -> list[dict[str, Any]]:
    return small_rows(rows) if rows is not None else []


def _verdicts(tables: _Tables, configs: Sequence[PipelineConfig], days: int) -> dict[str, list[Verdict]]:
    """Return the newest verdict that stands on each of the last days, by pipeline, in order of days."""
    rows = tables.rows(CERTIFICATIONS)
    if rows is None:
        return {}
    # Which version was built upon which decides on the verdicts that stand, so one of each is needed.
    of_version = Window.partitionBy("pipeline", "batch_version", "status").orderBy("day")
    is_first = (F.row_number().over(of_version) == 1) & (F.col("status") == "certified")
    wanted = _with_recent(rows, days).withColumn("_first", is_first).where("_recent OR _first")
    names = [each.name for each in fields(Verdict)]
    by_pipeline: dict[str, list[Verdict]] = {}
    recent: set[tuple[str, date]] = set()
    for row in small_rows(wanted.select("_recent", *names)):
        if row.pop("_recent"):
            recent.add((row["pipeline"], row["day"]))
        by_pipeline.setdefault(row["pipeline"], []).append(Verdict(**row))
    found = {}
    for config in configs:
        # As `pipelines.ledger.certifications.history` orders them.
        ordered = sorted(
            by_pipeline.get(config.name, []), key=lambda v: (v.epoch or 0, v.decided_at, v.batch_version)
        )
        standing_verdicts = newest(standing(config, ordered)).items()
        found[config.name] = [each for day, each in standing_verdicts if (config.name, day) in recent]
    return found


def _with_recent(rows: DataFrame, days: int) -> DataFrame:
    """Return verdicts with `_recent`: whether the day is one of the last up to the newest of its pipeline."""
    last = F.max("day").over(Window.partitionBy("pipeline"))
    return rows.withColumn("_recent", F.col("day") > F.date_sub(last, days))


def _older_failed(tables: _Tables, days: int) -> dict[str, int]:
    rows = tables.rows(CERTIFICATIONS)
    if rows is None:
        return {}
    newest_first = (F.desc_nulls_last(name) for name in ("epoch", "decided_at", "batch_version"))
    latest = Window.partitionBy("pipeline", "day").orderBy(*newest_first)
    older = _with_recent(rows, days).where("NOT _recent").withColumn("_n", F.row_number().over(latest))
    failed = older.where((F.col("_n") == 1) & (F.col("status") == "failed"))
    counted = small_rows(failed.groupBy("pipeline").count())
    return {row["pipeline"]: row["count"] for row in counted}


def _failed_checks(
    tables: _Tables, verdicts: Iterable[Verdict]
) -> dict[tuple[str, str, date], tuple[str, ...]]:
    runs = sorted({verdict.run_id for verdict in verdicts if verdict.status == "failed"})
    rows = tables.rows(VALIDATION_RESULTS) if runs else None
    if rows is None:
        return {}
    failed = rows.where((F.col("status") == "failed") & F.col("run_id").isin(runs))
    names = F.slice(F.sort_array(F.collect_set("name")), 1, _CHECKS_NAMED).alias("names")
    grouped = small_rows(failed.groupBy("pipeline", "run_id", "day").agg(names))
    return {(row["pipeline"], row["run_id"], row["day"]): tuple(row["names"]) for row in grouped}


def _steps(tables: _Tables) -> dict[str, tuple[RunStep, ...]]:
    rows = tables.rows(RUNS)
    if rows is None:
        return {}
    newest_run = Window.partitionBy("pipeline")
    began = F.max_by("run_id", "started_at").over(newest_run)
    seconds = (F.unix_millis("ended_at") - F.unix_millis("started_at")) / 1000
    wanted = rows.withColumn("_newest", began).where(F.col("run_id") == F.col("_newest"))
    names = ("run_id", "step", "status", "first_day", "last_day", "detail", "started_at")
    found = small_rows(wanted.select("pipeline", *names, seconds.alias("seconds")))
    return {
        pipeline: tuple(RunStep(**{name: row[name] for name in (*names, "seconds")}) for row in steps)
        for pipeline, steps in _by_pipeline(found, "started_at")
    }


def _leases(tables: _Tables) -> dict[str, LeaseState]:
    found = {}
    of_backfills = [backfill_lease_name(name) for name in tables.names]
    for row in _collected(tables.rows(LEASES, of_backfills)):
        holder = Holder(**{each.name: row[each.name] for each in fields(Holder)})
        since, until = row["since"].astimezone(UTC), row["until"].astimezone(UTC)
        found[row["pipeline"]] = LeaseState(
            row["holder"], row["job"], holder.host, holder.pid, since, until, holder.is_gone()
        )
    return found


def _settled(tables: _Tables) -> dict[str, dict[str, SettledDays]]:
    rows = tables.rows(PUBLISHED_DAYS)
    if rows is None:
        return {}
    grouped = rows.groupBy("pipeline", "query").agg(
        F.count_distinct("day").alias("days"),
        F.max("day").alias("newest"),
        F.max("batch_version").alias("version"),
    )
    found: dict[str, dict[str, SettledDays]] = {}
    for row in small_rows(grouped.where("newest IS NOT NULL")):
        settled = SettledDays(row["days"], row["newest"], row["version"])
        found.setdefault(row["pipeline"], {})[row["query"]] = settled
    return found


def _by_pipeline(
    rows: Iterable[dict[str, Any]], order: str
) -> Iterable[tuple[str, Iterable[dict[str, Any]]]]:
    ordered = sorted(rows, key=lambda row: (row["pipeline"], row[order]))
    return groupby(ordered, key=lambda row: str(row["pipeline"]))
