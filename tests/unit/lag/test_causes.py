"""Each cause is named from the figures that it leaves, with noise, over hundreds of made-up situations."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.lag.causes import Cause, diagnose
from pipelines.lag.evidence import Evidence, PartitionLag, TopicHealth
from pipelines.spark.stream_progress import MicroBatch, StateFigures, StreamProgress, TaskFigures

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = "oncelake ingest_stream --pipeline flights"
EACH = 20


class Stage:
    """A stage that keeps up, of some size; what a fault does to its figures is a method each."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - nothing secret
        self.trigger = self.rng.choice([1.0, 10.0, 60.0])
        self.rate = self.rng.uniform(50, 50_000)
        # A micro-batch has what came during one trigger interval.
        self.records = max(int(self.rate * self.trigger), 1)
        self.seconds = self.trigger * self.rng.uniform(0.1, 0.5)
        count = self.rng.randint(3, 32)
        lags = [self._partition(number, count) for number in range(count)]
        self.evidence = Evidence(
            stage="ingest",
            at=NOW,
            partitions=tuple(lags),
            stream=self._stream(),
            in_flight_s=self.rng.choice([None, self.seconds / 2]),
            is_alive=self.rng.choice([True, None]),
            usual_rate_in=self.rate * self._about(1),
            health=TopicHealth(),
            wanted_executors=4,
        )

    def _about(self, value: float) -> float:
        return value * self.rng.uniform(0.85, 1.15)

    def _partition(self, number: int, count: int) -> PartitionLag:
        rate = self._about(self.rate / count)
        records = int(rate * self.trigger * self.rng.uniform(0.2, 0.9)) + 1
        behind = self.trigger * self.rng.uniform(0.2, 1.0)
        return PartitionLag(number, records, behind, rate, rate, 7 * 86_400.0)

    def _stream(self) -> StreamProgress:
        batches = tuple(self._batch(number) for number in range(20))
        written = NOW - timedelta(seconds=self.rng.uniform(0, 5))
        begun = NOW - timedelta(days=1)
        return StreamProgress("ingest", "host", 7, begun, written, self.trigger, 4, batches=batches)

    def _batch(self, number: int) -> MicroBatch:
        seconds = self._about(self.seconds)
        run = 4 * seconds * 0.7
        tasks = TaskFigures(16, 0, run, run * self.rng.uniform(0.01, 0.08), 0, self._about(run / 16 * 1.5))
        phases = {"source": 0.05 * seconds, "planning": 0.1 * seconds, "write": 0.75 * seconds, "log": 0.02}
        state = StateFigures(1 << 20, 0.1 * run, 0, 0.05 * run)
        at = NOW - timedelta(seconds=self.trigger * (20 - number))
        return MicroBatch(
            number, at, seconds, int(self._about(self.records)), phases, state, tasks, 3, 9 << 20
        )

    def behind(self, out: float = 0.5) -> None:
        """Lets the lag grow: of what comes, a part is processed."""
        age = (self.trigger + self.seconds) * self.rng.uniform(5, 50) + 60
        self.partitions(lambda lag: replace(lag, records=int((lag.rate_in or 0) * age) + 1, behind_s=age))
        self.partitions(lambda lag: replace(lag, rate_out=(lag.rate_in or 0) * out))

    def partitions(self, change: Callable[[PartitionLag], PartitionLag]) -> None:
        self.evidence = replace(self.evidence, partitions=tuple(map(change, self.evidence.partitions)))

    def batches(self, change: Callable[[MicroBatch], MicroBatch]) -> None:
        assert self.evidence.stream
        batches = tuple(map(change, self.evidence.stream.batches))
        self.stream(batches=batches)

    def tasks(self, change: Callable[[TaskFigures], TaskFigures]) -> None:
        self.batches(lambda batch: replace(batch, tasks=change(batch.tasks or TaskFigures())))

    def stream(self, **changes: object) -> None:
        assert self.evidence.stream
        self.evidence = replace(self.evidence, stream=replace(self.evidence.stream, **changes))  # type: ignore[arg-type]

    def change(self, **changes: object) -> None:
        self.evidence = replace(self.evidence, **changes)  # type: ignore[arg-type]


def nothing(stage: Stage) -> None:
    pass


def source_quiet(stage: Stage) -> None:
    stage.partitions(lambda lag: PartitionLag(lag.partition, 0, None, 0.0, 0.0))


def stopped(stage: Stage) -> None:
    stage.behind(out=0)
    stage.change(in_flight_s=None)
    match stage.rng.randrange(3):
        case 0:
            stage.stream(ended_at=NOW - timedelta(hours=1), failure="the disk is full")
        case 1:
            stage.stream(written_at=NOW - timedelta(hours=1))
            stage.change(is_alive=False)
        case _:
            stage.change(stream=None)


def stuck(stage: Stage) -> None:
    stage.behind(out=0)
    usual = max(stage.trigger, stage.seconds)
    stage.change(in_flight_s=max(400.0, usual * stage.rng.uniform(13, 50)))
    stage.stream(written_at=NOW - timedelta(hours=1))


