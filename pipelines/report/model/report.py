"""The data of a quality report: one day of one pipeline, as numbers and words.

`pipelines.steps.report` fills a `ReportData` from the lake; `pipelines.report.render.html_page` renders it.
Counts are records of Kafka or rows of a table, never negative. Instants are aware datetimes. Sums are *not*
validated here: a report has to be able to show that they do not add up.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AwareDatetime, Field

from pipelines.ledger.checks import LAYERS_AGREE, CheckKind, CheckStatus
from pipelines.report.model.history import Comparison, PastVerdict, Repair
from pipelines.report.model.layer_differences import LayerDifferences
from pipelines.report.model.records import ConflictSample, Count, Model, QuarantineReason, Text


def _known_zone(name: str) -> str:
    """Refuse a time zone that the tz database does not have.

    Raises:
        ValueError: The name is not an IANA time zone.
    """
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{name!r} is not an IANA time zone such as 'America/New_York'") from error
    return name


PipelineName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Zone: TypeAlias = Annotated[str, AfterValidator(_known_zone)]
DayStatus: TypeAlias = Literal["certified", "failed", "not_certified", "open"]


class DayVerdict(Model):
    """What the audit said about the day.

    Attributes:
        status: ``certified`` the audit passed and readers get the day from the batch layer; ``failed`` the
            last audit failed; ``not_certified`` a past day on which no run has decided; ``open`` the
            day is not over.
        certified_at: When the day was certified, if it was.
        run_id: The run whose audit this is.
        batch_version: Version of the batch table that was audited.
        bronze_version: Version of bronze that the rebuild read.
        passed: Checks that passed.
        failed: Checks that failed.
        warned: Checks that found something that does not stop the certification.
    """

    status: DayStatus
    certified_at: AwareDatetime | None = None
    run_id: Text | None = None
    batch_version: Count | None = None
    bronze_version: Count | None = None
    passed: Count
    failed: Count
    warned: Count


class Flow(Model):
    """Where the records went, in counts.

    Two sums hold in a sound lake: ``bronze = other_days + quarantined + day_records`` and
    ``day_records = batch + duplicates``. A third holds where nothing but lateness separates the layers:
    ``batch = speed + late``. Where the speed layer lags, or has let a key through twice, the check
    ``layers_agree`` judges what separates them.

    Attributes:
        bronze: Records in bronze at the audited version.
        other_days: Of these, records whose event day is another one.
        quarantined: Of these, records that break the contract.
        day_records: Of these, records of this day.
        duplicates: Copies of the day's records that the rebuild removed.
        conflicts: Dedup keys of this day whose copies carry different payloads.
        batch: Rows of this day in the batch layer.
        speed: Rows of this day in the speed layer.
        late: Rows that only the rebuild has, as they came after the speed layer's horizon.
    """

    bronze: Count
    other_days: Count
    quarantined: Count
    day_records: Count
    duplicates: Count
    conflicts: Count
    batch: Count
    speed: Count
    late: Count

    @property
    def missing_from_day(self) -> int:
        """Records of bronze that no destination accounts for; negative if too many do. Zero is right."""
        return self.bronze - self.other_days - self.quarantined - self.day_records

    @property
    def missing_from_batch(self) -> int:
        """Records of the day that are neither a row nor a removed duplicate. Zero is right."""
        return self.day_records - self.batch - self.duplicates

    @property
    def missing_from_speed(self) -> int:
        """Rows of the batch layer that are neither in the speed layer nor known as late. Zero is right."""
        return self.batch - self.speed - self.late


class HourCount(Model):
    """One hour of the event day; a day has 23, 24 or 25.

    Attributes:
        hour_start: First instant of the hour (event time).
        records: Records of bronze in this hour, copies included.
        duplicates: Of these, the copies that the rebuild removed.
    """

    hour_start: AwareDatetime
    records: Count
    duplicates: Count


@dataclass(frozen=True)
class LatenessCount:
    """How many records lie in a range of lateness.

    Attributes:
        lower_s: Lower bound in seconds, inclusive; None for no bound.
        upper_s: Upper bound in seconds, exclusive; None for no bound.
        records: Records of the day in this range.
    """

    lower_s: float | None
    upper_s: float | None
    records: int


class LatenessBucket(Model):
    """Records by lateness, which is the Kafka timestamp minus the event time.

    Attributes:
        label: The range in words, such as ``1 to 6 h``.
        lower_s: Lower bound in seconds, inclusive; None for no bound.
        upper_s: Upper bound in seconds, exclusive; None for no bound.
        records: Records of the day in this range.
    """

    label: Text
    lower_s: float | None = None
    upper_s: float | None = None
    records: Count


class ReportCheck(Model):
    """One check of the audit and what it found.

    Attributes:
        name: Name of the check.
        kind: ``integrity`` for Oncelake's own checks, ``expectation`` for those from the contract.
        status: Whether it passed.
        observed: What was found, in words or numbers.
        expected: What would have been right.
        detail: More for the one who has to fix it; may be empty.
    """

    name: Text
    kind: CheckKind
    status: CheckStatus
    observed: Text
    expected: Text
    detail: Text


class TrendDay(Model):
    """One day of the trend.

    Attributes:
        day: The event day.
        status: Its verdict.
        rows: Rows in the batch layer.
        records: Records of the day in bronze.
        duplicates: Copies removed.
        conflicts: Dedup keys whose copies differ in payload.
        late: Rows that only the rebuild has.
        quarantined: Records in quarantine that were sent on this day and were not replayed; a broken record
            has no event day. Null where there is no quarantine, or nobody counted.
        repairs: How often the day was certified again.
    """

    day: date
    status: DayStatus
    rows: Count
    records: Count
    duplicates: Count
    conflicts: Count
    late: Count
    quarantined: Count | None = None
    repairs: Count = 0

    @property
    def shares(self) -> dict[str, float | None]:
        """Parts of one; None where there is nothing to divide by.

        Duplicates are a part of the records, late rows and conflicts of the rows, quarantined records of the
        day's records and themselves.
        """
        broken = self.quarantined
        return {
            "duplicates": _part(self.duplicates, self.records),
            "late": _part(self.late, self.rows),
            "conflicts": _part(self.conflicts, self.rows),
            "quarantined": None if broken is None else _part(broken, self.records + broken),
        }


def _part(count: int, whole: int) -> float | None:
    return count / whole if whole else None


def _by_day(days: Iterable[TrendDay]) -> tuple[TrendDay, ...]:
    """Order the trend by day.

    Raises:
        ValueError: A day stands twice.
    """
    ordered = tuple(sorted(days, key=lambda entry: entry.day))
    for before, after in pairwise(ordered):
        if before.day == after.day:
            raise ValueError(f"the trend has {after.day} twice; one entry for each day was expected")
    return ordered


class ReportData(Model):
    """Everything that a report shows.

    Attributes:
        pipeline: Name of the pipeline; names the report's files too.
        day: The event day.
        time_zone: IANA zone of the event day; all instants are shown in it.
        generated_at: When the numbers were read from the lake.
        version: Version of Oncelake.
        verdict: The audit's verdict.
        flow: Counts from bronze to the batch layer.
        duplicates_by_hour: Records and duplicates for each hour of the day.
        lateness: Histogram of lateness, in ascending order.
        quarantine: Reasons with examples.
        conflict_samples: A few of the keys whose copies carry different payloads.
        layer_differences: Samples of what separates speed and batch layer.
        checks: Checks of the audit.
        trend: Days up to and around this one; put in order of day.
        history: Every verdict on the day, the oldest first.
        repairs: Repairs of the days of the trend, the oldest first.
        comparison: What the rebuild changed; null if it is the day's first.
        data_docs: Whether Great Expectations' pages of the day stand beside the report.
    """

    pipeline: PipelineName
    day: date
    time_zone: Zone
    generated_at: AwareDatetime
    version: Text
    verdict: DayVerdict
    flow: Flow
    duplicates_by_hour: tuple[HourCount, ...] = ()
    lateness: tuple[LatenessBucket, ...] = ()
    quarantine: tuple[QuarantineReason, ...] = ()
    conflict_samples: tuple[ConflictSample, ...] = ()
    layer_differences: tuple[LayerDifferences, ...] = ()
    checks: tuple[ReportCheck, ...] = ()
    trend: Annotated[tuple[TrendDay, ...], AfterValidator(_by_day)] = ()
    history: tuple[PastVerdict, ...] = ()
    repairs: tuple[Repair, ...] = ()
    comparison: Comparison | None = None
    data_docs: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether a nightly run has decided on the day."""
        return self.verdict.status in ("certified", "failed")

    @property
    def layers_agree(self) -> bool:
        """Whether the audit has found an explanation for all that separates the layers."""
        return any(check.name == LAYERS_AGREE and check.status != "failed" for check in self.checks)

    @property
    def zone(self) -> ZoneInfo:
        """The time zone in which days and hours are shown."""
        return ZoneInfo(self.time_zone)
