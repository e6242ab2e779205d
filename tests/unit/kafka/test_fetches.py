"""What of a topic a look reads: a few places of a partition, and one partition of each broker."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.kafka.fetches import Unread, one_for_each_broker, places


@given(st.integers(0, 2**62), st.integers(0, 2**40))
def test_places_are_spread_over_all_offsets_and_do_not_overlap(first: int, count: int) -> None:
    offsets = range(first, first + count)
    found = places(offsets)
    assert 1 <= len(found) <= 16
    assert (found[0].start, found[-1].stop) == (offsets.start, offsets.stop)
    assert [each.stop for each in found[:-1]] == [each.start for each in found[1:]]
    lengths = {len(each) for each in found}
    assert max(lengths) - min(lengths) <= 1


def test_of_each_broker_the_partition_is_asked_that_is_most_behind() -> None:
    unread = {
        0: Unread(7, range(10)),
        1: Unread(7, range(100, 130)),
        2: Unread(8, range(5)),
        3: Unread(7, range(20)),
    }
    assert one_for_each_broker(unread) == {1: unread[1], 2: unread[2]}


def test_of_many_brokers_those_are_asked_that_lead_what_is_most_behind() -> None:
    unread = {number: Unread(number % 50, range(number)) for number in range(1, 101)}
    assert sorted(one_for_each_broker(unread)) == list(range(93, 101))
