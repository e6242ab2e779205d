"""Each cause is named from the figures that it leaves, with noise, over hundreds of made-up situations."""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.config.streams import STREAMS, Query
from pipelines.kafka.fetches import FetchFigures
from pipelines.lag.alerts import status_of
from pipelines.lag.causes import find_cause
from pipelines.lag.diagnosis import LagCause, Symptom
from pipelines.lag.stage_facts import (
    DedupKeySample,
    FrequentDedupKey,
    FrequentKey,
    KeySample,
    PartitionLag,
    StageFacts,
    TopicHealth,
)
from pipelines.spark.stream_progress import (
    BatchFigures,
    StateFigures,
    StreamProgress,
    TaskFigures,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EACH = 20
WEEK = 7 * 86_400.0


def test_a_cluster_that_does_not_answer_is_named_before_all_else() -> None:
    facts = replace(Stage(1).facts, partitions=(), health=None, unreachable="eu:9092: no answer")
    found = find_cause(facts)
    assert (found.cause, found.advice) == ("kafka", "restore_brokers")
    assert [dict(each.figures) for each in found.symptoms] == [{"failure": "eu:9092: no answer"}]


class Stage:
    """A stage that keeps up, of some size; what a fault does to its figures is a function each."""

    def __init__(self, seed: int, stage: Query = "ingest") -> None:
        self.rng = random.Random(seed)  # noqa: S311 - nothing secret
        self.trigger = self.rng.choice([1.0, 10.0, 60.0])
        self.rate = self.rng.uniform(50, 50_000)
        # A micro-batch has what came during one trigger interval.
        self.records = max(int(self.rate * self.trigger), 1)
        self.seconds = self.trigger * self.rng.uniform(0.1, 0.5)
        count = self.rng.randint(3, 32)
        lags = [self._partition(number, count) for number in range(count)]
        reads_kafka = stage == "ingest"
        self.facts = StageFacts(
            stage=stage,
            at=NOW,
            partitions=tuple(lags),
            stream=self._stream(stage),
            planned_at=NOW - timedelta(seconds=self.seconds),
            is_alive=self.rng.choice([True, None]),
            usual_rate_in=self.rate * self._about(1) if reads_kafka else None,
            health=TopicHealth(retention_s=WEEK) if reads_kafka else None,
            wanted_executors=4,
        )

    def _about(self, value: float) -> float:
        return value * self.rng.uniform(0.85, 1.15)

    def _partition(self, number: int, count: int) -> PartitionLag:
        rate = self._about(self.rate / count)
        records = int(rate * self.trigger * self.rng.uniform(0.2, 0.9)) + 1
        behind = self.trigger * self.rng.uniform(0.2, 1.0)
        return PartitionLag(number, records, behind, rate, rate, WEEK - behind)

    def _stream(self, stage: Query) -> StreamProgress:
        batches = tuple(self._batch(number) for number in range(20))
        written = NOW - timedelta(seconds=self.rng.uniform(0, 30))
        begun = NOW - timedelta(days=1)
        return StreamProgress(
            stage, "host", 7, begun, written, NOW, self.trigger, executors=4, batches=batches
        )

    def _batch(self, number: int) -> BatchFigures:
        seconds = self._about(self.seconds)
        run = 4 * seconds * 0.7
        tasks = TaskFigures(16, 0, run, run * self.rng.uniform(0.01, 0.08), 0, self._about(run / 16 * 1.5))
        phases = {"source": 0.05 * seconds, "planning": 0.1 * seconds, "write": 0.75 * seconds, "log": 0.02}
        state = StateFigures(1 << 20, 0.1 * run, 0, 0.05 * run)
        at = NOW - timedelta(seconds=self.trigger * (20 - number))
        records = int(self._about(self.records))
        return BatchFigures(
            number, at, seconds, records, phases, state, tasks, files_left=3, bytes_left=9 << 20
        )

    def behind(self, out: float = 0.5) -> None:
        """Lets the lag grow: of what comes, a part is processed. If brokers were asked, they are quick."""
        age = (self.trigger + self.seconds) * self.rng.uniform(5, 50) + 60
        self.partitions(lambda lag: replace(lag, records=int((lag.rate_in or 0) * age) + 1, behind_s=age))
        self.partitions(lambda lag: replace(lag, rate_out=(lag.rate_in or 0) * out))
        if self.facts.stage == "ingest" and out < 1 and self.rng.random() < 0.5:
            self.fetches()

    def fetches(self, slow: int = 0, **figures: object) -> None:
        """Lets three brokers answer fetches, some of them slowly."""
        quick = {broker: self.rng.uniform(0.0005, 0.3) for broker in (1, 2, 3)}
        late = {broker: self.rng.uniform(0.6, 5) for broker in self.rng.sample((1, 2, 3), slow)}
        figures = {"throttled_s": self.rng.uniform(0, 0.09), **figures}
        self.change(fetches=FetchFigures(quick | late, **figures))  # type: ignore[arg-type]

    def partitions(self, change: Callable[[PartitionLag], PartitionLag]) -> None:
        self.facts = replace(self.facts, partitions=tuple(map(change, self.facts.partitions)))

    def batches(self, change: Callable[[BatchFigures], BatchFigures]) -> None:
        assert self.facts.stream
        batches = tuple(map(change, self.facts.stream.batches))
        self.stream(batches=batches)

    def tasks(self, change: Callable[[TaskFigures], TaskFigures]) -> None:
        self.batches(lambda batch: replace(batch, tasks=change(batch.tasks or TaskFigures())))

    def stream(self, **changes: object) -> None:
        assert self.facts.stream
        self.facts = replace(self.facts, stream=replace(self.facts.stream, **changes))  # type: ignore[arg-type]

    def change(self, **changes: object) -> None:
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]


