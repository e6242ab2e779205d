"""What parts of writing a micro-batch take is measured once, wherever they nest."""

import pytest

from pipelines.spark.streams import BatchFunction
from pipelines.spark.write_parts import part_of_writing, timed


def test_parts_add_up_and_one_within_another_counts_as_that_one() -> None:
    with timed() as parts:
        for _ in range(2):
            with part_of_writing("quarantine"), part_of_writing("commit"):
                pass
        assert {*parts} == {"quarantine"}
        before = parts["quarantine"]
        with part_of_writing("commit"):
            pass
    assert {*parts} == {"quarantine", "commit"}
    assert parts["quarantine"] == before > 0


def test_a_part_that_fails_counts_and_lets_the_next_one_count() -> None:
    with timed() as parts:
        with pytest.raises(ValueError, match="full"), part_of_writing("commit"):
            raise ValueError("full")
        with part_of_writing("quarantine"):
            pass
    assert {*parts} == {"commit", "quarantine"}


def test_outside_of_a_micro_batch_nothing_is_measured() -> None:
    with part_of_writing("commit"):
        pass
    with timed() as parts:
        pass
    assert parts == {}


def test_the_last_micro_batches_are_remembered_each_by_its_last_try() -> None:
    tries = 0

    def write(rows: object, batch: int) -> None:
        nonlocal tries
        tries += 1
        with part_of_writing("quarantine" if tries == 1 else "commit"):
            pass

    function = BatchFunction(write)
    for batch in (0, 0, *range(1, 12)):
        function(None, batch)  # type: ignore[arg-type]
    assert function.write_timings(0) == function.write_timings(1) == {}
    assert all({*function.write_timings(batch)} == {"commit"} for batch in range(2, 12))
