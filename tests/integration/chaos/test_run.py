"""A short run of real processes under faults ends with a good verdict, and finds what is planted."""

from pathlib import Path

import pytest

from chaos.planted import OUTSIDE
from chaos.run import Plan, play
from chaos.schedule import Kind, schedule

# Others may compute meanwhile, and all processes together take their time to start.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200)]
SECONDS = 20.0
# Those after which streams go on soon.
KINDS = (
    Kind.KILL_JVM,
    Kind.PAUSE_DRIVER,
    Kind.KILL_BROKER,
    Kind.PAUSE_BROKER,
    Kind.CUT_NETWORK,
    Kind.STALL_NETWORK,
    Kind.DELAY_NETWORK,
    Kind.SKEW_CLOCK,
)


def test_faults_violate_nothing_and_what_is_planted_is_found(tmp_path: Path) -> None:
    planned = schedule(4, SECONDS, ["north"], KINDS)
    plan = Plan(4, SECONDS, 40.0, ["north"], planned, outside=OUTSIDE)
    report = play(plan, tmp_path / "run")
    assert report.is_good, "\n".join(report.lines())
    outcomes = report.journal.outcomes()
    assert sum(outcomes[str(kind)].total() for kind in KINDS if str(kind) in outcomes) > 8
    assert len(report.planted) == len(OUTSIDE)
