"""A pattern that backtracks without end holds no task: the record is put aside, and the stream goes on."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.ledger.quarantine import Selection
from pipelines.records.decode import decode
from tests.support.lakes import Lake, flight
from tests.support.nights import stream
from tests.support.replays import replay

pytestmark = pytest.mark.timeout(180)

MakeLake = Callable[..., Lake]
# Texts by which Java's matcher would be busy for longer than the universe is old; it knows how to cut short
# only some patterns of this kind.
ENDLESS = [
    (r"^(a+)+?$", "a" * 60 + "!"),
    (r"^(?:a?b?){60}c$", "ab" * 30 + "!"),
    (r"(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x\1$", "a" * 300),
    (r"^(?=(a+))(?:\1?)*?(a*)*?b", "a" * 60),
    (r"\s*\s*\s*\s*\s*$", " " * 20_000 + "!"),
]


def contract_of(contract: DataContract, *patterns: str) -> DataContract:
    rules = tuple(RowRule("tailnum", "pattern", pattern) for pattern in patterns)
    return replace(contract, row_rules=rules, conditions=(), day_rules=())


def verdicts(lake: Lake, texts: list[str]) -> list[tuple[str | None, str | None, str | None]]:
    envelopes = lake.envelopes([flight(tailnum=text) for text in texts])
    rows = decode(envelopes, lake.contract, timedelta(days=1)).orderBy("_offset")
    return [
        (row["reason"], row["column"], row["found"]) for row in rows.select("_error.*").toArrow().to_pylist()
    ]


@pytest.mark.parametrize(("pattern", "text"), ENDLESS)
def test_a_text_that_a_pattern_is_not_done_with_is_undecided(
    pattern: str, text: str, make_lake: MakeLake, contract: DataContract
) -> None:
    lake = make_lake(contract=contract_of(contract, pattern, "^[^!]*$"))
    undecided = ("rule_undecided", "tailnum", text[:200])
    assert verdicts(lake, [text, text]) == [undecided, undecided]


def test_each_text_has_a_budget_of_its_own(make_lake: MakeLake, contract: DataContract) -> None:
    pattern, text = ENDLESS[0]
    lake = make_lake(contract=contract_of(contract, pattern))
    undecided, broken = (("rule_undecided", "tailnum", text), ("rule_failed", "tailnum", "b"))
    found = verdicts(lake, ["aaa", text, "aaa", text, "b"])
    assert found == [(None, None, None), undecided, (None, None, None), undecided, broken]


def test_a_long_text_may_be_read_more_often_than_a_short_one(
    make_lake: MakeLake, contract: DataContract
) -> None:
    """Thirty reads of each of a million characters are no sign that there is no end."""
    lake = make_lake(contract=contract_of(contract, "(?:[a-z]{9}){3}1"))
    long = "abcdefghi" * 120_000
    assert verdicts(lake, [f"{long}1", long]) == [
        (None, None, None),
        ("rule_failed", "tailnum", long[:200]),
    ]


def test_a_text_for_which_no_stack_is_large_enough_is_undecided(
    make_lake: MakeLake, contract: DataContract
) -> None:
    lake = make_lake(contract=contract_of(contract, r"^(\w+\.)*\w+$"))
    long = "a." * 400_000
    found = verdicts(lake, ["a." * 20_000 + "a", f"{long}!"])
    assert found == [(None, None, None), ("rule_undecided", "tailnum", long[:200])]


def test_the_stream_goes_on_and_the_record_comes_back_once_the_pattern_is_another(
    make_lake: MakeLake, contract: DataContract
) -> None:
    pattern, text = ENDLESS[0]
    lake = make_lake(contract=contract_of(contract, pattern))
    lake.ingest([flight(tailnum="aaa"), flight(flight=2, tailnum=text), flight(flight=3, tailnum="aa")])
    counts = stream(lake).counts
    assert (counts.rows, counts.quarantined) == (2, 1)
    (kept,) = lake.table("quarantine").collect()
    assert (kept["_reason"], kept["_column"], kept["_found"]) == ("rule_undecided", "tailnum", text)
    assert kept["value"] == flight(flight=2, tailnum=text)
    mended = lake.variant(contract=contract_of(contract, "^a+!?$"))
    selection = Selection(reasons=("rule_undecided",))
    assert replay(mended.pipeline, "replay", selection, dry_run=False).counts.rows == 1
    assert mended.count("speed") == 3
