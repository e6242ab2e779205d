"""What came lately is known by the dates that producers choose, and by what ingest had read before."""

from dataclasses import replace

from pipelines.kafka.backlog import RECENT, PartitionBacklog

# Of a thousand records ingest had read 400 before, 800 are read, and 900 are visible.
PARTITION = PartitionBacklog(
    earliest=0,
    position=800,
    end=900,
    log_end=1_000,
    first_at=None,
    dated_from=700,
    usual_from=100,
    rate_out=1.0,
    end_before=400,
)


def test_what_is_dated_lately_came_lately() -> None:
    assert PARTITION.rate_in == 300 / RECENT.total_seconds()
    assert replace(PARTITION, end_before=None).rate_in == PARTITION.rate_in


def test_a_record_that_is_dated_in_the_future_does_not_make_all_that_follow_it_new() -> None:
    assert replace(PARTITION, dated_from=10).rate_in == 600 / RECENT.total_seconds()


def test_a_topic_that_is_shorter_than_what_was_read_has_nothing_new() -> None:
    assert replace(PARTITION, end_before=5_000).rate_in == 0


def test_a_transaction_that_began_lately_hides_nothing_even_if_all_dates_are_old() -> None:
    old = replace(PARTITION, dated_from=1_000)
    assert old.hidden == 0
    assert replace(old, end_before=900).hidden == 100
    assert replace(old, end_before=None).hidden == 100
    assert PARTITION.hidden == 0
