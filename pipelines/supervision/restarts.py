"""When a stream that has ended is started again: a state machine without a clock, processes or chance."""

from dataclasses import dataclass, replace
from typing import Final

from pipelines.errors import AuditFailed, ConfigError, SourceError

REFUSALS: Final = frozenset({ConfigError.exit_code, AuditFailed.exit_code, SourceError.exit_code})
"""Exit codes after which another start mostly gives the same result."""
_PERMANENT: Final = AuditFailed.exit_code
_OF_SOURCE: Final = SourceError.exit_code


@dataclass(frozen=True)
class RestartPolicy:
    """How often, and after which pauses, a stream is started again.

    Attributes:
        most_restarts: Restarts within `window_s`; after the next failure the stream is given up.
        window_s: Seconds.
        first_pause_s: Seconds before the first restart; each further one in a row doubles them.
        longest_pause_s: Seconds at most.
        jitter: The share of a pause that chance may take off, from 0 to 1, so that streams that failed
            together do not start together.
        healthy_after_s: A run of so many seconds was healthy: pauses begin again with the first.
        most_refusals: Restarts after refusals without a healthy run in between, where a refusal may pass.
        settling_s: Seconds since supervision began in which a stream of an earlier supervisor may still end,
            so that a refusal of the source may pass.
    """

    most_restarts: int = 15
    window_s: float = 7_200.0
    first_pause_s: float = 5.0
    longest_pause_s: float = 120.0
    jitter: float = 0.25
    healthy_after_s: float = 600.0
    most_refusals: int = 5
    settling_s: float = 300.0


@dataclass(frozen=True)
class StreamExit:
    """How a run of a stream has ended.

    Attributes:
        code: The exit code; the negative number of the signal that ended it, if one did.
        began_s: When it began, on a clock that never goes back.
        ended_s: When it ended.
        stuck_s: For how many seconds it had been stuck, if it was ended for that; its code then says nothing.
    """

    code: int
    began_s: float
    ended_s: float
    stuck_s: float | None = None

    @property
    def worked_s(self) -> float:
        """For how many seconds it worked."""
        return self.ended_s - self.began_s - (self.stuck_s or 0.0)


@dataclass(frozen=True)
class RestartHistory:
    """What is remembered of a stream.

    Attributes:
        restarts_s: When its restarts were decided, those of the last window alone.
        in_a_row: Failures since the last healthy run.
        refusals: Restarts after refusals since the last healthy run.
        has_run_well: Whether there was a healthy run.
        supervised_s: Since when the stream is supervised.
    """

    restarts_s: tuple[float, ...] = ()
    in_a_row: int = 0
    refusals: int = 0
    has_run_well: bool = False
    supervised_s: float = 0.0


@dataclass(frozen=True)
class Restart:
    """The stream is to be started again.

    Attributes:
        pause_s: After so many seconds.
        history: What is remembered from now on.
    """

    pause_s: float
    history: RestartHistory


@dataclass(frozen=True)
class Stopped:
    """The stream has ended well, as it does when somebody stops it; it is not started again."""


@dataclass(frozen=True)
class GivenUp:
    """The stream is not started again, and people are to know.

    Attributes:
        reason: Why, for people.
    """

    reason: str


Decision = Restart | Stopped | GivenUp


def decide_restart(
    policy: RestartPolicy, history: RestartHistory, ended: StreamExit, chance: float
) -> Decision:
    """Decide what becomes of a stream that has ended without being asked to, or was ended since it was stuck.

    Args:
        policy: How often it may be started again.
        history: Of the stream.
        ended: How it has ended.
        chance: From 0 to 1, for the jitter.
    """
    is_stuck = ended.stuck_s is not None
    if ended.code == 0 and not is_stuck:
        return Stopped()
    if ended.worked_s >= policy.healthy_after_s:
        history = replace(history, in_a_row=0, refusals=0, has_run_well=True)
    if ended.code in REFUSALS and not is_stuck:
        if not _may_pass(policy, history, ended):
            return GivenUp(f"exit code {ended.code}, after which another start gives the same result")
        if history.refusals >= policy.most_refusals:
            return GivenUp(f"exit code {ended.code}, after {history.refusals} restarts that ended likewise")
        history = replace(history, refusals=history.refusals + 1)
    recent = tuple(at for at in history.restarts_s if ended.ended_s - at < policy.window_s)
    if len(recent) >= policy.most_restarts:
        minutes = policy.window_s / 60
        return GivenUp(f"{describe_end(ended)}, after {len(recent)} restarts in {minutes:g} minutes")
    in_a_row = history.in_a_row + 1
    # Beyond this power the longest pause is reached anyway, and a float would overflow.
    longest = min(policy.first_pause_s * 2.0 ** min(in_a_row - 1, 64), policy.longest_pause_s)
    pause_s = longest * (1 - policy.jitter * chance)
    kept = replace(history, restarts_s=(*recent, ended.ended_s), in_a_row=in_a_row)
    return Restart(pause_s, kept)


def _may_pass(policy: RestartPolicy, history: RestartHistory, ended: StreamExit) -> bool:
    """Return whether another start may give another result, though the stream was refused.

    A stream that ran before may be refused while brokers that restart do not know the topic, or while a
    stream of an earlier supervisor still uses the checkpoint.
    """
    if ended.code == _PERMANENT:
        return False
    is_settling = ended.ended_s - history.supervised_s < policy.settling_s
    return history.has_run_well or (ended.code == _OF_SOURCE and is_settling)


def describe_end(ended: StreamExit) -> str:
    """Return how a run has ended, for people."""
    if ended.stuck_s is not None:
        return "stuck, and ended for that"
    return f"exit code {ended.code}" if ended.code >= 0 else f"ended by signal {-ended.code}"
