"""A schedule depends on its seed alone, and leaves the cluster a majority."""

from collections import defaultdict

import pytest

from chaos.schedule import OF_BROKERS, OF_EXECUTORS, OF_STATE, OUTSIDE, RANDOM, Kind, as_json, schedule, skews

SECONDS = 1_800.0
PIPELINES = ("north", "south")


def test_a_seed_replays_its_schedule() -> None:
    assert as_json(schedule(7, SECONDS, PIPELINES)) == as_json(schedule(7, SECONDS, PIPELINES))
    assert schedule(7, SECONDS, PIPELINES) != schedule(8, SECONDS, PIPELINES)


@pytest.mark.parametrize("seed", range(20))
def test_faults_are_in_order_and_each_kind_comes_up(seed: int) -> None:
    faults = schedule(seed, SECONDS, PIPELINES, (*RANDOM, *OF_EXECUTORS))
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert all(0 <= fault.at_s < SECONDS for fault in faults)
    assert {fault.kind for fault in faults} == set(Kind) - {Kind.UPGRADE}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("group", [OF_BROKERS, OF_STATE])
def test_faults_of_a_group_do_not_overlap(seed: int, group: frozenset[Kind]) -> None:
    ended_s = defaultdict[str, float](float)
    for fault in schedule(seed, SECONDS, PIPELINES):
        if fault.kind in group:
            # Those of state may overlap in different pipelines.
            of = fault.target.partition("/")[0] if group is OF_STATE else ""
            assert fault.at_s >= ended_s[of]
            ended_s[of] = fault.at_s + fault.lasts_s


def test_many_faults_fit_into_a_minute() -> None:
    faults = [fault for fault in schedule(1, SECONDS, PIPELINES) if fault.kind in RANDOM]
    assert len(faults) > 20 * SECONDS / 60


def test_a_registry_goes_down_only_where_there_is_one() -> None:
    def kinds(*pipelines: str) -> set[Kind]:
        return {fault.kind for fault in schedule(1, SECONDS, pipelines)}

    assert kinds("south") - kinds("north") == {Kind.CUT_REGISTRY}


def test_only_the_kinds_that_were_asked_for_come_up_beside_scheduled_jobs() -> None:
    kinds = {fault.kind for fault in schedule(1, SECONDS, PIPELINES, [Kind.TEAR])}
    assert kinds == {Kind.TEAR, Kind.NIGHTLY, Kind.MAINTAIN}
    assert {fault.kind for fault in schedule(1, SECONDS, PIPELINES, [])} == {Kind.NIGHTLY, Kind.MAINTAIN}


def test_faults_happen_alone_and_combined() -> None:
    times = [fault.at_s for fault in schedule(1, SECONDS, PIPELINES) if fault.kind in RANDOM]
    assert len(times) > len(set(times)) > len(times) / 2


def test_a_wrong_clock_is_a_part_of_the_traffic() -> None:
    faults = schedule(3, SECONDS, PIPELINES, [Kind.SKEW_CLOCK])
    found = skews(faults)
    assert len(found) == sum(fault.kind is Kind.SKEW_CLOCK for fault in faults)
    assert all(skew.from_s < skew.to_s and skew.by for skew in found)


@pytest.mark.parametrize("seed", range(20))
def test_again_and_again_nothing_outside_is_disturbed_for_a_while_so_that_failures_mean_something(
    seed: int,
) -> None:
    outside = sorted(
        (fault.at_s, fault.at_s + fault.lasts_s)
        for fault in schedule(seed, SECONDS, PIPELINES)
        if fault.kind in OUTSIDE
    )
    ended_s, calm_s = 0.0, list[float]()
    for at_s, until_s in outside:
        calm_s.append(at_s - ended_s)
        ended_s = max(ended_s, until_s)
    assert sum(each > 40 for each in calm_s) >= SECONDS // 150 - 1