def nothing(stage: Stage) -> None:
    pass


def source_quiet(stage: Stage) -> None:
    stage.partitions(lambda lag: PartitionLag(lag.partition, 0, None, 0.0, 0.0))


def recreated(stage: Stage) -> None:
    # All offsets that Kafka has were read, of another topic.
    stage.partitions(lambda lag: replace(lag, records=0, behind_s=None, ahead=stage.rng.randint(1, 1_000)))


def other_topic(stage: Stage) -> None:
    stage.change(health=TopicHealth(retention_s=WEEK, is_other=True))


def stopped(stage: Stage) -> None:
    stage.behind(out=0)
    match stage.rng.randrange(4):
        case 0:
            stage.stream(ended_at=NOW - timedelta(hours=1))
        case 1:
            stage.stream(written_at=NOW - timedelta(hours=1))
            stage.change(is_alive=False)
        case 2:
            stage.stream(written_at=NOW - timedelta(hours=1))
            stage.change(is_alive=None)
        case _:
            stage.change(stream=None, planned_at=None)


def failed(stage: Stage) -> None:
    # Nothing is unread: the stage before has failed as well.
    source_quiet(stage)
    stage.stream(ended_at=NOW - timedelta(hours=1), failure="the disk is full")


def stuck(stage: Stage) -> None:
    stage.behind(out=0)
    silent = 301 + 2 * stage.trigger + stage.rng.uniform(0, 10_000)
    stage.stream(seen_at=NOW - timedelta(seconds=silent))
    stage.change(is_alive=True)


def retention(stage: Stage) -> None:
    stage.behind(out=0.9)
    stage.partitions(lambda lag: replace(lag, retention_s=stage.rng.uniform(60, WEEK / 5)))


def lost(stage: Stage) -> None:
    stage.behind()
    stage.partitions(lambda lag: replace(lag, lost=stage.rng.randint(1, 1_000)))


def offline(stage: Stage) -> None:
    stage.behind()
    stage.change(health=TopicHealth(offline=(stage.rng.randrange(3),), retention_s=WEEK))


def open_transaction(stage: Stage) -> None:
    # What it hides is not among the records that a reader may see.
    stage.partitions(lambda lag: replace(lag, records=0, behind_s=None, hidden=stage.rng.randint(1, 1_000)))


def slow_brokers(stage: Stage) -> None:
    stage.behind(out=0.8)
    waited = max(stage.seconds * stage.rng.uniform(2, 10), 2.5)
    stage.batches(
        lambda batch: replace(
            batch, seconds=batch.seconds + waited, phases={**batch.phases, "source": stage._about(waited)}
        )
    )
    under = (1,) if stage.rng.random() < 0.5 else ()
    stage.change(health=TopicHealth(under_replicated=under, retention_s=WEEK))


def throttled(stage: Stage) -> None:
    stage.behind(out=0.9)
    stage.fetches(throttled_s=stage.rng.uniform(0.2, 10))


