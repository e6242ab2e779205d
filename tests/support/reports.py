"""Reports as the demo makes them, and worse: for the tests of what is made of them."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from pipelines.report.model.history import (
    ChangedColumn,
    ChangedRow,
    Comparison,
    PastVerdict,
    Repair,
)
from pipelines.report.model.records import (
    ConflictColumn,
    ConflictCopy,
    ConflictSample,
    Coordinates,
    KeyPart,
    QuarantineExample,
    QuarantineReason,
)
from pipelines.report.model.report import (
    DayStatus,
    DayVerdict,
    Flow,
    HourCount,
    LatenessBucket,
    ReportCheck,
    ReportData,
    TrendDay,
)

NEW_YORK = ZoneInfo("America/New_York")
POISON = "<script>alert(1)</script><img src=x onerror=alert(2)>\x00\x1b[31m\u202egnp.exe"


def hours_of(day: date) -> tuple[HourCount, ...]:
    """Busy daytime, quiet night; as many hours as the clock of New York gives the day."""
    start = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).astimezone(UTC)
    after = day + timedelta(days=1)
    end = datetime(after.year, after.month, after.day, tzinfo=NEW_YORK).astimezone(UTC)
    count = int((end - start) / timedelta(hours=1))
    records = [0, 0, 0, 0, 0, 4, 53, 51, 60, 57, 49, 46, 51, 58, 55, 62, 60, 59, 57, 55, 45, 28, 12, 1, 0][
        :count
    ]
    return tuple(
        HourCount(
            hour_start=start + timedelta(hours=hour), records=many, duplicates=many // 16 + (hour == 9) * 7
        )
        for hour, many in enumerate(records)
    )


def trend_until(day: date, days: int = 14) -> tuple[TrendDay, ...]:
    """Fourteen days with a week's rhythm; one of them failed."""
    return tuple(
        TrendDay(
            day=day - timedelta(days=days - 1 - index),
            status="failed" if index == 5 else "certified",
            rows=720 + 130 * (index % 7 < 5) + 7 * index,
            records=760 + 140 * (index % 7 < 5) + 7 * index,
            duplicates=40 + 3 * (index % 4),
            conflicts=index % 3,
            late=(2 * index) % 5,
            quarantined=index % 4,
            repairs=int(index in (3, 9)),
        )
        for index in range(days)
    )


def checks_of(failed: bool) -> tuple[ReportCheck, ...]:
    """Integrity checks and expectations, of every status."""
    found = 2 if failed else 0
    return (
        ReportCheck(name="unique_keys", kind="integrity", status="failed" if failed else "passed",
                    observed=f"{found} keys stand more than once", expected="no key more than once",
                    detail="UA-1545-EWR 2013-01-05T05:15:00-05:00 (2 rows)" if failed else ""),
        ReportCheck(name="counts_add_up", kind="integrity", status="passed", observed="14,213 = 14,213",
                    expected="bronze = batch + duplicates + quarantined + other days", detail=""),
        ReportCheck(name="rows_in_their_day", kind="integrity", status="passed", observed="0 rows outside",
                    expected="every row between 2013-01-05 00:00 and 24:00", detail=""),
        ReportCheck(name="offsets_contiguous", kind="integrity", status="warned",
                    observed="1 gap of 3 offsets", expected="no gap in any partition",
                    detail="flights-2: offsets 4812 to 4814 are not in bronze\ntransactions leave gaps"),
        ReportCheck(name="speed_agrees", kind="integrity", status="passed", observed="3 rows, all late",
                    expected="layers differ by late rows alone", detail=""),
        ReportCheck(name="expect_column_values_to_not_be_null(carrier)", kind="expectation", status="passed",
                    observed="0 of 720 null", expected="0 null", detail=""),
        ReportCheck(name="expect_column_values_to_be_between(distance)", kind="expectation",
                    status="failed" if failed else "passed", expected="1 to 6,000",
                    observed="-4 to 4,983" if failed else "80 to 4,983",
                    detail="1 row: " + POISON if failed else ""),
    )  # fmt: skip


