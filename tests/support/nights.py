"""Days in January 2013, and the runs over them."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

from pipelines.contracts.event_days import days_of
from pipelines.nightly.verdicts import NightResult
from pipelines.steps.nightly import Night, nightly
from pipelines.steps.speed import SpeedResult, speed
from tests.support.lakes import EPOCH, Lake, Record, flight

ONE, TWO, THREE = (date(2013, 1, n) for n in (1, 2, 3))
LATER = EPOCH + timedelta(days=5)
EARLIER = EPOCH - timedelta(hours=1)


def on(day: int, number: int, sent: datetime | None = None, partition: int = 0, **changes: Any) -> Record:
    """A departure of a day in January, sent at noon of its day unless said otherwise."""
    value = flight(flight=number, scheduled_departure=f"2013-01-{day:02}T05:15:00-05:00", **changes)
    return Record(value, partition, sent=sent or datetime(2013, 1, day, 12, tzinfo=UTC))


def at(moment: str) -> Record:
    """A departure at a moment, sent then."""
    sent = datetime.fromisoformat(moment).astimezone(UTC)
    return Record(flight(scheduled_departure=moment), sent=sent)


def departures(rows: Any, day: date) -> list[str]:
    """When departures of a day are, in UTC, by the day of the month."""
    of_day = rows.where(F.col("_event_date") == F.lit(day)).select("scheduled_departure")
    return sorted(f"{row[0].astimezone(UTC):%d %H:%M}" for row in of_day.collect())


def run(lake: Lake, first: date, last: date | None = None) -> NightResult:
    return nightly(lake.pipeline, "run", days_of(first, last or first))


def begin(lake: Lake, day: date) -> None:
    """Let a run come to where it would build a day, with the batch table as it is certified, and end it."""
    night = Night(lake.pipeline, "begun", [day])
    with night.hold():
        for step in (night.plan_days, night.restore_base):
            list(step())


def stream(lake: Lake) -> SpeedResult:
    return speed(lake.pipeline, once=True)


def flights_of(frame: Any, day: date) -> list[tuple[int, float]]:
    rows = frame.where(F.col("_event_date") == F.lit(day)).select("flight", "departure_delay")
    found = [(row["flight"], row["departure_delay"]) for row in rows.collect()]
    return sorted(found, key=lambda each: (each[0], each[1] is not None, each[1] or 0))
