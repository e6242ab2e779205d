"""Whether a slot is published, skipped or refused, and whether progress goes with a checkpoint."""

from dataclasses import asdict, replace

import pytest
from confluent_kafka import TopicPartition

from pipelines.errors import SourceError
from pipelines.publishing.progress_check import fits_in, reconcile_with_checkpoint
from pipelines.publishing.progress_gap import progress_gap
from pipelines.publishing.progress_refusals import refuse_other_partitions, refuse_other_progress
from pipelines.publishing.slots import ProgressError, SlotProgress, Written, what_to_do
from pipelines.publishing.topic_lookup import Row, slots_with_all
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.spark.checkpoints import QueryFiles
from pipelines.steps.publish_reset import InFlight, repaired_progress

DONE = SlotProgress(8, "query", "topic-id", 3)
"""What progress says once micro-batch 7 is published."""

SINK = TransactionalSink("oncelake.local.flights", "events", 3, {"bootstrap.servers": "localhost:1"})


@pytest.mark.parametrize(
    ("known", "is_new", "expected"),
    [
        (replace(DONE, next_batch=7), False, "publish"),
        (DONE, False, "skip"),
        (None, True, "publish"),
    ],
)
def test_a_slot_is_published_unless_its_progress_says_it_was(
    known: SlotProgress | None, is_new: bool, expected: str
) -> None:
    assert what_to_do(known, DONE, is_new=is_new) == expected


@pytest.mark.parametrize(
    ("known", "done", "expected"),
    [
        ((7, 0), (7, 1), "publish"),
        ((7, 1), (7, 1), "skip"),
        ((7, 2), (7, 1), "skip"),
        ((7, 2), (8, 0), "publish"),
        ((8, 0), (7, 1), "skip"),
        ((8, 0), (8, 0), "skip"),
        ((7, 1), (8, 0), None),
        ((7, 0), (7, 2), None),
        ((6, 2), (7, 1), None),
        ((8, 1), (8, 0), None),
    ],
)
def test_parts_of_a_micro_batch_follow_each_other(
    known: tuple[int, int], done: tuple[int, int], expected: str | None
) -> None:
    was, mark = (replace(DONE, next_batch=batch, part=part, parts=3) for batch, part in (known, done))
    if expected:
        assert what_to_do(was, mark, is_new=False) == expected
    else:
        with pytest.raises(ProgressError, match="progress is at micro-batch"):
            what_to_do(was, mark, is_new=False)


def test_the_first_micro_batch_follows_what_was_written_before_the_query_had_an_id() -> None:
    done = replace(DONE, next_batch=1)
    assert what_to_do(replace(done, next_batch=0, source=""), done, is_new=False) == "publish"
    with pytest.raises(ProgressError, match="progress belongs to another stream"):
        what_to_do(replace(done, source=""), done, is_new=False)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (None, "no progress, but the checkpoint is at micro-batch 7"),
        (replace(DONE, next_batch=6), "progress is at micro-batch 6, but the checkpoint is at 7"),
        (replace(DONE, next_batch=9), "progress is at micro-batch 9, but the checkpoint is at 7"),
        (replace(DONE, source="another"), "progress belongs to another stream"),
        (replace(DONE, topic_id="another"), "progress belongs to another stream"),
        (replace(DONE, slots=4), "progress belongs to another stream"),
    ],
)
def test_what_cannot_be_right_is_refused(known: SlotProgress | None, message: str) -> None:
    with pytest.raises(ProgressError, match=message):
        what_to_do(known, DONE, is_new=False)


def test_a_mark_comes_back_from_the_group_as_it_was() -> None:
    assert SlotProgress.of(DONE.commit("oncelake-progress", 2)) == DONE
    written = Written(7, "00ff", {"publish.format": "json"})
    full = replace(
        DONE, part=1, parts=4, run="run", partitions=6, is_begun=True, is_lost=True, written=written
    )
    for read in (SlotProgress.of(full.commit("oncelake-progress", 2)), SlotProgress.of_record(full.record())):
        assert read is not None
        assert asdict(read) == asdict(full)
    assert SlotProgress.of(TopicPartition("oncelake-progress", 2)) is None


