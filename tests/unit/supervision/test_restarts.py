"""A stream is started again after a failure that may pass, in pauses that grow, and not without end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipelines.supervision.restarts import (
    REFUSALS,
    Decision,
    GivenUp,
    Restart,
    RestartHistory,
    RestartPolicy,
    Stopped,
    StreamExit,
    decide_restart,
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
TRANSIENT = st.integers(-64, 255).filter(lambda code: code != 0 and code not in REFUSALS)


def life(
    policy: RestartPolicy, runs: list[float], chance: float, code: int = 1
) -> list[tuple[float, Decision]]:
    """When each run failed and what was decided, until a stream is given up."""
    at, history, told = 0.0, RestartHistory(), list[tuple[float, Decision]]()
    for seconds in runs:
        ended = StreamExit(code, at, at + seconds)
        decision = decide_restart(policy, history, ended, chance)
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
        decision = decide_restart(RestartPolicy(1, jitter=policy.jitter), RestartHistory(), ended, chance)
        assert isinstance(decision, Restart)
        assert 5.0 * (1 - policy.jitter) - 1e-9 <= decision.pause_s <= 5.0


def refused(
    policy: RestartPolicy, codes: list[tuple[int, float]], supervised_s: float = 0.0
) -> list[Decision]:
    """What was decided of runs that ended with codes after seconds, until a stream is given up."""
    at, history, told = supervised_s, RestartHistory(supervised_s=supervised_s), list[Decision]()
    for code, seconds in codes:
        decision = decide_restart(policy, history, StreamExit(code, at, at + seconds), 0.0)
        told.append(decision)
        if not isinstance(decision, Restart):
            break
        at, history = at + seconds + decision.pause_s, decision.history
    return told


@given(POLICIES, st.sampled_from([2, 3]), CHANCES)
def test_a_first_start_that_is_refused_is_given_up_at_once(
    policy: RestartPolicy, code: int, chance: float
) -> None:
    ((_, decision),) = life(policy, [1.0], chance, code)
    assert isinstance(decision, GivenUp)
    assert f"exit code {code}" in decision.reason


@given(POLICIES, st.lists(TRANSIENT, max_size=6))
def test_a_refusal_that_never_ran_well_is_given_up_once_nothing_else_may_still_end(
    policy: RestartPolicy, before: list[int]
) -> None:
    # No run is healthy, and the first minutes are over.
    runs = [(code, 1.0) for code in before]
    settled = replace(policy, most_restarts=100, settling_s=1.0)
    for code in sorted(REFUSALS):
        told = refused(settled, [*runs, (code, 1.0)])
        assert isinstance(told[-1], GivenUp)


@given(
    POLICIES,
    st.integers(0, 8),
    st.lists(st.tuples(st.sampled_from([2, 4]), st.booleans()), max_size=40),
)
def test_after_a_healthy_run_refusals_are_tried_again_and_not_without_end(
    policy: RestartPolicy, most: int, runs: list[tuple[int, bool]]
) -> None:
    policy = replace(policy, most_restarts=100, most_refusals=most, settling_s=0.0)
    healthy = policy.healthy_after_s + 1
    told = refused(policy, [(1, healthy), *((code, healthy if well else 0.0) for code, well in runs)])
    since = 0
    for (_, well), decision in zip(runs, told[1:], strict=False):
        since = 1 if well else since + 1
        assert isinstance(decision, Restart if since <= most else GivenUp)
        if isinstance(decision, Restart):
            assert decision.pause_s > 0


@given(POLICIES, st.integers(0, 10_000).map(float))
def test_a_refusal_of_the_source_is_tried_again_while_an_earlier_stream_may_still_end(
    policy: RestartPolicy, supervised_s: float
) -> None:
    policy = replace(policy, most_restarts=100, most_refusals=3, settling_s=50.5)
    assert isinstance(refused(policy, [(4, 50.0)], supervised_s)[-1], Restart)
    assert isinstance(
        refused(policy, [(4, 51.0)], supervised_s)[-1], GivenUp if policy.healthy_after_s > 51 else Restart
    )
    told = refused(replace(policy, settling_s=1e6), [(4, 1.0)] * 10, supervised_s)
    assert [type(each) for each in told] == [Restart] * 3 + [GivenUp]


def test_refusals_by_default_outlast_a_stream_that_is_given_two_minutes_to_end() -> None:
    told = refused(RestartPolicy(jitter=0), [(4, 0.0)] * 10)
    assert sum(each.pause_s for each in told if isinstance(each, Restart)) > 120


@given(POLICIES, st.integers(0, 400).map(float))
def test_no_start_changes_an_audit(policy: RestartPolicy, seconds: float) -> None:
    assert isinstance(refused(policy, [(1, policy.healthy_after_s), (3, seconds)])[-1], GivenUp)


@given(POLICIES, CHANCES)
def test_exit_code_0_is_not_restarted(policy: RestartPolicy, chance: float) -> None:
    assert life(policy, [1.0], chance, 0) == [(1.0, Stopped())]


@given(POLICIES, st.sampled_from([0, 1, 2, 3, 4, -9, -15]), CHANCES)
def test_a_stuck_stream_is_restarted_like_one_that_failed_whatever_code_it_ends_with(
    policy: RestartPolicy, code: int, chance: float
) -> None:
    for stuck_s, worked_s in ((900.0, 0.0), (900.0, 2_000.0), (0.5, 1.0)):
        before = RestartHistory(in_a_row=3, refusals=policy.most_refusals)
        seconds = worked_s + stuck_s
        stuck = decide_restart(policy, before, StreamExit(code, 0, seconds, stuck_s), chance)
        # It ended at the same time, and worked for as long: only that part of its run can be a healthy one.
        failed = decide_restart(policy, before, StreamExit(1, seconds - worked_s, seconds), chance)
        if isinstance(failed, Restart):
            assert stuck == failed
        else:
            assert isinstance(stuck, GivenUp)
            assert stuck.reason.startswith("stuck, and ended for that, after ")


def test_the_default_bound_is_reached_after_half_an_hour_of_failures() -> None:
    told = life(RestartPolicy(), [20.0] * 100, 0.0)
    at, decision = told[-1]
    assert isinstance(decision, GivenUp)
    assert "after 15 restarts in 120 minutes" in decision.reason
    assert 25 * 60 < at < 45 * 60


def test_a_stream_that_fails_once_a_day_runs_for_ever() -> None:
    assert all(isinstance(decision, Restart) for _, decision in life(RestartPolicy(), [86_400.0] * 400, 0.5))