def slow_fetches(stage: Stage) -> None:
    # Of the time of tasks nobody knows how much is waiting for fetches.
    slow(stage)
    stage.fetches(slow=stage.rng.randint(1, 3))
    moved = (0, 2) if stage.rng.random() < 0.5 else ()
    stage.change(health=TopicHealth(moved=moved, retention_s=WEEK))


def silent_broker(stage: Stage) -> None:
    stage.behind(out=0)
    stage.fetches(silent=(stage.rng.randrange(3),))


def executors(stage: Stage) -> None:
    stage.behind()
    stage.stream(executors=stage.rng.randint(0, 3))


def gc(stage: Stage) -> None:
    stage.behind()
    stage.tasks(lambda tasks: replace(tasks, gc_s=tasks.run_s * stage.rng.uniform(0.25, 0.7)))


def spill(stage: Stage) -> None:
    stage.behind()
    stage.tasks(lambda tasks: replace(tasks, spilled_bytes=stage.rng.randint(1 << 27, 1 << 32)))


def hot_partition(stage: Stage) -> None:
    stage.behind()
    hot = stage.rng.randrange(len(stage.facts.partitions))
    count = len(stage.facts.partitions)
    times = stage.rng.uniform(2, 8) * count
    stage.partitions(
        lambda lag: replace(lag, records=int(lag.records * times)) if lag.partition == hot else lag
    )


def hot_record_key(stage: Stage) -> None:
    hot_partition(stage)
    keyed = stage.rng.uniform(0.3, 1)
    key = FrequentKey("'UA'", is_missing=False, share=keyed, least=keyed, offset=7)
    sampled(stage, key, FrequentKey("'DL'", is_missing=False, share=0.06, least=0.06, offset=9))


def sampled(stage: Stage, *keys: FrequentKey) -> None:
    """Lets keys of the partition be known that is most behind."""
    hot = max(stage.facts.partitions, key=lambda each: each.records)
    stage.change(sample=KeySample(hot.partition or 0, 2_000, keys))


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


def burst_after_quiet(stage: Stage) -> None:
    burst(stage)
    stage.change(usual_rate_in=0.0)


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


EVERYWHERE: list[tuple[LagCause, Callable[[Stage], None]]] = [
    ("none", nothing),
    ("source_quiet", source_quiet),
    ("stopped", stopped),
    ("stopped", failed),
    ("stuck", stuck),
    ("executors", executors),
    ("gc", gc),
    ("spill", spill),
    ("skew", hot_key),
    ("state", state),
    ("small_files", small_files),
    ("slow", slow),
    ("catching_up", catching_up),
]
OF_INGEST: list[tuple[LagCause, Callable[[Stage], None]]] = [
    ("other_topic", recreated),
    ("other_topic", other_topic),
    ("retention", retention),
    ("retention", lost),
    ("kafka", offline),
    ("kafka", slow_brokers),
    ("kafka", throttled),
    ("kafka", slow_fetches),
    ("kafka", silent_broker),
    ("open_transaction", open_transaction),
    ("skew", hot_partition),
    ("skew", hot_record_key),
    ("burst", burst),
    ("burst", burst_after_quiet),
]
CASES: list[tuple[Query, LagCause, Callable[[Stage], None]]] = [
    *((stage, cause, fault) for stage in STREAMS for cause, fault in EVERYWHERE),
    *(("ingest", cause, fault) for cause, fault in OF_INGEST),
]


def evaluated(stage: Query, fault: Callable[[Stage], None]) -> Counter[LagCause]:
    """How often each cause is named in the situations of a case."""
    named = Counter[LagCause]()
    for seed in range(EACH):
        made = Stage(seed, stage)
        fault(made)
        named[find_cause(made.facts).cause] += 1
    return named


