"""What counts as a sign that a stream moves."""

import pytest

from pipelines.runtime.life_signs import TOLD_EVERY_S, Motion
from pipelines.spark.stream_motion import MotionCounter, TaskSigns

QUIET = TaskSigns(5, are_elsewhere=False)


class Stream:
    """A stream that is looked at every ten seconds, and what it has used of the processor."""

    def __init__(self) -> None:
        self.used_s, self.now_s, self.asked = 0.0, 0.0, 0
        self._counter = MotionCounter(30.0, self._processor)
        self.look()

    def _processor(self) -> float:
        self.asked += 1
        return self.used_s

    def look(self, tasks: TaskSigns = QUIET, done: int = 1, share: float = 0.0) -> Motion:
        self.now_s += TOLD_EVERY_S
        self.used_s += share * TOLD_EVERY_S
        return self._counter.look(self.now_s, tasks, done)

    def moves_in(self, looks: int, share: float = 0.0, tasks: TaskSigns = QUIET) -> int:
        before = self.look().moves
        return max(self.look(tasks, share=share).moves for _ in range(looks)) - before


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_a_stream_of_which_nothing_is_heard_does_not_move(stream: Stream) -> None:
    # What it takes to ask Java, and what Java's own threads take.
    assert stream.moves_in(1_000, share=0.01) == 0
    assert stream.look().interval_s == 30.0


def test_a_micro_batch_that_has_ended_is_a_sign(stream: Stream) -> None:
    before = stream.look()
    after = stream.look(done=2)
    assert (after.moves, after.done) == (before.moves + 1, 2)
    assert stream.look(done=2) == after


def test_a_task_that_has_counted_something_is_a_sign(stream: Stream) -> None:
    before = stream.look().moves
    assert stream.look(TaskSigns(6, are_elsewhere=False)).moves == before + 1
    assert stream.look(TaskSigns(6, are_elsewhere=False)).moves == before + 1


def test_a_task_on_another_machine_is_a_sign_for_as_long_as_it_runs(stream: Stream) -> None:
    assert stream.moves_in(10, tasks=TaskSigns(5, are_elsewhere=True)) == 10


def test_work_of_the_processor_is_a_sign_once_a_minute(stream: Stream) -> None:
    assert stream.moves_in(60, share=0.5) >= 8


def test_the_processor_is_looked_at_only_if_there_is_no_other_sign(stream: Stream) -> None:
    asked = stream.asked
    for number in range(100):
        stream.look(TaskSigns(number, are_elsewhere=False))
    assert stream.asked == asked


def test_work_of_an_hour_ago_is_no_sign_now(stream: Stream) -> None:
    stream.moves_in(360, share=1.0)
    # The minute in which it ended counts once.
    stream.moves_in(6)
    assert stream.moves_in(60) == 0
