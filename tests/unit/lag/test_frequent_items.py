"""Frequent items are counted by a fixed number of counters, with an error that is bounded."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.lag.frequent_items import most_frequent

ITEMS = st.lists(st.one_of(st.none(), st.binary(max_size=1), st.sampled_from([b"a", b"b"])), max_size=300)
COUNTERS = st.integers(1, 40)


@given(ITEMS, COUNTERS)
@example([b"a", b"b", b"c", b"a", b"a", b"d"], 2)
def test_no_count_is_too_low_or_more_than_an_even_share_too_high(
    items: list[bytes | None], counters: int
) -> None:
    found = most_frequent(zip(items, range(len(items)), strict=True), counters)
    true = Counter(items)
    assert len(found) == min(counters, len(true))
    for each in found:
        assert each.least <= true[each.item] <= each.count
        assert each.error * counters <= len(items)
        assert items[each.at] == each.item
    # By this the number of items is known from the counts.
    assert sum(each.count for each in found) == len(items)


@given(ITEMS, COUNTERS)
def test_each_item_that_comes_more_often_than_an_even_share_is_found(
    items: list[bytes | None], counters: int
) -> None:
    found = {each.item for each in most_frequent(((each, 0) for each in items), counters)}
    assert {item for item, count in Counter(items).items() if count * counters > len(items)} <= found


@given(ITEMS)
def test_with_a_counter_for_each_item_the_counts_are_exact_and_the_most_frequent_comes_first(
    items: list[bytes | None],
) -> None:
    found = most_frequent(((each, 0) for each in items), max(len({*items}), 1))
    assert [(each.item, each.count) for each in found] == Counter(items).most_common()
    assert {each.error for each in found} <= {0}