@pytest.mark.parametrize(("stage", "cause", "fault"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_the_cause_is_named_in_nineteen_of_twenty_situations(
    stage: Query, cause: LagCause, fault: Callable[[Stage], None]
) -> None:
    named = evaluated(stage, fault)
    assert named[cause] >= EACH * 0.95, named


def test_the_page_has_the_outcome_of_the_evaluation() -> None:
    page = Path("docs/lag.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    found = dict[tuple[str, str], tuple[int, int]]()
    for stage, cause, fault in CASES:
        key = cause, fault.__name__.replace("_", " ")
        made, right = found.get(key, (0, 0))
        found[key] = made + EACH, right + evaluated(stage, fault)[cause]
    assert {(cause, fault): (int(made), int(right)) for cause, fault, made, right in told} == found
    made, right = (sum(of) for of in zip(*found.values(), strict=True))
    assert f"{right:,} of {made:,}" in page


def cause_of(stage: Stage) -> LagCause:
    return find_cause(stage.facts).cause


def test_what_stops_is_told_with_the_danger_that_kafka_deletes_what_is_unread() -> None:
    stage = Stage(1)
    stage.behind(out=0)
    stage.stream(ended_at=NOW - timedelta(hours=1), failure="the disk is full")
    stage.partitions(lambda lag: replace(lag, retention_s=600.0))
    found = find_cause(stage.facts)
    assert found.cause == "stopped"
    assert "soon_deleted" in {each.kind for each in found.symptoms}
    assert found.advice == "fix_and_start"


def test_a_partition_whose_leader_was_away_is_not_hot_once_its_backlog_shrinks() -> None:
    for seed in range(EACH):
        stage = Stage(seed)
        hot_partition(stage)
        stage.partitions(lambda lag: replace(lag, rate_out=3 * (lag.rate_in or 1.0)))
        assert cause_of(stage) != "skew"


def test_records_whose_age_is_unknown_are_not_taken_for_new_ones() -> None:
    stage = Stage(1)
    stage.partitions(lambda lag: replace(lag, behind_s=None))
    assert cause_of(stage) != "none"


def test_a_stage_whose_micro_batches_take_longer_than_the_trigger_interval_is_behind() -> None:
    stage = Stage(1, "speed")
    stage.partitions(lambda lag: replace(lag, behind_s=3_000.0, rate_out=lag.rate_in))
    longer = stage.records / stage.rate
    stage.batches(lambda batch: replace(batch, seconds=longer + 600.0, phases={"write": longer + 590.0}))
    assert cause_of(stage) == "slow"


def test_a_long_micro_batch_of_which_tasks_end_is_not_stuck_and_nobody_is_told_to_restart_it() -> None:
    stage = Stage(1)
    stage.behind(out=0)
    stage.stream(batches=(), seen_at=NOW - timedelta(seconds=20))
    stage.change(planned_at=NOW - timedelta(hours=3), usual_rate_in=None)
    found = find_cause(stage.facts)
    assert found.cause not in ("stuck", "stopped", "none")
    assert "start" not in (found.advice or "")


def test_unknown_rates_neither_catch_up_nor_say_that_the_source_is_quiet() -> None:
    stage = Stage(1, "publish")
    stage.stream(batches=())
    stage.partitions(lambda lag: replace(lag, records=0, behind_s=None, rate_in=None, rate_out=None))
    assert cause_of(stage) == "none"
    stage.partitions(lambda lag: replace(lag, records=100_000, behind_s=7_200.0))
    assert cause_of(stage) == "unknown"


def test_between_runs_of_a_scheduler_nothing_is_behind_and_a_late_one_is_to_be_run_once() -> None:
    stage = Stage(1)
    began, before = NOW - timedelta(minutes=5), NOW - timedelta(minutes=20)
    stage.stream(trigger_s=0.0, started_at=began, previous_at=before, ended_at=NOW - timedelta(minutes=4))
    stage.partitions(lambda lag: replace(lag, behind_s=240.0))
    assert cause_of(stage) == "none"
    stage.partitions(lambda lag: replace(lag, behind_s=7_200.0))
    found = find_cause(stage.facts)
    assert (found.cause, found.advice) == ("stopped", "start")


def once(stage: Stage, each: timedelta, since: timedelta, keeps: timedelta) -> None:
    """Lets runs with `--once` begin so far apart, the last one so long ago, of records kept for so long."""
    began, behind_s = NOW - since, since.total_seconds()
    stage.stream(trigger_s=0.0, started_at=began, previous_at=began - each, ended_at=began)
    left = max((keeps - since).total_seconds(), 0.0)
    stage.partitions(lambda lag: replace(lag, behind_s=behind_s, rate_out=0.0, retention_s=left))
    stage.change(health=TopicHealth(retention_s=keeps.total_seconds()))


@pytest.mark.parametrize(
    ("each", "since", "keeps"),
    [
        (timedelta(days=7.1), timedelta(days=6.8), timedelta(days=7)),
        (timedelta(days=1), timedelta(days=1.6), timedelta(days=2)),
        (timedelta(days=1), timedelta(days=2), timedelta(days=2)),
    ],
)
def test_a_scheduler_that_fails_is_told_before_kafka_deletes_what_is_unread(
    each: timedelta, since: timedelta, keeps: timedelta
) -> None:
    stage = Stage(1)
    once(stage, each, since, keeps)
    found = find_cause(stage.facts)
    assert (found.cause, found.advice) == ("retention", "raise_retention")
    assert [each.kind for each in found.symptoms] == ["soon_deleted", "no_catch_up", "run_ended"]
    assert status_of(found.cause) == "bad"


def test_one_long_gap_between_runs_does_not_make_the_next_one_usual() -> None:
    stage = Stage(1)
    once(stage, timedelta(days=7.1), timedelta(days=5), timedelta(days=7))
    found = find_cause(stage.facts)
    assert (found.cause, found.advice) == ("stopped", "start")


def test_a_run_in_each_half_of_what_kafka_keeps_may_be_a_little_late() -> None:
    stage = Stage(1)
    once(stage, timedelta(days=1), timedelta(days=1.1), timedelta(days=2))
    assert cause_of(stage) == "none"


def test_a_daily_run_is_not_overdue_before_the_day_is_over() -> None:
    stage = Stage(1)
    once(stage, timedelta(days=1), timedelta(hours=23), timedelta(hours=36))
    assert cause_of(stage) == "none"


def test_a_replica_that_is_not_in_sync_alone_slows_no_reader() -> None:
    stage = Stage(1)
    gc(stage)
    stage.change(health=TopicHealth(under_replicated=(0, 1), retention_s=WEEK))
    assert cause_of(stage) == "gc"


def test_the_source_of_a_table_is_not_kafka() -> None:
    stage = Stage(1, "speed")
    slow_brokers(stage)
    stage.change(health=None)
    assert cause_of(stage) != "kafka"


def test_a_stage_without_the_table_that_it_reads_says_so() -> None:
    facts = StageFacts("speed", NOW, (), missing_table="bronze")
    assert find_cause(facts).symptoms == (Symptom("no_table", {"table": "bronze"}),)


def told(stage: Stage) -> tuple[LagCause, str | None, list[str]]:
    """The cause, the advice, and the kinds of what points to it."""
    found = find_cause(stage.facts)
    return found.cause, found.advice, [each.kind for each in found.symptoms]


def test_a_key_that_makes_a_partition_hot_is_named_and_nobody_is_told_to_add_partitions() -> None:
    stage = Stage(1)
    hot_record_key(stage)
    found = find_cause(stage.facts)
    assert found.advice == "divide_key"
    assert [each.kind for each in found.symptoms] == ["hot_partition", "frequent_key", "frequent_key"]
    first = found.symptoms[1].figures
    assert (first["key"], first["offset"], first["records"]) == ("'UA'", 7, 2_000)
    assert 0.3 <= float(str(first["share"])) <= 1


@pytest.mark.parametrize(
    ("key", "kind", "advice"),
    [
        (FrequentKey("'UA'", is_missing=False, share=0.03, least=0.02, offset=7), "no_frequent_key",
         "check_partitioner"),
        # What is counted may be too high.
        (FrequentKey("'UA'", is_missing=False, share=0.4, least=0.01, offset=7), "no_frequent_key",
         "check_partitioner"),
        (FrequentKey(None, is_missing=True, share=0.9, least=0.9, offset=7), "no_key", "check_partitioner"),
        (FrequentKey(None, is_missing=False, share=0.9, least=0.9, offset=7), "hidden_key", "divide_key"),
        (FrequentKey("'UA'", is_missing=False, share=0.1, least=0.1, offset=7), "frequent_key",
         "check_partitioner"),
    ],
)  # fmt: skip
def test_a_partition_that_is_hot_without_a_frequent_key_has_another_remedy(
    key: FrequentKey, kind: str, advice: str
) -> None:
    stage = Stage(1)
    hot_partition(stage)
    sampled(stage, key)
    assert told(stage) == ("skew", advice, ["hot_partition", kind])


def test_a_long_task_of_ingest_is_told_with_the_keys_of_its_partition_and_not_with_settings_of_speed() -> (
    None
):
    stage = Stage(1)
    hot_key(stage)
    assert told(stage) == ("skew", "spread_partitions", ["long_task"])
    sampled(stage, FrequentKey("'UA'", is_missing=False, share=0.9, least=0.9, offset=7))
    assert told(stage) == ("skew", "divide_key", ["long_task", "frequent_key"])


@pytest.mark.parametrize(
    ("query", "shown", "share", "kinds", "advice"),
    [
        ("speed", "carrier=UA", 0.6, ["long_task", "frequent_dedup_key"], "fewer_of_key"),
        ("publish", "carrier=UA", 0.6, ["long_task", "frequent_dedup_key"], "fewer_of_key"),
        ("speed", None, 0.6, ["long_task", "hidden_dedup_key"], "fewer_of_key"),
        ("speed", "carrier=UA", 0.1, ["long_task", "frequent_dedup_key"], "more_state_partitions"),
        ("speed", "carrier=UA", 0.01, ["long_task", "no_frequent_dedup_key"], "more_state_partitions"),
        ("publish", "carrier=UA", 0.01, ["long_task", "no_frequent_dedup_key"], "more_slots"),
    ],
)
def test_a_long_task_of_a_stage_that_reads_a_table_is_told_with_its_dedup_keys(
    query: Query, shown: str | None, share: float, kinds: list[str], advice: str
) -> None:
    stage = Stage(1, query)
    hot_key(stage)
    assert told(stage) == ("skew", "spread_keys", ["long_task"])
    stage.change(dedup_keys=DedupKeySample(1_500, (FrequentDedupKey(shown, share, "flights-1@7"),)))
    assert told(stage) == ("skew", advice, kinds)
    figures = find_cause(stage.facts).symptoms[1].figures
    assert (figures["share"], figures["rows"]) == (share, 1_500)


def test_rows_of_which_none_is_an_event_have_no_frequent_key() -> None:
    stage = Stage(1, "speed")
    hot_key(stage)
    stage.change(dedup_keys=DedupKeySample(2_000, ()))
    assert told(stage) == ("skew", "more_state_partitions", ["long_task", "no_frequent_dedup_key"])


def test_a_quota_is_told_before_slow_brokers_and_a_short_wait_is_none() -> None:
    stage = Stage(1)
    slow_fetches(stage)
    stage.fetches(slow=2, throttled_s=0.5)
    assert told(stage) == ("kafka", "check_quotas", ["throttled"])
    gc(stage)
    stage.fetches(throttled_s=0.05)
    assert cause_of(stage) == "gc"


def test_a_slow_broker_is_named_with_what_its_partitions_tell_of_it() -> None:
    stage = Stage(1)
    slow(stage)
    health = TopicHealth(moved=(4,), retention_s=WEEK)
    stage.change(fetches=FetchFigures({1: 0.002, 2: 3.5}, silent=(3,)), health=health)
    found = find_cause(stage.facts)
    assert [dict(each.figures) for each in found.symptoms] == [
        {"brokers": (3,), "waited_s": 5.0},
        {"broker": 2, "took_s": 3.5},
        {"partitions": (4,)},
    ]
    assert (found.cause, found.advice) == ("kafka", "elect_leaders")
    stage.change(health=replace(health, moved=()))
    assert told(stage)[1:] == ("check_brokers", ["no_fetch", "slow_fetch"])
    stage.change(health=replace(health, under_replicated=(4,)))
    assert told(stage)[1:] == (
        "check_unsynced_brokers",
        ["no_fetch", "slow_fetch", "not_in_sync", "moved_leaders"],
    )


def test_a_leader_that_has_moved_alone_slows_no_reader() -> None:
    stage = Stage(1)
    gc(stage)
    stage.change(health=TopicHealth(moved=(0, 1), retention_s=WEEK))
    assert cause_of(stage) == "gc"


def test_quick_fetches_speak_against_brokers_and_for_the_store_where_most_time_passes_in_writing() -> None:
    stage = Stage(1)
    slow(stage)
    stage.change(fetches=FetchFigures({1: 0.002, 2: 0.004}))
    found = find_cause(stage.facts)
    assert (found.cause, found.symptoms[-1]) == ("slow", Symptom("quick_fetches", {"ms": 4.0}))
    stage = Stage(1)
    slow_brokers(stage)
    stage.change(fetches=None)
    without = find_cause(stage.facts)
    stage.change(fetches=FetchFigures({1: 0.002}))
    quick = find_cause(stage.facts)
    assert (without.cause, quick.cause) == ("kafka", "kafka")
    assert "quick_fetches" in {each.kind for each in quick.symptoms}
    assert quick.confidence <= without.confidence
