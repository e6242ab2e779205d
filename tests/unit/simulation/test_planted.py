"""The page on reliability lists each planted fault, and the run that finds it."""

import re
from pathlib import Path

from tests.support.planted_faults import PLANTED

PAGE = Path("docs/reliability.md")


def test_the_page_lists_each_planted_fault_with_the_run_that_finds_it() -> None:
    listed = re.findall(rf"^\| `({'|'.join(PLANTED)})` \| (.+) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    expected = [
        (protocol, each.name, f"{each.seed + 1:,}")
        for protocol, planted in PLANTED.items()
        for each in planted
    ]
    assert listed == expected
