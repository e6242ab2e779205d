"""A backfill brings what bronze lacks once, whatever happens beside it: ingest, accidents, a second one."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import WHOLE_FROM, set_table_property
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, InfrastructureError, OncelakeError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.log_divergence import last_offsets
from pipelines.kafka.topics import find_topic
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.lineage.key_filter import asked_key
from pipelines.lineage.searches import OfKey
from pipelines.spark.session import forget_tables
from pipelines.steps.backfill import OffsetsGone, backfill
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.forget import forget
from pipelines.steps.nightly import nightly
from tests.support.accidents import dying, once
from tests.support.backfilled_topics import EVER, FIRST_SENT, MakeLake, Source, with_settings
from tests.support.kafka import MakeTopic, make_anew, ordered_producer
from tests.support.lakes import flight
from tests.support.nights import ONE, TWO, run, stream


class Killed(BaseException):
    """The process is killed here."""


@pytest.fixture
def source(broker: str, topic: MakeTopic, make_lake: MakeLake) -> Source:
    return Source(broker, topic(partitions=2), make_lake)


@pytest.fixture
def gaps(source: Source) -> Source:
    """Bronze lacks the beginning of one partition, and some records of both."""
    source.send(250)
    source.send(40, partition=1)
    source.ingest()
    source.send(50)
    source.ingest()
    source.drop(
        "_partition = 0 AND (_offset < 120 OR _offset IN (130, 131, 140, 299 - 10))"
        " OR _partition = 1 AND _offset BETWEEN 10 AND 19"
    )
    return source


def test_what_bronze_lacks_of_a_span_comes_in_chunks_and_the_rest_is_left_to_ingest(gaps: Source) -> None:
    gaps.send(7)
    before = gaps.held()
    planned = gaps.backfill(dry_run=True)
    assert {n: (p.lack.offsets, p.left_to_ingest) for n, p in planned.partitions.items()} == {
        0: (124, 7),
        1: (10, 0),
    }
    assert gaps.held() == before

    one_hour = BackfillSpan(FIRST_SENT + timedelta(hours=1), FIRST_SENT + timedelta(minutes=135))
    done = gaps.backfill(one_hour)
    assert (done.progress.records, done.partitions[0].span) == (60 + 2, range(60, 135))
    assert gaps.backfill(BackfillSpan(offsets={0: range(141)})).progress.records == 60 + 1
    assert gaps.backfill().progress.records == 1 + 10
    assert gaps.backfill().progress.total == 0

    at_once = [each.done - before.done for before, each in zip(gaps.told, gaps.told[1:], strict=False)]
    assert max(at_once) <= 100
    assert gaps.told[-1].done == gaps.told[-1].total
    envelopes = gaps.lake.table("bronze").where("_partition = 0").drop("_ingested_at", "_offset", "value")
    # All but the moment of ingestion is as ingest writes it.
    assert envelopes.drop("_kafka_timestamp").distinct().count() == 1
    gaps.exact()


def test_a_partition_that_bronze_has_lost_is_filled_from_where_ingest_began(source: Source) -> None:
    source.send(30, partition=1)
    for _ in range(3):
        source.send(10)
        source.ingest()
    source.drop("_partition = 1")
    # Spark has forgotten the oldest micro-batch, as it does after a hundred more.
    for kind in ("offsets", "commits"):
        (Path(source.lake.config.checkpoint("ingest")) / kind / "0").unlink()
    later = BackfillSpan(offsets={1: range(10, 30)})
    with pytest.raises(ConfigError, match=r"-1 @ 0\.\.9, expected none.*--offsets 1:0\.\.29"):
        source.backfill(later)
    # Begins with the lowest, so that bronze ends where a run that dies has ended.
    source.backfill(BackfillSpan(offsets={1: range(20)}))
    source.backfill(later)
    source.exact()


@pytest.mark.thorough
def test_a_run_is_killed_and_ingest_commits_between_its_steps_and_the_next_run_completes_it(
    gaps: Source,
) -> None:
    def more() -> None:
        gaps.send(3)
        assert gaps.ingest() == 3

    with (
        armed(Point.OFFSETS_PLANNED, more),
        armed(Point.CHUNK_DRAFTED, dying(Killed(), 2)),
        pytest.raises(Killed),
    ):
        gaps.backfill()
    with armed(Point.CHUNK_DRAFTED, once(more)):
        gaps.backfill()
    gaps.exact()


@pytest.mark.thorough
@pytest.mark.parametrize("point", [Point.OFFSETS_PLANNED, Point.CHUNK_COMMITTED], ids=str)
def test_a_run_that_dies_is_completed_by_the_next(gaps: Source, point: Point) -> None:
    with armed(point, dying(Killed())), pytest.raises(Killed):
        gaps.backfill()
    gaps.backfill()
    gaps.exact()


@pytest.mark.thorough
def test_of_two_backfills_one_works_and_one_that_stood_still_writes_nothing_more(gaps: Source) -> None:
    def meet() -> None:
        with pytest.raises(InfrastructureError, match="is at work on this pipeline now"):
            gaps.backfill()
        with pytest.raises(InfrastructureError, match="is at work on this pipeline now"):
            reset_checkpoint(gaps.lake.pipeline, "reset", "ingest")
        # As after a pause that was longer than the lease.
        shutil.rmtree(gaps.lake.config.ops_table("leases"))
        assert gaps.backfill(BackfillSpan(offsets={0: range(135)})).progress.records == 122

    with (
        armed(Point.CHUNK_DRAFTED, once(meet)),
        pytest.raises(InfrastructureError, match="lost its lease"),
    ):
        gaps.backfill()
    assert gaps.backfill().progress.records == 12
    gaps.exact()


@pytest.mark.thorough
def test_a_reset_of_ingest_and_a_backfill_never_read_the_same_offsets(source: Source) -> None:
    source.send(150)
    source.ingest()
    source.drop("_offset >= 60")

    def reset() -> None:
        shutil.rmtree(source.lake.config.ops_table("leases"))
        reset_checkpoint(source.lake.pipeline, "reset", "ingest")
        assert source.ingest() == 90

    # By the checkpoint of before, the backfill has these to read; after the reset, ingest has.
    with (
        armed(Point.CHUNK_DRAFTED, once(reset)),
        pytest.raises(InfrastructureError, match="lost its lease"),
    ):
        source.backfill()
    source.drop("_offset < 30")
    reset_checkpoint(source.lake.pipeline, "reset", "ingest")
    # Ingest has no checkpoint, and will begin behind the last record of bronze.
    source.send(4)
    planned = source.backfill()
    assert (planned.progress.records, planned.partitions[0].left_to_ingest) == (30, 4)
    assert source.ingest() == 4
    source.exact()


@pytest.mark.thorough
def test_offsets_that_kafka_no_longer_has_are_named_and_the_others_are_read(
    gaps: Source, admin: AdminClient
) -> None:
    position = TopicPartition(gaps.name, 0, 100)
    admin.delete_records([position])[position].result(30)
    # It begins with the first that Kafka has.
    assert gaps.backfill(BackfillSpan(until=FIRST_SENT + timedelta(hours=2))).progress.records == 20 + 10
    with pytest.raises(OffsetsGone, match=rf"{gaps.name}-0 @ 0\.\.99\. What Kafka still has is in") as gone:
        gaps.backfill()
    assert (gone.value.exit_code, gone.value.done.progress.records) == (4, 4)
    with pytest.raises(OffsetsGone, match=r"0 @ 90\.\.99\. What Kafka still has would be read"):
        gaps.backfill(BackfillSpan(offsets={0: range(90, 110)}), dry_run=True)
    accepted = [{"partition": 0, "first": 0, "last": 99, "why": "a disk was lost"}]
    audit = gaps.lake.config.audit.model_validate({"known_gaps": accepted})
    gaps.lake.config = gaps.lake.config.model_copy(update={"audit": audit})
    assert gaps.backfill().progress.total == 0


@pytest.mark.thorough
def test_what_bronze_lost_behind_its_last_record_stays_in_sight_of_ingest_until_all_is_back(
    source: Source,
) -> None:
    # A gap between other records would be accepted.
    source.lake.pipeline = with_settings(source, "audit", offset_gaps="warn")
    source.lake.pipeline = with_settings(source, "backfill", chunk_offsets=20)
    source.send(150)
    source.ingest()
    source.drop("_offset >= 100")
    with pytest.raises(ConfigError, match=r"found \S+-0 @ 100\.\.129.* --offsets 0:100\.\.139"):
        source.backfill(BackfillSpan(offsets={0: range(130, 140)}))
    assert source.lake.count("bronze") == 100
    for ends in (120, 140):
        with armed(Point.CHUNK_COMMITTED, dying(Killed())), pytest.raises(Killed):
            source.backfill()
        assert source.held().keys() == {(0, n) for n in range(ends)}
        with pytest.raises(SourceError, match=rf"from offset {ends} on: Kafka has them, and bronze does not"):
            source.ingest()
    assert source.backfill().progress.records == 10
    source.exact()


@pytest.mark.thorough
def test_history_is_read_from_its_end_so_that_bronze_has_no_gap_before_its_first_record(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    source = Source(
        *(broker, topic(partitions=2), make_lake, "kafka.starting_offsets=latest"),
        "accept_risks=[starting_offsets_latest]",
    )
    source.lake.pipeline = with_settings(source, "backfill", chunk_offsets=20)
    source.send(50)
    source.send(30, partition=1)
    assert source.ingest() == 0
    source.send(5)
    assert source.ingest() == 5
    with pytest.raises(ConfigError, match=r"-0 @ 40\.\.49.* --offsets 0:10\.\.49"):
        source.backfill(BackfillSpan(offsets={0: range(10, 40)}))
    # Ingest began behind these, and has none of them.
    with pytest.raises(ConfigError, match=r"-1 @ 20\.\.29.* --offsets 1:0\.\.29"):
        source.backfill(BackfillSpan(offsets={1: range(20)}))
    for _ in range(3):
        with armed(Point.CHUNK_COMMITTED, dying(Killed())), pytest.raises(Killed):
            source.backfill()
        for number, end in ((0, source.sent[0]), (1, 30)):
            there = sorted(n for partition, n in source.held() if partition == number)
            assert there == list(range(there[0], end))
    source.backfill()
    source.exact()


@pytest.mark.thorough
def test_what_kafka_deletes_while_a_run_is_at_work_is_named(gaps: Source, admin: AdminClient) -> None:
    def delete(partition: int, until: int) -> None:
        position = TopicPartition(gaps.name, partition, until)
        admin.delete_records([position])[position].result(30)

    # Bronze has 120 to 124, and of the other partition all but 10 to 19.
    def both() -> None:
        delete(0, 125)
        delete(1, 40)

    with armed(Point.OFFSETS_PLANNED, both), pytest.raises(OffsetsGone) as gone:
        gaps.backfill()
    found = {number: {*chain(*ranges)} for number, ranges in gone.value.done.gone.items()}
    # Where bronze has some of a block of offsets, the whole block is named.
    assert found == {0: {*range(120)}, 1: {*range(40)}}
    assert gone.value.done.progress.records == 4
    # Of a partition that Kafka has emptied nobody knows whether its records were sent since then.
    said = rf"-0 @ 0\.\.119; {gaps.name}-1 @ 0\.\.39\. What Kafka still has would be read"
    with pytest.raises(OffsetsGone, match=said):
        gaps.backfill(dry_run=True)


@pytest.mark.thorough
def test_no_record_of_a_topic_that_was_recreated_meanwhile_is_written(
    gaps: Source, admin: AdminClient
) -> None:
    before = gaps.held()

    def recreate() -> None:
        make_anew(admin, gaps.name, 2)
        ordered = ordered_producer(gaps.lake.config.kafka.bootstrap_servers)
        for number in range(600):
            ordered.produce(gaps.name, flight(flight=number + 1), partition=number % 2)
        assert ordered.flush(60) == 0

    with (
        armed(Point.OFFSETS_PLANNED, recreate),
        pytest.raises(SourceError, match="is not the topic that") as refused,
    ):
        gaps.backfill()
    assert refused.value.exit_code == 4
    assert gaps.held() == before


@pytest.mark.thorough
def test_what_retention_begins_to_remove_after_the_plan_does_not_come_back(gaps: Source) -> None:
    before, table = gaps.held(), gaps.lake.config.table("bronze")
    with (
        armed(
            Point.OFFSETS_PLANNED,
            lambda: set_table_property(gaps.lake.spark, table, WHOLE_FROM, "2013-01-02"),
        ),
        pytest.raises(InfrastructureError, match="maintain has removed old records from it since this run"),
    ):
        gaps.backfill()
    assert gaps.held() == before


@pytest.mark.thorough
def test_a_bronze_that_is_put_back_from_a_backup_gets_nothing_more(gaps: Source, tmp_path: Path) -> None:
    lake, table = gaps.lake, gaps.lake.config.table("bronze")
    backup = shutil.copytree(table, tmp_path / "bronze")
    before = gaps.held()

    def put_back() -> None:
        shutil.rmtree(table)
        shutil.copytree(backup, table)
        forget_tables()

    def taken_over() -> None:
        # It knows nothing of the epoch that the next run took.
        shutil.rmtree(lake.config.ops_table("leases"))
        gaps.backfill(BackfillSpan(offsets={1: range(15)}))
        put_back()

    with (
        armed(Point.CHUNK_DRAFTED, once(taken_over)),
        pytest.raises(InfrastructureError, match="this run lost its lease"),
    ):
        gaps.backfill()
    assert gaps.held() == before
    # Its reader knows versions that it has no more.
    gaps.send(1)
    gaps.ingest()
    stream(lake)
    with (
        armed(Point.CHUNK_DRAFTED, once(put_back)),
        pytest.raises(SourceError, match="and that checkpoint was not"),
    ):
        gaps.backfill()
    assert gaps.held() == before


@pytest.mark.thorough
def test_a_clock_that_is_ahead_of_the_store_is_refused(source: Source) -> None:
    source.send(1)
    source.ingest()
    # As if the clock was an hour ahead of what is tolerated.
    ahead = with_settings(source, "ingest", max_clock_behind=timedelta(hours=-1))
    with pytest.raises(InfrastructureError, match="the clock of this machine is ahead"):
        backfill(ahead, "run", EVER, source.told.append)


@pytest.mark.thorough
def test_what_was_forgotten_comes_back_empty(source: Source) -> None:
    lake = source.lake
    source.send(5)
    source.ingest()
    forget(lake.pipeline, "run", OfKey(lake.pipeline, asked_key(lake.contract, ("flight=3",))), dry_run=False)
    source.drop("_offset BETWEEN 1 AND 3")
    assert source.backfill().progress.records == 3
    empty = lake.table("bronze").where("_forgotten IS NOT NULL").select("_offset", "value").first()
    assert empty is not None
    assert (empty["_offset"], empty["value"]) == (2, None)
    source.exact()


@pytest.mark.thorough
def test_a_micro_batch_of_ingest_that_does_not_come_is_not_waited_for_for_ever(gaps: Source) -> None:
    gaps.send(3)
    with (
        armed(Point.BATCH_LOOKED_FOR, dying(OncelakeError("the disk is full"))),
        pytest.raises(OncelakeError),
    ):
        gaps.ingest()
    assert gaps.backfill().progress.records == 134
    assert gaps.ingest() == 3
    gaps.exact()


@pytest.mark.thorough
def test_both_logs_are_compared_at_the_last_record_and_not_at_the_last_that_came(gaps: Source) -> None:
    pipeline = gaps.lake.pipeline
    reset_checkpoint(pipeline, "reset", "ingest")
    gaps.send(1)
    gaps.ingest()
    assert gaps.backfill().progress.records == 134
    topic = find_topic(gaps.lake.spark, pipeline.config.kafka)
    assert last_offsets(SparkIngestState(pipeline, topic)) == {0: 300, 1: 39}


@pytest.mark.thorough
def test_the_night_after_a_backfill_takes_in_what_it_brought(
    broker: str, topic: MakeTopic, make_lake: MakeLake, small: DataContract
) -> None:
    settings = ("batch.seal_by=kafka", "audit.offset_gaps=warn")
    source = Source(broker, topic(partitions=1), partial(make_lake, contract=small), *settings)
    lake = source.lake
    source.send(20)
    source.ingest()
    source.drop("_offset BETWEEN 5 AND 14")
    stream(lake)
    assert run(lake, ONE).counts.rows == 10
    source.send(5)
    source.ingest()
    assert source.backfill().progress.records == 10
    assert stream(lake).counts.late == 0
    night = nightly(lake.pipeline, "run", [TWO], "late")
    assert [(verdict.day, verdict.cause) for verdict in night.also_rebuilt] == [(ONE, "late")]
    assert night.days == {ONE: "certified", TWO: "certified"}
    assert night.counts.rows == 20
    index = index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")))
    assert [(each.first, each.last) for each in index.offsets()] == [(0, 24)]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_any_history_ends_with_each_record_once(source: Source, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    source.send(200)
    source.send(20, partition=1)
    source.ingest()
    points = [Point.OFFSETS_PLANNED, Point.CHUNK_DRAFTED, Point.CHUNK_COMMITTED]

    def span() -> BackfillSpan:
        first = dice.randrange(200)
        return dice.choice([EVER, BackfillSpan(offsets={0: range(first, first + dice.randrange(1, 150))})])

    def drop() -> None:
        first = dice.randrange(220)
        condition = f"_offset BETWEEN {first} AND {first + dice.randrange(90)}"
        newest = "NOT (_partition = 0 AND _offset >= 199 OR _partition = 1 AND _offset >= 19)"
        source.drop(f"{condition} AND {newest}")

    def fill() -> None:
        # One that would leave a gap at an end of bronze is refused.
        with suppress(ConfigError):
            source.backfill(span())

    def killed() -> None:
        dies = dying(Killed(), dice.randrange(1, 3))
        with suppress(Killed), armed(dice.choice(points), dies):
            fill()

    def more() -> None:
        source.send(2)
        source.ingest()

    def beside() -> None:
        with armed(dice.choice(points), once(more)):
            fill()

    def reset() -> None:
        reset_checkpoint(source.lake.pipeline, "reset", "ingest")

    acts: list[Callable[[], object]] = [
        drop,
        drop,
        killed,
        beside,
        reset,
        source.ingest,
        fill,
    ]
    for _ in range(8):
        dice.choice(acts)()
    source.ingest()
    source.backfill()
    source.exact()


@pytest.mark.thorough
def test_a_backfill_is_no_faster_than_it_may_be(gaps: Source) -> None:
    gaps.lake.pipeline = with_settings(gaps, "backfill", max_offsets_per_second=40)
    done = gaps.backfill()
    assert done.progress.done / done.progress.elapsed_s <= 41
