"""A stream is started again after a failure that may pass, in pauses that grow, and not without end."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.supervision.restarts import (
    PERMANENT,
    Decision,
    GivenUp,
    Restart,
    RestartHistory,
    RestartPolicy,
    Stopped,
    StreamExit,
    decide,
)

POLICIES = st.builds(
    RestartPolicy,
    most_restarts=st.integers(0, 6),
    window_s=st.floats(1, 1000),
    first_pause_s=st.floats(0.1, 10),
    longest_pause_s=st.floats(10, 200),
    jitter=st.floats(0, 1),
    # Between whole seconds, so that rounding does not decide.
    healthy_after_s=st.integers(50, 500).map(lambda seconds: seconds + 0.5),
)
# Seconds that each run takes, until it fails.
RUNS = st.lists(st.integers(0, 1000).map(float), max_size=40)
CHANCES = st.floats(0, 1)
TRANSIENT = st.integers(-64, 255).filter(lambda code: code != 0 and code not in PERMANENT)


def life(
    policy: RestartPolicy, runs: list[float], chance: float, code: int = 1
) -> list[tuple[float, Decision]]:
    """When each run failed and what was decided, until a stream is given up."""
    at, history, told = 0.0, RestartHistory(), list[tuple[float, Decision]]()
    for seconds in runs:
        ended = StreamExit(code, at, at + seconds)
        decision = decide(policy, history, ended, chance)
        told.append((ended.ended_s, decision))
        if not isinstance(decision, Restart):
            break
        at, history = ended.ended_s + decision.pause_s, decision.history
    return told


@given(POLICIES, RUNS, CHANCES, TRANSIENT)
def test_restarts_in_any_window_are_bounded_and_a_stream_is_given_up_only_at_the_bound(
    policy: RestartPolicy, runs: list[float], chance: float, code: int
) -> None:
    told = life(policy, runs, chance, code)
    restarts = [at for at, decision in told if isinstance(decision, Restart)]
    for at, decision in told:
        before = [each for each in restarts if each < at and at - each < policy.window_s]
        if isinstance(decision, Restart):
            assert len([each for each in restarts if each <= at and at - each < policy.window_s]) <= max(
                policy.most_restarts, 1
            )
        else:
            # Runs of no time at all fail at the same moment.
            same = [each for each in restarts if each == at]
            assert isinstance(decision, GivenUp)
            assert len(before) + len(same) >= policy.most_restarts


@given(POLICIES, RUNS, CHANCES)
def test_pauses_grow_up_to_a_limit_and_begin_again_after_a_healthy_run(
    policy: RestartPolicy, runs: list[float], chance: float
) -> None:
    told = [decision for _, decision in life(policy, runs, chance)]
    pauses = [decision.pause_s for decision in told if isinstance(decision, Restart)]
    share = 1 - policy.jitter * chance
    for number, pause in enumerate(pauses):
        was_healthy = runs[number] >= policy.healthy_after_s
        expected = policy.first_pause_s
        if number and not was_healthy:
            expected = min(2 * pauses[number - 1] / share, policy.longest_pause_s) if share else 0
        assert abs(pause - expected * share) < 1e-6


@given(POLICIES, st.lists(CHANCES, min_size=2, max_size=2))
def test_chance_only_shortens_a_pause_and_by_its_share_at_most(
    policy: RestartPolicy, chances: list[float]
) -> None:
    ended = StreamExit(1, 0, 1)
    for chance in chances:
        decision = decide(RestartPolicy(1, jitter=policy.jitter), RestartHistory(), ended, chance)
        assert isinstance(decision, Restart)
        assert 5.0 * (1 - policy.jitter) - 1e-9 <= decision.pause_s <= 5.0


@given(POLICIES, st.sampled_from(sorted(PERMANENT)), CHANCES)
def test_what_another_start_does_not_change_is_given_up_at_once(
    policy: RestartPolicy, code: int, chance: float
) -> None:
    ((_, decision),) = life(policy, [1.0], chance, code)
    assert isinstance(decision, GivenUp)
    assert f"exit code {code}" in decision.reason


@given(POLICIES, CHANCES)
def test_a_good_end_is_an_end(policy: RestartPolicy, chance: float) -> None:
    assert life(policy, [1.0], chance, 0) == [(1.0, Stopped())]


def test_the_default_bound_is_reached_after_half_an_hour_of_failures() -> None:
    told = life(RestartPolicy(), [20.0] * 100, 0.0)
    at, decision = told[-1]
    assert isinstance(decision, GivenUp)
    assert "after 15 restarts in 120 minutes" in decision.reason
    assert 25 * 60 < at < 45 * 60


def test_a_stream_that_fails_once_a_day_runs_for_ever() -> None:
    assert all(isinstance(decision, Restart) for _, decision in life(RestartPolicy(), [86_400.0] * 400, 0.5))