def quarantine_of() -> tuple[QuarantineReason, ...]:
    """Poison of several kinds, as bronze really holds it."""
    sent = datetime(2013, 1, 5, 14, 3, 11, tzinfo=UTC)
    return (
        QuarantineReason(reason="malformed_json", records=3, examples=(
            QuarantineExample(topic="flights", partition=1, offset=4711, kafka_timestamp=sent,
                              value_preview='{"carrier":"UA","flight":15'),
            QuarantineExample(topic="flights", partition=0, offset=120, kafka_timestamp=sent,
                              value_preview=b"\xff\xfe{" + POISON.encode()),  # type: ignore[arg-type]
            QuarantineExample(topic="flights", partition=2, offset=9, value_preview="x" * 50_000),
        )),
        QuarantineReason(reason="wrong_type", records=2, examples=(
            QuarantineExample(topic="flights", partition=2, offset=1_204_881, kafka_timestamp=sent,
                              column="flight", found='"fifteen"',
                              value_preview='{"carrier":"UA","flight":"fifteen","origin":"EWR"}'),
        )),
        QuarantineReason(reason="event_time_future", records=1, examples=(
            QuarantineExample(topic="flights", partition=0, offset=77, kafka_timestamp=sent,
                              column="scheduled_departure", found="2099-01-01T00:00:00-05:00",
                              value_preview="{}"),
        )),
        QuarantineReason(reason="null_value", records=1, examples=(
            QuarantineExample(topic="flights", partition=1, offset=78, kafka_timestamp=sent),
        )),
    )  # fmt: skip


def conflicts_of() -> tuple[ConflictSample, ...]:
    """A plain conflict with a value that would act, and one of personal data alone."""
    sent = datetime(2013, 1, 5, 14, 3, 11, tzinfo=UTC)
    first, second = (
        ConflictCopy(topic="flights", partition=1, offset=offset, kafka_timestamp=sent, winner=offset == 4712)
        for offset in (4712, 4713)
    )
    third = ConflictCopy(topic="flights", partition=2, offset=1_204_999, winner=False)
    flight = KeyPart(column="flight", value="1545")
    return (
        ConflictSample(key=(KeyPart(column="carrier", value="UA"), flight), copies_of_day=12,
                       copies=(first, second, third), columns=(
            ConflictColumn(column="departure_delay", values=("2.0", "9.0", None)),
            ConflictColumn(column="dest", values=("IAH", POISON, "x" * 200 + "… (50,000 characters)")),
            ConflictColumn(column="tailnum", personal="hash",
                           values=("sha256:0011223344556677", "sha256:8899aabbccddeeff", None)),
            ConflictColumn(column="pilot.name", personal="drop"),
        )),
        ConflictSample(key=(KeyPart(column="carrier"), flight), copies_of_day=2, copies=(first, second),
                       columns=(ConflictColumn(column="pilot.name", personal="drop"),)),
    )  # fmt: skip


def history_of(day: date) -> tuple[PastVerdict, ...]:
    """A day that was certified, failed when late records came, and was repaired."""
    first = datetime(day.year, day.month, day.day, 7, tzinfo=UTC) + timedelta(days=1)
    return (
        PastVerdict(decided_at=first, status="certified", run_id="nightly-1", batch_version=12,
                    bronze_version=1100, rows=805, records=858),
        PastVerdict(decided_at=first + timedelta(days=1), status="failed", run_id="nightly-2", cause="late",
                    batch_version=14, bronze_version=1150, previous_version=12, rows=806, records=861,
                    came_late=3, added=1, removed=0, changed=0),
        PastVerdict(decided_at=first + timedelta(days=2), status="certified", run_id=POISON, cause="late",
                    batch_version=18, bronze_version=1204, previous_version=12, rows=809, records=863,
                    came_late=5, added=3, removed=1, changed=2),
    )  # fmt: skip


def repairs_of(day: date) -> tuple[Repair, ...]:
    """The repairs that the trend has."""
    return tuple(
        Repair(day=entry.day, decided_at=datetime(2013, 1, 6, 7, tzinfo=UTC), run_id="nightly-3",
               cause="late", came_late=5, added=3, removed=0, changed=1)
        for entry in trend_until(day)
        if entry.repairs
    )  # fmt: skip


