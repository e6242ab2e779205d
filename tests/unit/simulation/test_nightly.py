"""Nightly runs keep their promises in random histories; with a planted fault they do not."""

import logging
from collections.abc import Iterator

import pytest

from simulation.nightly import NightlyWorld
from simulation.planted import Planted
from simulation.planted_nightly import NIGHTLY
from simulation.runs import Totals, play


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_random_histories_keep_every_invariant() -> None:
    totals = Totals()
    for seed in range(300):
        totals.add(seed, play(NightlyWorld, seed))
    assert totals.violations == {}
    # What can go wrong does so.
    assert len(totals.faults) > 10


@pytest.mark.parametrize("planted", NIGHTLY, ids=lambda planted: planted.name)
def test_a_planted_fault_is_found(planted: Planted) -> None:
    assert play(planted.make, planted.seed).violation


@pytest.mark.thorough
@pytest.mark.parametrize("planted", NIGHTLY, ids=lambda planted: planted.name)
def test_no_earlier_seed_finds_a_planted_fault(planted: Planted) -> None:
    """So the page on reliability says how many runs it takes."""
    assert not any(play(planted.make, seed).violation for seed in range(planted.seed))
