"""The protocols keep their promises in random histories; with a planted fault they do not."""

import pytest

from simulation.__main__ import PROTOCOLS
from simulation.backfill import BackfillWorld
from simulation.index import IndexWorld
from simulation.nightly import NightlyWorld
from simulation.planted import Planted
from simulation.publishing import PublishingWorld
from simulation.replay import ReplayWorld
from simulation.retention import RetentionWorld
from simulation.retention_overtaken import OvertakenUpkeepWorld
from simulation.runs import MakeWorld, Totals, play
from simulation.sealing import SealingWorld
from tests.support.planted_faults import PLANTED

pytestmark = pytest.mark.patient

each_planted = pytest.mark.parametrize(
    ("world", "planted"),
    [
        pytest.param(PROTOCOLS[protocol], each, id=each.name)
        for protocol, faults in PLANTED.items()
        for each in faults
    ],
)


@pytest.mark.parametrize(
    ("world", "runs"),
    [
        (NightlyWorld, 300),
        (PublishingWorld, 300),
        (SealingWorld, 150),
        (BackfillWorld, 150),
        (RetentionWorld, 40),
        (OvertakenUpkeepWorld, 10),
        (IndexWorld, 60),
        (ReplayWorld, 25),
    ],
)
def test_random_histories_keep_every_invariant(world: MakeWorld, runs: int) -> None:
    totals = Totals()
    for seed in range(runs):
        totals.add(seed, play(world, seed))
    assert totals.violations == {}
    # What can go wrong does so.
    assert len(totals.faults) > 10


@each_planted
def test_a_planted_fault_is_found(world: MakeWorld, planted: Planted) -> None:
    assert play(planted.make, planted.seed).violation
    # It is the fault that is found, and not the simulation that is wrong.
    assert play(world, planted.seed).violation is None


@pytest.mark.thorough
@each_planted
def test_no_earlier_seed_finds_a_planted_fault(world: MakeWorld, planted: Planted) -> None:
    """So the page on reliability says how many runs it takes."""
    assert not any(play(planted.make, seed).violation for seed in range(planted.seed))