def test_an_offset_that_another_program_has_set_is_no_progress() -> None:
    # As kafka-consumer-groups.sh --reset-offsets commits it.
    for metadata in ("", "{}", '{"source": "query", "topic_id": "topic-id", "slots": 0}'):
        committed = TopicPartition("oncelake-progress", 2, 7, metadata)
        with pytest.raises(SourceError, match="the metadata of an offset of the sink's group is no progress"):
            SlotProgress.of(committed)


def test_progress_of_slots_that_the_sink_has_no_more_is_none_of_those_that_it_has() -> None:
    left = {3: DONE}
    assert reconcile_with_checkpoint(SINK, "topic-id", left, files(8)) == DONE
    refuse_other_progress(SINK, "topic-id", left, files(8))


def test_clients_name_the_rack_of_their_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = replace(SINK, rack_variable="NODE_RACK")
    monkeypatch.delenv("NODE_RACK", raising=False)
    assert "client.rack" not in sink.connection.settings()
    monkeypatch.setenv("NODE_RACK", "eu-1")
    assert sink.connection.settings()["client.rack"] == "eu-1"
    monkeypatch.setenv("NODE_RACK", "${env:NODE_RACK}")
    assert "client.rack" not in sink.connection.settings()
    assert "client.rack" not in SINK.connection.settings()


def files(next_batch: int, *, under_way: bool = False, query: str | None = "query") -> QueryFiles:
    return QueryFiles("/lake/checkpoint", query, next_batch, next_batch if under_way else None)


def marks(*following: int, **changes: object) -> dict[int, SlotProgress]:
    return {slot: replace(DONE, next_batch=n, **changes) for slot, n in enumerate(following)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "checkpoint"),
    [
        (marks(0, 0, 0, source=""), files(0, query=None)),
        (marks(0, 0, 0, source=""), files(0, under_way=True)),
        (marks(0, 0, 0, source="") | marks(1), files(0, under_way=True)),
        (marks(7, 7, 7) | {3: replace(DONE, next_batch=2, slots=4, source="old")}, files(7)),
        (marks(7, 7, 7), files(7)),
        (marks(7, 8, 7), files(7, under_way=True)),
        (marks(8, 8, 8), files(7, under_way=True)),
    ],
)
def test_matching_progress_is_not_rewritten(known: dict[int, SlotProgress], checkpoint: QueryFiles) -> None:
    assert reconcile_with_checkpoint(SINK, "topic-id", known, checkpoint) is None


@pytest.mark.parametrize(
    ("known", "checkpoint", "expected"),
    [
        ({}, files(7), 7),
        (marks(7, 7, 7, 7, slots=4), files(7), 7),
        (marks(7, 7), files(7), 7),
        ({}, files(7, under_way=True), 7),
        (marks(7, 8), files(7, under_way=True), 7),
        (marks(7, 7, 7, 7, slots=4), files(7, under_way=True), 7),
        (marks(7, 7, slots=2), files(7, under_way=True), 7),
        (marks(7) | {1: replace(DONE, next_batch=7, slots=2)}, files(7, under_way=True), 7),
    ],
    ids=[
        "forgotten by the cluster",
        "another number of slots",
        "one forgotten",
        "forgotten in the middle",
        "one forgotten in the middle",
        "fewer slots for what nobody has committed",
        "more slots for what nobody has committed",
        "more slots, by a start that died",
    ],
)
def test_missing_slot_progress_is_rewritten_from_the_checkpoint(
    known: dict[int, SlotProgress], checkpoint: QueryFiles, expected: int
) -> None:
    assert reconcile_with_checkpoint(SINK, "topic-id", known, checkpoint) == replace(
        DONE, next_batch=expected
    )


