"""Where ingest first began, by what is noted beside its checkpoint and what bronze says."""

import json
from datetime import date

import pytest

from pipelines.errors import SourceError
from pipelines.kafka.beginnings import Beginning, Loss, beginning_in, first_began
from pipelines.spark.checkpoints import note_in

ONE, TWO, THREE, FOUR = (date(2013, 1, number) for number in range(1, 5))


@pytest.mark.parametrize(
    ("before", "said", "is_forgotten"),
    [
        (None, THREE, False),
        (None, FOUR, False),
        # A person knows better.
        (None, TWO, False),
        (ONE, TWO, False),
        # As after a RESTORE, or in a copy that a query made.
        (None, None, True),
        (ONE, ONE, True),
        (TWO, ONE, True),
        (TWO, None, True),
        # Bronze had lost these days before.
        (FOUR, FOUR, False),
        (FOUR, TWO, True),
    ],
)
def test_a_loss_is_forgotten_if_bronze_says_what_it_had_said_before(
    before: date | None, said: date | None, is_forgotten: bool
) -> None:
    noted = Beginning({0: 5}, {1: Loss(2, THREE, before)})
    forgotten = noted.forgotten(said)
    assert bool(forgotten) == is_forgotten
    own = {0: 9, 1: 7}
    assert first_began(own, noted, forgotten) == {0: 5, 1: 2 if is_forgotten else 7}


def test_of_several_losses_of_a_partition_the_first_offset_and_the_last_day_are_kept() -> None:
    once = Beginning({0: 5}).having_lost({0: 3, 1: 4}, THREE, None)
    twice = {0: Loss(3, THREE), 1: Loss(4, FOUR, THREE), 2: Loss(1, FOUR, THREE)}
    assert once.having_lost({1: 6, 2: 1}, FOUR, THREE) == Beginning({0: 5}, twice)


@pytest.mark.parametrize(
    "beginning",
    [
        Beginning(),
        Beginning({0: 5}),
        Beginning({0: 5}, {1: Loss(2, THREE), 2: Loss(0, TWO, ONE)}, {0: 7}),
    ],
)
def test_a_note_is_read_as_it_was_written(beginning: Beginning) -> None:
    text = json.dumps({"bronze": "id", **beginning.entries()})
    assert beginning_in(note_in(text, "ingest.note.json"), "ingest") == beginning


@pytest.mark.parametrize(
    "lost", ["{", "7", "[]", '{"0": 1}', '{"0": [1]}', '{"0": [1, "2013-02-30", ""]}', '{"x": [1, "", ""]}']
)
def test_a_damaged_note_is_refused(lost: str) -> None:
    with pytest.raises(SourceError, match=r"ingest\.note\.json: the file is empty, cut off or changed"):
        beginning_in({"lost": lost}, "ingest")
