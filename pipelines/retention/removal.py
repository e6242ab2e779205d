"""Which rows retention may remove from the tables of a lake; see `pipelines.retention.removal_terms`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import Layer
from pipelines.delta.conditions import days_condition
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.io import read, small_rows
from pipelines.delta.tables import exists
from pipelines.ledger.certifications import Certified, Verdict, certified, verdicts
from pipelines.ledger.retention_properties import speed_from
from pipelines.publishing.published_days import may_wait
from pipelines.records.send_time import sent_by
from pipelines.retention.blockers import (
    days_with_later_records,
    first_broken_not_quarantined,
    first_unread,
    first_unresolved,
    records_of_days,
)
from pipelines.retention.removal_terms import FirstOffset
from pipelines.spark.pipeline import Pipeline


def first_offsets_kept(bronze: DataFrame, sent: datetime) -> list[FirstOffset]:
    """Return the first offset of each Kafka partition that was sent at a moment or later.

    A partition without such a record keeps its last one, which shows the audit that none is missing.
    """
    first_kept = F.min(F.when(sent_by() >= F.lit(sent), F.col("_offset")))
    return _by_partition(bronze, F.least(first_kept, F.max("_offset")))


def first_there(bronze: DataFrame) -> list[FirstOffset]:
    """Return the first offset of each Kafka partition that bronze holds."""
    return _by_partition(bronze, F.min("_offset"))


def _by_partition(bronze: DataFrame, offset: Column) -> list[FirstOffset]:
    partitions = bronze.groupBy(F.col("_topic").alias("topic"), F.col("_partition").alias("partition"))
    return [FirstOffset(**row) for row in small_rows(partitions.agg(offset.alias("offset")))]


@dataclass(frozen=True)
class SparkRetentionLake:
    """The tables of a lake, see `pipelines.retention.removal_terms.RetentionLake`."""

    pipeline: Pipeline

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration."""
        return self.pipeline.config

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which days end."""
        return self.pipeline.contract.zone

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def has(self, layer: Layer) -> bool:
        """Return whether there is a table."""
        return exists(self.pipeline.spark, self.pipeline.table(layer))

    def first_complete_day(self) -> date | None:
        """Return the first complete day, or None if bronze never lost records."""
        return first_complete_day(self.pipeline)

    def first_unread(self) -> datetime | None:
        """Return when the first record was sent that `speed_stream` has not read; None if there is none."""
        return first_unread(self.pipeline)

    def first_unresolved(self) -> datetime | None:
        """Return when the first unresolved record of the quarantine was sent; None if there is none."""
        return first_unresolved(self.pipeline)

    def first_broken_not_quarantined(self, condition: str) -> datetime | None:
        """Return when the first record was sent that breaks the contract and is not in quarantine."""
        return first_broken_not_quarantined(self.pipeline, condition)

    def records_of_days(self) -> Mapping[date, int]:
        """Return how many valid records bronze holds of each event day that can be certified."""
        return records_of_days(self.pipeline)

    def verdicts(self) -> Sequence[Verdict]:
        """Return the newest verdict on each day."""
        return verdicts(self.pipeline)

    def days_with_later_records(self) -> Collection[date]:
        """Return certified days of which records came after they were certified."""
        return days_with_later_records(self.pipeline)

    def certified(self) -> Certified | None:
        """Return what is certified; None if no day ever was."""
        return certified(self.pipeline)

    def first_offsets_kept(self, sent: datetime) -> list[FirstOffset]:
        """Return the first offset of each partition that was sent at a moment or later, or else its last."""
        return first_offsets_kept(self._read("bronze"), sent)

    def first_offsets(self) -> list[FirstOffset]:
        """Return the first offset of each partition that bronze holds."""
        return first_there(self._read("bronze"))

    def count(self, layer: Layer, condition: str) -> int:
        """Return how many rows of a table meet a condition, in SQL."""
        return self._read(layer).where(condition).count()

    def count_days(self, layer: Layer, condition: str) -> dict[date, int]:
        """Return how many rows of a table meet a condition, in SQL, by event day."""
        by_day = self._read(layer).where(condition).groupBy("_event_date").count()
        return {row["_event_date"]: row["count"] for row in small_rows(by_day)}

    def first_row_day(self, days: Collection[date], since: date) -> date | None:
        """Return the first day, from one on, that the speed layer has rows of and that is not among some."""
        others = self._read("speed").where(~F.expr(days_condition([*days])))
        (row,) = others.agg(
            F.min(F.expr(f"CASE WHEN _event_date >= '{since}' THEN _event_date END"))
        ).toLocalIterator()
        found: date | None = row[0]
        return found

    def days_to_publish(self) -> list[date]:
        """Return days that were certified, of which `publish_stream` has not sent the changes."""
        return [verdict.day for verdict in may_wait(self.pipeline)]

    def speed_from(self) -> date | None:
        """Return the first day of which the speed layer has all rows, or None if it never lost any."""
        return speed_from(self.pipeline)

    def _read(self, layer: Layer) -> DataFrame:
        # By Delta's own list of files, since what goes by this does not come back.
        return read(self.pipeline.spark, self.pipeline.table(layer))