def test_a_slot_is_on_the_topic_with_all_rows_that_were_looked_for_or_none() -> None:
    rows: list[Row] = [(bytes([number]), None, ()) for number in range(4)]
    wanted = {row: number // 2 for number, row in enumerate(rows)}
    assert slots_with_all(SINK, wanted, []) == set()
    assert slots_with_all(SINK, wanted, rows[:2]) == {0}
    assert slots_with_all(SINK, wanted, rows) == {0, 1}
    with pytest.raises(SourceError, match=r"has 1 of the 2 rows .* slot 1 .*published\|unpublished"):
        slots_with_all(SINK, wanted, rows[:3])


def test_a_reset_leaves_alone_only_what_the_start_accepts() -> None:
    ours = replace(DONE, next_batch=7)
    under_way, between = files(7, under_way=True), files(7)
    assert fits_in(ours, ours, between)
    assert fits_in(DONE, ours, under_way)
    # Of a checkpoint that was restored from a backup nothing is under way, and progress is ahead of it.
    assert not fits_in(DONE, ours, between)
    assert not fits_in(None, ours, under_way)
    assert not fits_in(replace(ours, topic_id="another"), ours, under_way)
    begun = replace(DONE, next_batch=0)
    assert fits_in(replace(begun, source=""), begun, files(0, under_way=True))


def fix(
    known: dict[int, SlotProgress], answer: InFlight = "unpublished", batch: int = 7
) -> dict[int, SlotProgress]:
    return repaired_progress(
        SINK, replace(DONE, next_batch=batch), known, files(batch, under_way=True), answer
    )


@pytest.mark.parametrize(("answer", "expected"), [("unpublished", (7, 1)), ("published", (7, 2))])
def test_a_reset_takes_back_the_part_that_was_begun_and_no_other(
    answer: InFlight, expected: tuple[int, int]
) -> None:
    known = marks(7, 7, 7, part=1, parts=3)
    assert fix(known, answer) == {}
    begun = replace(known[1], part=2, is_begun=True)
    found = fix(known | {1: begun}, answer)
    assert {slot: mark.position for slot, mark in found.items()} == {1: expected}
    assert (found[1].parts, found[1].is_begun) == (3, False)
    last = replace(known[1], next_batch=8, part=0, is_begun=True)
    assert fix(known | {1: last})[1].position == (7, 2)
    # Of a micro-batch that is sent at once the only part is all of it.
    assert fix(marks(7, 8, 7) | {1: replace(DONE, is_begun=True)})[1].position == (7, 0)


def test_a_reset_refuses_to_answer_for_parts_that_nobody_knows() -> None:
    known = marks(7, 7, part=1, parts=3)
    for unknown in (known, known | {2: replace(DONE, next_batch=7, is_lost=True)}):
        for answer in InFlight.__args__:  # type: ignore[attr-defined]
            with pytest.raises(
                SourceError, match=r"slots 2 have sent is unknown.* 1 of 3 parts.* --to beginning"
            ):
                fix(unknown, answer)
    # Where nothing is known of parts the answer is for the whole.
    assert fix(marks(8, 8), "published")[2].position == (8, 0)
    assert fix({}, "unpublished")[0].position == (7, 0)


def test_a_reset_refuses_other_slots_than_a_micro_batch_was_begun_with() -> None:
    with pytest.raises(SourceError, match=r"found 3, but micro-batch 7 was begun with 4.*publish\.slots=4"):
        fix(marks(8, 8, 7, 7, slots=4))
    # Nothing of it is published.
    assert fix(marks(7, 7, 7, 7, slots=4)).keys() == {0, 1, 2}


def test_a_new_stream_gets_progress_before_its_query_has_an_id() -> None:
    for checkpoint in (files(0, query=None), files(0)):
        assert reconcile_with_checkpoint(SINK, "topic-id", {}, checkpoint) == SlotProgress(
            0, "", "topic-id", 3
        )


def test_a_topic_that_was_made_anew_before_the_stream_has_begun_is_the_one_to_begin_with() -> None:
    known = marks(0, 0, 0, source="", topic_id="before")
    assert reconcile_with_checkpoint(SINK, "topic-id", known, files(0, query=None)) == SlotProgress(
        0, "", "topic-id", 3
    )


@pytest.mark.parametrize(
    ("known", "checkpoint", "message"),
    [
        (marks(7, 7, 7), files(0, query=None), "its checkpoint /lake/checkpoint does not exist"),
        (
            marks(7, 7, 7, source="another"),
            files(7),
            "belongs to another checkpoint: found query another",
        ),
        (marks(7, 7, 7, topic_id="another"), files(7), "was recreated, or is another"),
        (marks(7, 7, 8, 7, slots=4), files(7, under_way=True), "publish.slots: found 3, but .* with 4"),
        (marks(7, 7, 7, slots=4), files(7, under_way=True), "publish.slots: found 3, but .* with 4"),
        (
            marks(7, 7, 7, 7, slots=4) | {2: replace(DONE, next_batch=7, slots=4, part=1, parts=2)},
            files(7, under_way=True),
            "publish.slots: found 3, but .* with 4",
        ),
        (
            marks(7, 7, 7, 7, slots=4) | {3: replace(DONE, next_batch=7, slots=4, is_lost=True)},
            files(7, under_way=True),
            "publish.slots: found 3, but .* with 4",
        ),
        ({}, replace(files(7), note={"topic_id": "another"}), "was recreated, or is another"),
        (
            {},
            replace(files(7), note={"sink": "oncelake.prod.flights"}),
            "oncelake.local.flights: found this name .* expected 'oncelake.prod.flights', under which",
        ),
        (
            {},
            replace(files(7, under_way=True), note={"progress_topic": "before"}),
            r"publish.progress_topic: found 'oncelake-progress', expected 'before'.* published\|unpublished",
        ),
        (marks(9, 9, 9, 9, slots=4), files(5), "progress is at micro-batch 9, but .* at 5"),
        (marks(9, 9), files(5), "progress is at micro-batch 9, but .* at 5"),
        (marks(9, 9, 9), files(7, under_way=True), "progress is at micro-batch 9, but .* at 7"),
        (marks(6, 7, 7), files(7), "progress is at micro-batch 6"),
        (marks(8, 8, 8), files(7), "progress is at micro-batch 8"),
    ],
)
def test_what_does_not_go_together_is_told_with_what_to_do(
    known: dict[int, SlotProgress], checkpoint: QueryFiles, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as refused:
        reconcile_with_checkpoint(SINK, "topic-id", known, checkpoint)
    assert "oncelake publish reset" in str(refused.value) or "oncelake publish_stream" in str(refused.value)


@pytest.mark.parametrize(
    ("known", "checkpoint", "missing", "again"),
    [
        (marks(6, 7, 7), files(7), "micro-batch 6", None),
        (marks(0, 0, 0, source=""), files(7), "micro-batches 0 to 6", None),
        (marks(5, 7, 7, part=1), files(7, under_way=True), "micro-batches 5 to 6", None),
        (marks(9, 9, 9), files(7), None, "micro-batches 7 to 8"),
        (marks(7, 7, 7, part=1), files(7), None, "micro-batch 7"),
        (marks(8, 8, 8, part=1), files(7, under_way=True), None, "micro-batches 7 to 8"),
        (marks(6, 9, 7), files(7, under_way=True), "micro-batch 6", "micro-batches 7 to 8"),
    ],
)
def test_whether_progress_or_checkpoint_is_older_decides_what_is_said(
    known: dict[int, SlotProgress], checkpoint: QueryFiles, missing: str | None, again: str | None
) -> None:
    with pytest.raises(SourceError) as refused:
        reconcile_with_checkpoint(SINK, "topic-id", known, checkpoint)
    said = str(refused.value)
    answer = " --in-flight published|unpublished" if checkpoint.in_flight is not None else ""
    lacks = f"may lack {missing}, which the stream does not send again. To send everything once more: move"
    assert (lacks in said) is (missing is not None)
    assert (f"--to checkpoint{answer} --accept-missing." in said) is (missing is not None)
    assert (f"Consumers have {again} already; to continue" in said) is (again is not None)
    assert (f"--to checkpoint{answer}." in said) is (again is not None)


def test_only_progress_of_the_same_checkpoint_and_topic_is_older_or_newer_than_it() -> None:
    ours = replace(DONE, next_batch=7)
    for mark in (replace(DONE, next_batch=2, source="another"), replace(DONE, next_batch=2, topic_id="b")):
        assert not progress_gap({0: mark}, ours, files(7))
    left = replace(DONE, next_batch=2, slots=4)
    assert not progress_gap(marks(7, 7, 7) | {3: left}, ours, files(7))


def test_a_topic_of_which_nobody_knows_how_many_partitions_it_had_is_taken_as_it_is() -> None:
    for known in (None, 4):
        refuse_other_partitions(SINK, known, 4)
    with pytest.raises(
        SourceError, match=r"'events': found 5 partitions, expected the 4 .*accept-partitions"
    ):
        refuse_other_partitions(SINK, 4, 5)
