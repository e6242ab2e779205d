"""The page on reliability lists each planted fault, and the run that finds it."""

import re
from pathlib import Path

from simulation.planted_nightly import NIGHTLY
from simulation.planted_publishing import PUBLISHING

PAGE = Path("docs/reliability.md")


def test_the_page_lists_each_planted_fault_with_the_run_that_finds_it() -> None:
    listed = re.findall(r"^\| `(nightly|publishing)` \| (.+) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    expected = [("nightly", each.name, f"{each.seed + 1:,}") for each in NIGHTLY]
    expected += [("publishing", each.name, f"{each.seed + 1:,}") for each in PUBLISHING]
    assert listed == expected
