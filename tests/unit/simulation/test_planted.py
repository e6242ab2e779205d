"""The page on reliability lists each planted fault, and the run that finds it."""

import re
from pathlib import Path

from simulation.planted_backfill import BACKFILL
from simulation.planted_index import INDEX
from simulation.planted_nightly import NIGHTLY
from simulation.planted_publishing import PUBLISHING
from simulation.planted_replay import REPLAY
from simulation.planted_retention import RETENTION, UPKEEP
from simulation.planted_sealing import SEALING

PAGE = Path("docs/reliability.md")
PLANTED = {
    "nightly": NIGHTLY,
    "publishing": PUBLISHING,
    "sealing": SEALING,
    "backfill": BACKFILL,
    "retention": RETENTION,
    "upkeep": UPKEEP,
    "index": INDEX,
    "replay": REPLAY,
}


def test_the_page_lists_each_planted_fault_with_the_run_that_finds_it() -> None:
    listed = re.findall(rf"^\| `({'|'.join(PLANTED)})` \| (.+) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    expected = [
        (protocol, each.name, f"{each.seed + 1:,}")
        for protocol, planted in PLANTED.items()
        for each in planted
    ]
    assert listed == expected
