"""Whether a stream that runs is stuck: a judgement without a clock and processes.

Streams say themselves whether they move, see `pipelines.runtime.life_signs` and
`pipelines.spark.stream_motion`. Seconds are those in which the supervisor itself ran: a machine that was
suspended has silent streams, and none of them is stuck.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipelines.durations import about
from pipelines.runtime.life_signs import TOLD_EVERY_S, Sign

MOST_DOUBLINGS: Final = 3
"""How often the patience is doubled at most: 15 minutes become two hours."""

_LIVES_WITHIN_S: Final = 2 * TOLD_EVERY_S


@dataclass(frozen=True)
class Watch:
    """What a run of a stream has told of itself so far.

    Attributes:
        silent_s: Seconds since the last sign of any kind; None before the first. Who gives no signs is not
            judged.
        moves: As in `Motion`, of the last sign that has it; None while its query has not begun: a start may
            take as long as it likes.
        still_s: Seconds since `moves` was last another one.
        untold_s: Seconds since the last sign that has `moves`.
        interval_s: As in `Motion`.
        is_done_once: Whether it has been done with a part of its work.
    """

    silent_s: float | None = None
    moves: int | None = None
    still_s: float = 0.0
    untold_s: float = 0.0
    interval_s: float = 0.0
    is_done_once: bool = False


@dataclass(frozen=True)
class Stuck:
    """A stream is stuck.

    Attributes:
        for_s: Seconds that it has been.
        evidence: What shows it, for people.
    """

    for_s: float
    evidence: str


def watch_on(watch: Watch, signs: Sequence[Sign], passed_s: float) -> Watch:
    """Return what is known of a run after another look at it.

    Args:
        watch: What was known before.
        signs: Those that came since, the oldest first.
        passed_s: Seconds since the look before.
    """
    silent_s = None if watch.silent_s is None else watch.silent_s + passed_s
    watch = replace(
        watch,
        silent_s=0.0 if signs else silent_s,
        still_s=watch.still_s + passed_s,
        untold_s=watch.untold_s + passed_s,
    )
    for sign in signs:
        if sign is not None:
            watch = replace(
                watch,
                moves=sign.moves,
                still_s=watch.still_s if sign.moves == watch.moves else 0.0,
                untold_s=0.0,
                interval_s=sign.interval_s,
                is_done_once=watch.is_done_once or sign.done > 0,
            )
    return watch


def judge(watch: Watch, patience_s: float) -> Stuck | None:
    """Return in what way a stream is stuck; None if it is not, or may not be.

    Args:
        watch: What is known of its run.
        patience_s: Seconds that it may give no sign.
    """
    if watch.silent_s is None:
        return None
    silent = Stuck(watch.silent_s, f"its process has given no sign of life for {about(watch.silent_s)}")
    if watch.silent_s >= patience_s:
        return silent
    # That there was nothing to do is said once in an interval.
    of_query_s = patience_s + 2 * watch.interval_s
    if watch.moves is None or watch.still_s < of_query_s:
        return None
    if watch.untold_s >= of_query_s:
        # What it said last need not have been of its query.
        if watch.silent_s > _LIVES_WITHIN_S:
            return silent
        said = "its process lives, but neither its query nor its Java has given a sign of life for"
        return Stuck(watch.untold_s, f"{said} {about(watch.untold_s)}")
    return Stuck(
        watch.still_s,
        f"for {about(watch.still_s)} no micro-batch and no task has ended, no task has counted anything, and"
        " its processes hardly used the processor",
    )


def patience_of(stuck_after_s: float, doublings: int) -> float:
    """Return for how many seconds a stream may give no sign.

    A micro-batch that takes longer than that, and gives no sign, would else be begun anew for ever.

    Args:
        stuck_after_s: What the configuration says.
        doublings: How often the stream was ended as stuck since a micro-batch of it has ended.
    """
    return stuck_after_s * 2.0 ** min(doublings, MOST_DOUBLINGS)


class Patience:
    """How long a stream may give no sign, over all of its runs.

    Args:
        stuck_after_s: What the configuration says; None if the stream is not judged.
    """

    def __init__(self, stuck_after_s: float | None) -> None:
        self._stuck_after_s = stuck_after_s
        self._doublings = 0
        self._watch = Watch()

    def begin(self) -> None:
        """Begin with another run, of which nothing is known yet."""
        self._watch = Watch()

    def look(self, signs: Sequence[Sign], passed_s: float) -> Stuck | None:
        """Return in what way the stream is stuck; None if it is not, or may not be.

        Whoever is told that it is stuck ends it: its next run gets twice as long.

        Args:
            signs: Those that came since the last look, the oldest first.
            passed_s: Seconds since the last look.
        """
        if self._stuck_after_s is None:
            return None
        self._watch = watch_on(self._watch, signs, passed_s)
        if self._watch.is_done_once:
            self._doublings = 0
        stuck = judge(self._watch, patience_of(self._stuck_after_s, self._doublings))
        self._doublings += stuck is not None
        return stuck