def retention(stage: Stage) -> None:
    stage.behind(out=0.9)
    stage.partitions(lambda lag: replace(lag, retention_s=stage.rng.uniform(60, 3_000)))


def lost(stage: Stage) -> None:
    stage.behind()
    stage.partitions(lambda lag: replace(lag, lost=stage.rng.randint(1, 1_000)))


def offline(stage: Stage) -> None:
    stage.behind()
    stage.change(health=TopicHealth(offline=(stage.rng.randrange(3),)))


def slow_brokers(stage: Stage) -> None:
    stage.behind(out=0.8)
    waited = max(stage.seconds * stage.rng.uniform(2, 10), 2.5)
    stage.batches(
        lambda batch: replace(
            batch, seconds=batch.seconds + waited, phases={**batch.phases, "source": stage._about(waited)}
        )
    )
    stage.change(health=TopicHealth(under_replicated=(1,)) if stage.rng.random() < 0.5 else TopicHealth())


def executors(stage: Stage) -> None:
    stage.behind()
    stage.stream(executors=stage.rng.randint(0, 3))


def gc(stage: Stage) -> None:
    stage.behind()
    stage.tasks(lambda tasks: replace(tasks, gc_s=tasks.run_s * stage.rng.uniform(0.25, 0.7)))


def spill(stage: Stage) -> None:
    stage.behind()
    stage.tasks(lambda tasks: replace(tasks, spilled_bytes=stage.rng.randint(1 << 20, 1 << 32)))


def hot_partition(stage: Stage) -> None:
    stage.behind()
    hot = stage.rng.randrange(len(stage.evidence.partitions))
    count = len(stage.evidence.partitions)
    times = stage.rng.uniform(2, 8) * count
    stage.partitions(
        lambda lag: replace(lag, records=int(lag.records * times)) if lag.partition == hot else lag
    )


def hot_key(stage: Stage) -> None:
    stage.behind()
    stage.batches(
        lambda batch: replace(
            batch,
            tasks=replace(
                batch.tasks or TaskFigures(), longest_s=batch.seconds * 0.9, run_s=batch.seconds * 1.5
            ),
        )
    )


def state(stage: Stage) -> None:
    stage.behind()
    stage.batches(
        lambda batch: replace(
            batch,
            state=StateFigures(1 << 33, 0.3 * (batch.tasks or TaskFigures()).run_s,
                               0.4 * (batch.tasks or TaskFigures()).run_s, 0),
        )
    )  # fmt: skip


def small_files(stage: Stage) -> None:
    stage.behind()
    files = stage.rng.randint(150, 10_000)
    stage.batches(lambda batch: replace(batch, files_left=files, bytes_left=files * 20_000))


def burst(stage: Stage) -> None:
    stage.behind()
    times = stage.rng.uniform(4, 10)
    stage.partitions(lambda lag: replace(lag, rate_in=(lag.rate_in or 0) * times))


def slow(stage: Stage) -> None:
    stage.behind(out=0.9)
    longer = stage.records / stage.seconds / stage.rate / stage.rng.uniform(0.5, 0.8)
    stage.batches(
        lambda batch: replace(
            batch,
            seconds=batch.seconds * longer,
            phases={name: took * longer for name, took in batch.phases.items()},
            tasks=replace(batch.tasks or TaskFigures(), run_s=(batch.tasks or TaskFigures()).run_s * longer),
        )
    )


def catching_up(stage: Stage) -> None:
    stage.behind(out=3)


FAULTS: list[tuple[Cause, Callable[[Stage], None]]] = [
    ("none", nothing),
    ("source_quiet", source_quiet),
    ("stopped", stopped),
    ("stuck", stuck),
    ("retention", retention),
    ("retention", lost),
    ("kafka", offline),
    ("kafka", slow_brokers),
    ("executors", executors),
    ("gc", gc),
    ("spill", spill),
    ("skew", hot_partition),
    ("skew", hot_key),
    ("state", state),
    ("small_files", small_files),
    ("burst", burst),
    ("slow", slow),
    ("catching_up", catching_up),
]


@pytest.mark.parametrize(("cause", "fault"), FAULTS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_cause_is_named_in_nineteen_of_twenty_situations(
    cause: Cause, fault: Callable[[Stage], None]
) -> None:
    named: Counter[str] = Counter()
    for seed in range(EACH):
        stage = Stage(seed)
        fault(stage)
        named[diagnose(stage.evidence, START).cause] += 1
    assert named[cause] >= EACH * 0.95, named


def test_what_stops_is_told_with_the_danger_that_kafka_deletes_what_is_unread() -> None:
    stage = Stage(1)
    stopped(stage)
    stage.stream(
        ended_at=NOW - timedelta(hours=1), failure="the disk is full"
    ) if stage.evidence.stream else None
    stage.partitions(lambda lag: replace(lag, retention_s=600.0))
    found = diagnose(stage.evidence, START)
    assert found.cause == "stopped"
    assert any("Kafka deletes unread records" in each for each in found.evidence)
    assert found.advice == f"start it: {START}"
