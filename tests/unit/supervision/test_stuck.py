"""A stream is stuck if it gives no sign for long enough, and neither if it is slow nor if it starts."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.runtime.life_signs import Motion, Sign
from pipelines.supervision.stuck import MOST_DOUBLINGS, Patience, Watch, judge, patience_of, watch_on

PATIENCE_S = 900.0
LOOK_S = 5.0
ALIVE = None
INTERVAL_S = 10.0


def at(moves: int, done: int = 0, interval_s: float = INTERVAL_S) -> Motion:
    return Motion(moves, done, interval_s)


def watched(*looks: tuple[Sign, ...]) -> Watch:
    """What is known after looks, each with the signs that came before it."""
    watch = Watch()
    for signs in looks:
        watch = watch_on(watch, signs, LOOK_S)
    return watch


def looks(seconds: float) -> int:
    return int(seconds / LOOK_S)


def test_a_process_that_gives_no_sign_any_more_is_stuck_whether_or_not_its_query_has_begun() -> None:
    for begun in (ALIVE, at(1)):
        before = [(begun,)]
        assert judge(watched(*before, *[()] * (looks(PATIENCE_S) - 1)), PATIENCE_S) is None
        stuck = judge(watched(*before, *[()] * looks(PATIENCE_S)), PATIENCE_S)
        assert stuck is not None
        assert stuck.for_s == PATIENCE_S
        assert stuck.evidence == "its process has given no sign of life for 15 min"


@given(st.integers(0, 100_000))
def test_what_never_gave_a_sign_is_not_judged(seconds: int) -> None:
    assert judge(watch_on(Watch(), [], seconds), PATIENCE_S) is None


def test_a_start_may_take_as_long_as_it_likes() -> None:
    assert judge(watched(*[(ALIVE,)] * looks(100 * PATIENCE_S)), PATIENCE_S) is None


def test_a_query_that_does_not_move_is_stuck_after_two_more_intervals() -> None:
    still = [(ALIVE, at(7))] * looks(PATIENCE_S + 2 * INTERVAL_S)
    assert judge(watched((at(7),), *still[:-1]), PATIENCE_S) is None
    stuck = judge(watched((at(7),), *still), PATIENCE_S)
    assert stuck is not None
    assert stuck.for_s == PATIENCE_S + 2 * INTERVAL_S
    assert "no micro-batch and no task has ended" in stuck.evidence
    # Of a trigger interval of an hour, that there was nothing to do is said once an hour.
    hourly = at(7, interval_s=3_600)
    assert judge(watched((hourly,), *[(ALIVE, hourly)] * looks(7_000)), PATIENCE_S) is None


def test_a_process_whose_java_does_not_answer_is_stuck() -> None:
    stuck = judge(watched((at(7),), *[(ALIVE,)] * looks(PATIENCE_S + 2 * INTERVAL_S)), PATIENCE_S)
    assert stuck is not None
    assert "its process lives, but neither its query nor its Java has given a sign" in stuck.evidence


def test_a_process_that_fell_silent_a_moment_after_its_query_is_not_said_to_live() -> None:
    watch = watched((at(7, interval_s=0),), (ALIVE,), *[()] * (looks(PATIENCE_S) - 1))
    assert (watch.untold_s, watch.silent_s) == (PATIENCE_S, PATIENCE_S - LOOK_S)
    stuck = judge(watch, PATIENCE_S)
    assert stuck is not None
    assert "its process has given no sign of life for" in stuck.evidence


@given(st.lists(st.tuples(st.integers(0, 170), st.booleans()), max_size=15))
def test_whatever_moves_once_in_a_while_is_never_stuck(pauses: list[tuple[int, bool]]) -> None:
    # Each pause is shorter than 15 minutes; meanwhile it says that it lives, or nothing.
    watch = Watch()
    for moves, (length, is_heard) in enumerate([(0, True), *pauses]):
        for _ in range(length):
            watch = watch_on(watch, [ALIVE, at(moves)] if is_heard else [], LOOK_S)
            assert judge(watch, PATIENCE_S) is None
        watch = watch_on(watch, [at(moves + 1)], LOOK_S)
        assert judge(watch, PATIENCE_S) is None


def test_signs_that_were_not_read_in_time_are_no_silence() -> None:
    watch = watch_on(watched((at(1),)), [ALIVE, at(2), ALIVE, at(3), at(3)], 10 * PATIENCE_S)
    assert (watch.moves, watch.still_s, watch.untold_s, watch.silent_s) == (3, 0, 0, 0)


def test_patience_doubles_and_not_without_end() -> None:
    assert [patience_of(900, each) / 60 for each in (0, 1, 2, 3, 4, 1_000)] == [15, 30, 60, 120, 120, 120]
    assert MOST_DOUBLINGS == 3


def test_that_a_micro_batch_has_ended_is_remembered() -> None:
    assert not watched((ALIVE,), (at(5),)).is_done_once
    assert watched((at(5, done=1),), (at(5, done=1),), ()).is_done_once


def test_who_was_ended_as_stuck_gets_twice_as_long_until_a_micro_batch_has_ended() -> None:
    patience = Patience(PATIENCE_S)

    def is_stuck_after(seconds: float, first: Sign = ALIVE) -> bool:
        patience.begin()
        assert patience.look([first], LOOK_S) is None
        return patience.look([], seconds) is not None

    assert not is_stuck_after(PATIENCE_S - 1)
    assert is_stuck_after(PATIENCE_S)
    assert not is_stuck_after(2 * PATIENCE_S - 1)
    assert is_stuck_after(2 * PATIENCE_S)
    assert not is_stuck_after(4 * PATIENCE_S - 1)
    assert is_stuck_after(PATIENCE_S, at(1, done=1))
    assert not is_stuck_after(2 * PATIENCE_S - 1)
