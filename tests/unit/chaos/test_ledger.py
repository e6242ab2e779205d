"""The ledger counts what was injected in several runs, and nothing else."""

import json
from collections import Counter
from pathlib import Path

from click.testing import CliRunner

from chaos.journal import Journal
from chaos.ledger import ledger
from chaos.report import Report
from chaos.schedule import Fault, Kind


def write(folder: Path, number: int, *outcomes: str, is_bad: bool = False) -> Path:
    journal = Journal(folder / f"{number}.jsonl")
    for outcome in outcomes:
        journal.settle(journal.inject(Fault(1.0, Kind.CUT_NETWORK, "1")), outcome)
    journal.settle(journal.inject(Fault(2.0, Kind.NIGHTLY, "north")), "started")
    if is_bad:
        journal.violate("exit code 4 has a cause", "north/speed: why?")
    file = folder / f"{number}.json"
    Report(number, 60.0, {"north": Counter(first=7)}, {"north": (9, 1)}, journal).write(file)
    return file


def test_outcomes_of_several_runs_are_summed(tmp_path: Path) -> None:
    files = [
        write(tmp_path, 1, "over", "not injected: the target did not run"),
        write(tmp_path, 2, "over", "not refused: went on by itself", is_bad=True),
    ]
    assert json.loads(files[0].read_text())["seed"] == 1
    done = CliRunner().invoke(ledger, [str(file) for file in files])
    assert done.exit_code == 0, done.output
    assert "| 1 | north | 60 | 1 | 7 | 9 | 0 |  |" in done.output
    assert f"| {Kind.CUT_NETWORK} | 3 | 2 over; 1 not refused |" in done.output
    assert f"| {Kind.NIGHTLY} | 2 | 2 started |" in done.output
    assert "3 faults in 2 runs; 1 could not be injected" in done.output
    assert "14 records sent; 18 reads; 1 violations" in done.output
    assert "- exit code 4 has a cause: north/speed: why?" in done.output