def comparison_of() -> Comparison:
    """A rebuild that did everything to rows that can be done, one of them with a value that would act."""
    key = (KeyPart(column="carrier", value="UA"), KeyPart(column="flight", value="1545"))
    old, new = (Coordinates(topic="flights", partition=1, offset=offset) for offset in (4712, 9120))
    return Comparison(
        previous_version=12,
        batch_version=18,
        added=3,
        removed=1,
        changed=2,
        samples=(
            ChangedRow(change="added", key=key, after=new,
                       columns=(ChangedColumn(column="dest", after="IAH"),)),
            ChangedRow(change="removed", key=key, before=old,
                       columns=(ChangedColumn(column="dest", before="MIA"),)),
            ChangedRow(change="changed", key=(KeyPart(column="carrier"), key[1]), before=old, after=new,
                       columns=(
                ChangedColumn(column="tailnum", before=None, after=POISON),
                ChangedColumn(column="pilot.name", personal="drop"),
            )),
        ),
    )  # fmt: skip


def sample(status: DayStatus = "certified", day: date = date(2013, 1, 5)) -> ReportData:
    """One day as the demo makes it."""
    hours = hours_of(day)
    records, duplicates = sum(h.records for h in hours), sum(h.duplicates for h in hours)
    batch = records - duplicates
    checks = checks_of(failed=status == "failed")
    counts = {kind: sum(check.status == kind for check in checks) for kind in ("passed", "failed", "warned")}
    lateness = (("before event time", 0.31), ("0 to 1 min", 0.42), ("1 to 15 min", 0.18),
                ("15 to 60 min", 0.06), ("1 to 6 h", 0.02), ("6 to 24 h", 0.005),
                ("over 1 day", 0.0))  # fmt: skip
    buckets = [LatenessBucket(label=label, records=int(part * records)) for label, part in lateness]
    rest = records - sum(bucket.records for bucket in buckets)
    buckets[-1] = LatenessBucket(label="over 1 day", lower_s=86_400, records=rest)
    return ReportData(
        pipeline="flights",
        day=day,
        time_zone="America/New_York",
        generated_at=datetime(2013, 1, 6, 7, 4, 5, tzinfo=UTC),
        version="0.1.0",
        verdict=DayVerdict(
            status=status,
            certified_at=datetime(2013, 1, 6, 7, 0, 1, tzinfo=UTC) if status == "certified" else None,
            run_id="nightly-20130106T070000Z-3f9c",
            batch_version=18,
            bronze_version=1204,
            **counts,
        ),
        flow=Flow(bronze=13_286 + 7 + records, other_days=13_286, quarantined=7, day_records=records,
                  duplicates=duplicates, conflicts=2, batch=batch, speed=batch - 3, late=3),
        duplicates_by_hour=hours,
        lateness=tuple(buckets),
        quarantine=quarantine_of(),
        conflict_samples=conflicts_of(),
        checks=checks,
        trend=trend_until(day),
        history=history_of(day),
        repairs=repairs_of(day),
        comparison=comparison_of(),
    )  # fmt: skip


def empty(status: DayStatus = "open") -> ReportData:
    """A day without rows, checks, quarantine or trend."""
    return ReportData(
        pipeline="weather",
        day=date(2013, 1, 20),
        time_zone="America/New_York",
        generated_at=datetime(2013, 1, 20, 7, tzinfo=UTC),
        version="0.1.0",
        verdict=DayVerdict(status=status, passed=0, failed=0, warned=0),
        flow=Flow(bronze=0, other_days=0, quarantined=0, day_records=0, duplicates=0, conflicts=0, batch=0,
                  speed=0, late=0),
    )  # fmt: skip


def huge() -> ReportData:
    """A year of a pipeline with billions of records, and sixty checks."""
    small = sample()
    factor = 1_234_567
    grown = {name: count * factor for name, count in small.flow.model_dump().items()}
    return small.model_copy(
        update={
            "flow": Flow.model_validate(grown),
            "duplicates_by_hour": tuple(
                hour.model_copy(
                    update={"records": hour.records * factor, "duplicates": hour.duplicates * factor}
                )
                for hour in small.duplicates_by_hour
            ),
            "lateness": tuple(
                bucket.model_copy(update={"records": bucket.records * factor}) for bucket in small.lateness
            ),
            "trend": trend_until(small.day, days=365),
            "checks": small.checks * 8,
        }
    )
