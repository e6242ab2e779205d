"""A lake as it has to be, made from the traffic alone; and small processes in the place of jobs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.observations import (
    Acknowledged,
    BronzeRow,
    EventRow,
    Lake,
    OutputRecord,
    Place,
    QuarantineRow,
    SourceRecord,
)
from chaos.oracle import Truth
from chaos.traffic import DAYS, Reading, Skew, traffic
from tests.support.small_jobs import SmallJobs

SECONDS, RATE = 60.0, 50.0
# A copy that comes later wins by a clock that is slow.
SLOW = (Skew(2, 5, 50, timedelta(hours=-3)), Skew(1, 30, 34, timedelta(hours=-30)))
INGESTED_US = 1_780_000_000_000_000


@dataclass
class Good:
    """A lake in which every rule holds."""

    lake: Lake
    truth: Truth

    def changed(self, **layers: Any) -> Lake:
        """The lake with other layers."""
        return replace(self.lake, **layers)


@pytest.fixture(scope="session")
def good() -> Good:
    offsets = Counter[int]()
    source, ingested = list[SourceRecord](), dict[Place, int]()
    for send in traffic(5, SECONDS, RATE, SLOW):
        place = Place(send.partition, offsets[send.partition])
        offsets[send.partition] += 1
        source.append(SourceRecord(place, send.number, send.key, send.value, send.timestamp_ms))
        # A micro-batch a second.
        ingested[place] = INGESTED_US + int(send.at_s) * 1_000_000
    truth = Truth(source)
    speed = [row_of(truth, min(places, key=lambda p: ingested[p])) for places in truth.copies.values()]
    batch = [EventRow(reading, key.day, place) for key, (place, reading) in truth.winners(DAYS).items()]
    output = [OutputRecord(row.place, row.key, row.reading, row.place, None) for row in speed]
    known = {row.key: row for row in speed}
    for row in batch:
        if known[row.key].reading != row.reading:
            at = Place(row.place.partition, row.place.offset + 1_000_000)
            output.append(OutputRecord(at, row.key, row.reading, row.place, "changed"))
    lake = Lake(
        acknowledged=[Acknowledged(each.number, each.place, each.value) for each in source],
        source=source,
        bronze=[BronzeRow(r.place, r.key, r.value, r.timestamp_ms, ingested[r.place]) for r in source],
        speed=speed,
        quarantine=[
            QuarantineRow(place, reason, truth.records[place].value)
            for place, reason in truth.refused.items()
        ],
        certified=frozenset(DAYS),
        batch=batch,
        serving=batch,
        output=output,
    )
    return Good(lake, truth)


def row_of(truth: Truth, place: Place) -> EventRow:
    """The row that a record makes."""
    reading = truth.judged[place]
    assert isinstance(reading, Reading)
    return EventRow(reading, reading.measured_at.date(), place)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[SmallJobs]:
    """Small processes that end with the test."""
    jobs = SmallJobs(tmp_path)
    try:
        yield jobs
    finally:
        jobs.supervisor.join()
        for job in jobs.supervisor.streams.values():
            job.kill()
