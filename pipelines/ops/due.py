"""Which days a nightly run has to rebuild, and why."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import EVENT_DATE, ORIGIN, valid
from pipelines.dedup import OTHER_DAY, other_names, same_event, with_key
from pipelines.errors import ConfigError
from pipelines.faults import FIRST_DAY
from pipelines.ops.bronze_index import BronzeIndex, pieces_of
from pipelines.ops.certification import Verdict, certified_in, newest_certified, of_bronze
from pipelines.ops.retention import whole_from
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality.facts import around, days_of, reach
from pipelines.sinks.delta import on_days, read, small_rows
from pipelines.sinks.tables import shape, small_frame

Cause = Literal["asked", "missed", "late", "neighbour"]
Repair = Literal["nothing", "late", "late and missed"]

_DAY: Final = timedelta(days=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Due:
    """The days that a run rebuilds.

    Attributes:
        causes: why, by day in their order: `asked` for by the user; `missed`, since no run has certified it
            yet; `late`, since records came after it was certified; `neighbour`, since a copy of an event
            that stands on it came with another day, or the other way round.
        came_late: records of each day that came after it was certified, of all days that have such.
        never_certified: days before those that are asked for, of which bronze has events, that no run has
            certified and this one leaves as they are.
    """

    causes: dict[date, Cause]
    came_late: dict[date, int]
    never_certified: list[date]

    @property
    def days(self) -> list[date]:
        """The days, in order."""
        return list(self.causes)

    @property
    def left(self) -> list[date]:
        """Days that have late records and are not rebuilt by this run."""
        return [day for day in sorted(self.came_late) if day not in self.causes]


def closed_days(contract: DataContract, first: date | None, last: date | None) -> tuple[date, date]:
    """The range of days to work on; yesterday in the contract's zone if none is named.

    Raises:
        ConfigError: the range is empty, or a day of it is not over yet.
    """
    today = datetime.now(contract.zone).date()
    yesterday = today - timedelta(days=1)
    first = first or last or yesterday
    last = last or first
    if first > last:
        raise ConfigError(f"--from {first} --to {last}: the first day lies after the last; swap them")
    if first < FIRST_DAY:
        raise ConfigError(f"{first}: Kafka knows no day before {FIRST_DAY}; mend the date")
    if last >= today:
        raise ConfigError(
            f"{last} is not over in {contract.day_time_zone}, where it is {today} now;"
            f" the last day that can be rebuilt is {yesterday}"
        )
    return first, last


def due_days(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    index: BronzeIndex,
    asked: Sequence[date],
    repair: Repair,
    ledger: Sequence[Verdict],
) -> Due:
    """The days that are asked for, and those before them that need repair.

    Args:
        spark: the session.
        config: the pipeline's configuration; `batch.lookback_days` bounds how far back is repaired.
        contract: names the key.
        index: the index of bronze.
        asked: the days that are asked for, sorted.
        repair: which other days of the lookback are taken as well.
        ledger: the verdicts so far.
    """
    certified = newest_certified(ledger)
    versions = _known(certified, ledger, index)
    whole = whole_from(spark, config) or date.min
    with_events = index.counts()[0]
    late = index.came_since({d: known for d, known in versions.items() if known is not None}, spark)
    others = [certified[day] for day, known in versions.items() if known is None and day >= whole]
    late |= _more_than_before(others, with_events)
    late = {day: n for day, n in late.items() if day >= whole}
    causes: dict[date, Cause] = dict.fromkeys(asked, "asked")
    lookback = days_of(asked[0] - config.batch.lookback_days * _DAY, asked[0] - _DAY)
    if repair != "nothing":
        causes |= dict.fromkeys((day for day in lookback if day in late), "late")
    if repair == "late and missed":
        first = min([*certified, *with_events], default=asked[0])
        missed = (day for day in lookback if day >= first and day not in certified)
        causes |= dict.fromkeys(missed, "missed")
    while near := _neighbours(spark, config, contract, index, sorted(causes), late, (certified, versions)):
        causes |= dict.fromkeys(near, "neighbour")
    causes = {day: causes[day] for day in sorted(causes) if day >= whole}
    left = [
        day
        for day in sorted(with_events)
        if whole <= day < asked[0] and day not in certified and day not in causes
    ]
    return Due(causes, late, left)


def _neighbours(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    index: BronzeIndex,
    days: Sequence[date],
    late: Collection[date],
    known: tuple[Mapping[date, Verdict], Mapping[date, int | None]],
) -> list[date]:
    """Certified days next to these that have to be rebuilt with them.

    On some an event stands whose copy has come since with one of these days. That copy may win, and the row
    of the certified day must go then. For others records came late, which may win over a row of these days.
    """
    certified, seen = known
    horizon = reach(contract, config.batch.dedup_horizon_days)
    near = [day for day in around(days, horizon) if day in certified and day not in days]
    found = [day for day in near if day in late]
    near = [day for day in near if day not in late]
    state = certified_in(certified.values())
    if state is None or not near:
        return found
    # All that another bronze holds is new to a day.
    versions = {day: -1 if (at := seen[day]) is None else at for day in near}
    pieces = pieces_of(spark, config, index, [], min(versions.values()))
    came = valid(decode_all(spark, config, contract, pieces.envelopes), contract).select(
        "*", F.col(ORIGIN[-1]).alias("ingested_at")
    )
    commits = index.records.groupBy("ingested_at").agg(F.max("commit").alias("_commit"))
    new = with_key(came.where(on_days(days)).join(F.broadcast(commits), "ingested_at"), contract)
    of_day = _frame(spark, versions).withColumnRenamed("day", OTHER_DAY)
    rows = read(spark, config.table("batch"), state.version).where(on_days(near))
    rows = rows.select(*other_names(contract)).join(F.broadcast(of_day), OTHER_DAY)
    touched = new.select(*contract.key_names, EVENT_DATE, "_commit").join(
        rows, same_event(contract, horizon) & (F.col("_commit") > F.col("known"))
    )
    return found + [row[OTHER_DAY] for row in small_rows(touched.select(OTHER_DAY).distinct())]


def _known(
    certified: Mapping[date, Verdict], ledger: Sequence[Verdict], index: BronzeIndex
) -> dict[date, int | None]:
    """Up to which version of bronze each certified day knows it; None if it was built from another bronze."""
    alike = set(of_bronze(ledger, index.bronze_id))
    return {day: verdict.bronze_version if verdict in alike else None for day, verdict in certified.items()}


def _more_than_before(others: Sequence[Verdict], records: Mapping[date, int]) -> dict[date, int]:
    """Of days that were built from another bronze, how many valid records this one has more.

    A day of which it has fewer is left as it is: the rows that are certified may be all that is left of them.
    """
    more = {verdict.day: records.get(verdict.day, 0) - verdict.records for verdict in others}
    if fewer := [day for day, n in more.items() if n < 0]:
        _log.warning(
            "certified days of which bronze, which is another table now, holds fewer records than when they"
            " were built; they are left as they are: %s",
            ", ".join(map(str, fewer)),
        )
    return {day: n for day, n in more.items() if n > 0}


def _frame(spark: SparkSession, versions: Mapping[date, int]) -> DataFrame:
    rows = [{"day": day, "known": version} for day, version in versions.items()]
    return small_frame(spark, rows, shape("day date, known bigint"))
