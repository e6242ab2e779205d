"""A sample is spread over what is unread, and bounded whatever that is."""

from pipelines.delta.sampled_rows import MOST_ROWS, picked, row_limit, spread


def test_few_commits_are_all_sampled_and_of_many_the_last_of_each_sixteenth() -> None:
    assert spread(range(5, 8)) == [5, 6, 7]
    assert spread(range(160)) == [*range(9, 160, 10)]
    assert spread(range(0)) == []


def test_a_file_is_sampled_the_more_the_larger_it_is() -> None:
    assert picked([]) == {}
    assert picked([7]) == {0: 16}
    assert picked([1, 1, 2]) == {0: 4, 1: 4, 2: 8}
    many = picked([3] * 1_000)
    assert (len(many), sum(many.values())) == (16, 16)
    # A file that the log calls empty is none to stumble over.
    assert sum(picked([0, 0]).values()) == 16


def test_of_large_records_fewer_are_read() -> None:
    small = {"size": 1 << 20, "stats": '{"numRecords": 100000}'}
    assert row_limit(small, 1) * 16 == MOST_ROWS
    assert row_limit({"size": 100 << 20, "stats": '{"numRecords": 1000}'}, 2) == 2 * 10
    assert row_limit({"size": 100 << 20, "stats": '{"numRecords": 1}'}, 1) == 1
    assert row_limit({"size": 1}, 3) == 375
