"""Which offsets a backfill would leave out, and what times mean in offsets."""

import pytest

from pipelines.kafka.backfill_plan import Bounds, sent_within


@pytest.mark.parametrize(
    ("span", "held", "lost", "gaps"),
    [
        # Up to the first record in bronze, beyond it, or none before it.
        (range(100), range(100, 200), None, []),
        (range(150), range(100, 200), None, []),
        (range(120, 130), range(100, 200), None, []),
        (range(60), range(100, 200), None, [range(60, 100)]),
        # Bronze has none: ingest goes on at 300.
        (range(300), None, None, []),
        (range(60), None, None, [range(60, 300)]),
        # Ingest had read up to 300.
        (range(250, 260), range(100, 200), range(200, 300), [range(200, 250)]),
        (range(150, 260), range(100, 200), range(200, 300), []),
        (range(110, 130), range(100, 200), range(200, 300), []),
        (range(60, 300), None, range(80, 300), []),
        (range(60, 70), None, range(80, 300), [range(70, 80)]),
        (range(90, 100), None, range(80, 300), [range(80, 90)]),
        # All of it is left to ingest.
        (range(320, 330), range(100, 200), range(200, 300), []),
    ],
)
def test_a_gap_at_an_end_of_bronze_is_found(
    span: range, held: range | None, lost: range | None, gaps: list[range]
) -> None:
    assert Bounds(span, range(400), 300, held=held, lost=lost).gaps == gaps


def test_what_kafka_has_deleted_or_retention_has_removed_is_no_gap() -> None:
    assert Bounds(range(250, 260), range(250, 400), 300, range(100, 200), lost=range(200, 300)).gaps == []
    assert Bounds(range(60), range(400), 300, range(100, 200), kept=100).gaps == []


@pytest.mark.parametrize(
    "available", [range(400), range(40, 400), range(250, 400), range(350, 400), range(400, 400)]
)
@pytest.mark.parametrize("kept", [0, 60, 100])
def test_each_offset_that_was_asked_for_has_one_fate_and_those_from_ingest_on_are_left_to_it(
    available: range, kept: int
) -> None:
    asked = range(10, 400)
    bounds = Bounds(asked, available, 300, range(100, 200), kept=kept)
    readable, deleted = bounds.readable, bounds.deleted
    assert not readable or (available.start <= readable.start and readable.stop <= 300)
    # Also what Kafka has deleted behind where ingest goes on, which is lost to both.
    assert not deleted or deleted.stop <= available.start
    assert bounds.removed == max(0, kept - 10)
    assert len(readable) + len(deleted) + bounds.removed + bounds.left_to_ingest == len(asked)


@pytest.mark.parametrize(
    ("available", "start", "stop", "span"),
    [
        (range(1000, 2000), 1200, 1500, range(1200, 1500)),
        (range(1000, 2000), None, None, range(1000, 2000)),
        # Nothing came since.
        (range(1000, 2000), -1, None, range(2000, 2000)),
        (range(1000, 2000), 1000, -1, range(1000, 2000)),
        # Kafka has deleted all, so what was sent since is not known: it begins with the first that Kafka has.
        (range(1000, 1000), -1, None, range(1000, 1000)),
    ],
)
def test_times_become_offsets(available: range, start: int | None, stop: int | None, span: range) -> None:
    assert sent_within(available, start, stop) == span
