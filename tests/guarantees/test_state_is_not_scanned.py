"""A micro-batch does not scan the state of the deduplication, and the rows are those of Spark's own store."""

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, armed
from pipelines.spark import state_store
from pipelines.spark.checkpoints import offsets_of, query_files
from pipelines.spark.state_store import NOT_SCANNED, PROVIDER, SPARKS_OWN
from pipelines.steps.speed import SpeedCounts, speed
from testbed.waiting import wait_until
from tests.support.accidents import dying
from tests.support.dedup_stream import DELAY, DedupStream, Event, add
from tests.support.lake_copies import continued
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import stream

pytestmark = pytest.mark.usefixtures("two_partitions")

KEYS = 10
DIED = InfrastructureError("died here")
# With it, more keys come back after they were forgotten than with any other.
SEED = 2
OTHERS = [pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, *range(3, 9))]
SEEDS = pytest.mark.parametrize("seed", [SEED, *OTHERS])


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session with settings of its own."""
    return spark.newSession()


def history(seed: int, batches: int) -> list[list[Event]]:
    """Micro-batches whose keys come again and again, before and after the state has to forget them."""
    chosen, number, minutes, made = Random(seed), 0, 0.0, []  # noqa: S311 - nothing secret
    for _ in range(batches):
        minutes += chosen.choice((0, 5, 12, 20, 45))
        events = []
        for _ in range(chosen.randint(3, 12)):
            number += 1
            events.append((chosen.randrange(KEYS), minutes - chosen.uniform(0, 50), number))
        made.append(events)
    return made


@dataclass
class Compared:
    """Streams over one table.

    Attributes:
        own: with Spark's own store.
        ours: with ours, through a crash and restarts.
        killed: what that one would have left on the disk, had it been killed where it crashed.
        switching: from ours to Spark's own and back.
    """

    own: DedupStream
    ours: DedupStream
    killed: DedupStream
    switching: DedupStream

    def crash(self, batch: int) -> None:
        """Ends a micro-batch of ours."""
        # Snapshots are written in the background, and there are changes since.
        state = Path(self.ours.checkpoint, "state/0/0")
        wait_until(lambda: any(state.glob("*.zip")), "there is a snapshot")
        shutil.copytree(
            self.ours.folder, self.killed.folder, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc")
        )
        raise RuntimeError(f"micro-batch {batch} ends here")


@pytest.fixture(scope="module")
def compared(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[int], Compared]]:
    """Runs the streams over a history, once for each seed."""
    stores = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore  # type: ignore[union-attr]
    # The thread that writes snapshots keeps the interval of the first stream of a process.
    stores.stop()

    @cache
    def of(seed: int) -> Compared:
        session, folder = spark.newSession(), tmp_path_factory.mktemp(f"seed-{seed}")
        source = folder / "source"
        names = ("own", "ours", "killed", "switching")
        all_of_them = Compared(*(DedupStream(session, source, folder / name) for name in names))
        events = iter(history(seed, 9))
        for part in range(3):
            for batch in islice(events, 3):
                add(session, source, batch)
            share = (0.25, 1)[(seed + part) % 2]
            if part == 1:
                with pytest.raises(Exception, match="ends here"):
                    all_of_them.ours.run(NOT_SCANNED, share, accident=all_of_them.crash)
            all_of_them.ours.run(NOT_SCANNED, share)
            # Each micro-batch that scans leaves Spark's own store nothing that has expired.
            all_of_them.switching.run(SPARKS_OWN if part == 1 else NOT_SCANNED, 0)
        all_of_them.own.run(SPARKS_OWN)
        # Keys have come back after they were forgotten.
        assert sum(map(len, all_of_them.own.rows.values())) > KEYS
        return all_of_them

    yield of
    stores.stop()


@SEEDS
def test_rows_are_those_of_sparks_own_store_through_a_crash_and_restarts(
    compared: Callable[[int], Compared], seed: int
) -> None:
    assert compared(seed).ours.rows == compared(seed).own.rows


@pytest.mark.thorough
@SEEDS
def test_rows_are_the_same_from_one_store_to_the_other_and_back(
    compared: Callable[[int], Compared], seed: int
) -> None:
    assert compared(seed).switching.rows == compared(seed).own.rows


def test_state_is_scanned_when_the_watermark_has_moved_by_the_share(
    session: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    ours = DedupStream(session, source, tmp_path / "ours")
    # The watermark of a micro-batch is an hour behind the newest event of those before.
    minutes = [0, 60, 65, 76, 80, 121]
    for number, at in enumerate(minutes):
        add(session, source, [(number, at, number)])
    ours.run(NOT_SCANNED)
    partitions = ours.operators()[0]["numShufflePartitions"]
    # The first one has to look; the watermark of the second is the first that is not 1970.
    looks = [1, 1, 1, 0, 1, 0]
    assert ours.scans() == [look * partitions for look in looks]
    removed = [each["numRowsRemoved"] for each in ours.operators()]
    assert removed == [0, 0, 0, 0, 0, 0]
    add(session, source, [(100, 200, 100)])
    add(session, source, [(101, 200, 101)])
    ours.progress.clear()
    ours.run(NOT_SCANNED)
    # After a restart, the first micro-batch looks.
    assert ours.scans() == [partitions, partitions]
    assert [each["numRowsRemoved"] for each in ours.operators()] == [1, 4]
    assert ours.stored() == 3


def test_a_key_stays_no_longer_than_the_share(session: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    ours = DedupStream(session, source, tmp_path / "ours")
    numbers = itertools.count()
    # A key expires in each micro-batch from the fifth on. The first one after a restart scans, so each part
    # needs more than the share alone.
    for share, batches in ((0.25, 6), (1, 4), (0, 2)):
        for number in islice(numbers, batches):
            add(session, source, [(number, number * 40, number)])
        ours.run(NOT_SCANNED, share)
        assert_bounded(ours, share)


def assert_bounded(ours: DedupStream, share: float) -> None:
    """The oldest key that is stored expired no longer than the share before the last watermark."""
    state = ours.spark.read.format("statestore").load(ours.checkpoint)
    row = state.agg(F.min("value.expiresAtMicros").alias("first")).first()
    assert row is not None
    expiry = datetime.fromtimestamp(row["first"] / 1e6, UTC)
    watermark = datetime.fromisoformat(ours.progress[-1]["eventTime"]["watermark"])
    assert expiry > watermark - DELAY * share, (expiry, watermark)


def test_rows_are_the_same_after_kill_in_mid_batch(
    session: SparkSession, compared: Callable[[int], Compared]
) -> None:
    killed = compared(SEED).killed
    files = query_files(session, killed.checkpoint)
    assert (files.next_batch, files.in_flight) == (3, 3)
    state = Path(killed.checkpoint, "state/0/0")
    assert list(state.glob("*.zip"))
    assert list(state.glob("*.changelog"))
    killed.run(NOT_SCANNED, 1)
    assert killed.rows == compared(SEED).own.rows


def kept_provider(lake: Lake) -> str:
    path = lake.config.checkpoint("speed")
    newest = query_files(lake.spark, path).next_batch - 1
    text = offsets_of(lake.spark, path, newest)
    assert text is not None
    return str(json.loads(text.splitlines()[1])["conf"][PROVIDER])


def departures(*minutes: int, first: int = 1) -> list[Record]:
    """Flights with consecutive numbers that depart when they are told of."""
    moments = [EPOCH + timedelta(minutes=each) for each in minutes]
    return [
        Record(flight(flight=first + n, scheduled_departure=at.isoformat()), sent=at)
        for n, at in enumerate(moments)
    ]


def with_spark_conf(lake: Lake, **conf: str) -> Lake:
    """The same lake with other settings of Spark."""
    spark = lake.config.spark.model_copy(update={"conf": {**lake.config.spark.conf, **conf}})
    return lake.variant(config=lake.config.model_copy(update={"spark": spark}))


def through_an_expiry(lake: Lake) -> tuple[SpeedCounts, SpeedCounts, list[Any]]:
    """What the stream tells, and the rows, where a key comes back after it has expired, and again."""
    before = stream(lake).counts
    # Its key has expired, and nothing has evicted it yet.
    lake.ingest(departures(250))
    rows = lake.table("speed").select("flight", "scheduled_departure")
    after = stream(lake)
    assert after.warnings == ()
    return before, after.counts, sorted(map(tuple, rows.collect()))


@pytest.mark.thorough
def test_the_speed_layer_has_the_same_rows_and_its_checkpoint_is_taken_over_and_given_back(
    make_lake: Callable[..., Lake],
    small_by_flight: DataContract,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    settings = (
        "speed.watermark_delay=1 hour",
        "speed.state_eviction_share=1",
        "speed.max_bytes_per_trigger=1b",
        "speed.state_partitions=1",
    )
    ours = make_lake(*settings, f"lake.root={tmp_path}/ours", contract=small_by_flight)
    for number, minute in ((1, 0), (2, 100), (1, 130), (1, 135)):
        ours.ingest(departures(minute, first=number))
    lake = continued(ours, make_lake(*settings, f"lake.root={tmp_path}/own", contract=small_by_flight))
    told = through_an_expiry(ours)
    assert kept_provider(ours) == NOT_SCANNED
    assert [flight for flight, _ in told[2]] == [1, 1, 2]

    before = with_spark_conf(lake, **{PROVIDER: SPARKS_OWN})
    assert through_an_expiry(before) == told
    assert kept_provider(lake) == SPARKS_OWN

    # A micro-batch that dies with one store is done again with the other.
    lake.ingest([*departures(250), *departures(310, first=3)])
    with armed(Point.QUARANTINE_WRITTEN, dying(DIED)), pytest.raises(InfrastructureError, match="died here"):
        speed(before.pipeline, once=True)
    done = stream(lake)
    assert (done.counts.rows, done.counts.duplicates) == (1, 1)
    assert done.warnings == ()
    assert kept_provider(lake) == NOT_SCANNED

    monkeypatch.setattr(state_store, "MADE_FOR", "9.9.")
    lake.ingest([*departures(310, first=3), *departures(315, first=4)])
    done = stream(lake)
    assert (done.counts.rows, done.counts.duplicates) == (1, 1)
    (warning,) = done.warnings
    assert warning.startswith(
        "state: Spark's own state store is used, which each micro-batch scans as a whole"
    )
    assert [r.levelno for r in caplog.records if warning in r.message] == [logging.WARNING]
    assert kept_provider(lake) == SPARKS_OWN
