"""The report counts what happened, and its verdict is that of the oracle."""

import json
from collections import Counter
from pathlib import Path

import pytest

from chaos.journal import Journal
from chaos.report import Report
from chaos.schedule import Fault, Kind


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "journal.jsonl")
    first = journal.inject(Fault(1.0, Kind.KILL_DRIVER, "north/speed"))
    journal.settle(first, "killed")
    journal.settle(first, "what comes later does not count")
    journal.inject(Fault(2.0, Kind.TEAR, "north/speed", detail="offsets cut"))
    journal.end("north/speed", -9, "")
    journal.end("north/speed", 4, "offsets/7 cannot be read; run: oncelake checkpoint reset")
    return journal


def report(journal: Journal, **planted: list[str]) -> Report:
    return Report(1, 60, {"north": Counter(first=7)}, {"north": (9, 1)}, journal, planted)


def test_faults_are_counted_by_their_outcomes_and_ends_by_their_codes(journal: Journal) -> None:
    assert journal.outcomes() == {
        str(Kind.KILL_DRIVER): {"killed": 1},
        str(Kind.TEAR): {"no outcome": 1},
    }
    assert journal.exit_codes() == {"north/speed": {-9: 1, 4: 1}}
    text = "\n".join(report(journal).lines())
    assert "1  torn file in a checkpoint: 1 no outcome" in text
    assert "north/speed: 1 x -9, 1 x 4" in text
    assert "violations: 0" in text


def test_a_violation_or_a_planted_fault_that_is_not_found_is_no_good_end(journal: Journal) -> None:
    assert report(journal).is_good
    assert report(journal, lost=["bronze is the topic"]).is_good
    assert not report(journal, lost=["bronze is the topic"], doubled=[]).is_good
    journal.violate("exit code 4 has a cause", "north/speed")
    assert not report(journal, lost=["bronze is the topic"]).is_good


def test_everything_is_in_the_json(journal: Journal, tmp_path: Path) -> None:
    report(journal).write(tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text())
    assert [each["fault"]["kind"] for each in told["faults"]] == [Kind.KILL_DRIVER, Kind.TEAR]
    assert [each["code"] for each in told["ended"]] == [-9, 4]
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert all("at_s" in json.loads(line) for line in lines)
