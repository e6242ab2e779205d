"""What became of a record follows from what the tables say of it."""

from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import pytest

from pipelines.cli.explain import explanation_document
from pipelines.contracts.contract import DataContract
from pipelines.ledger.layer_samples import Explanation
from pipelines.lineage.outcome import Facts, fate
from pipelines.lineage.searches import Searched
from pipelines.steps.explain import Explained, ExplainedRecord

PLACE = {"_topic": "flights", "_partition": 1, "_offset": 7}
QUARANTINED = {"_status": "open", "_reason": "rule_failed", "_column": "dest", "_contract_version": "0.9"}
# A sound record that wins its key, on an uncertified day, and that only bronze has.
WINS = Facts(
    key=("UA", "1", "EWR", "2013-01-01 10:15:00 UTC"),
    topic="flights",
    partition=0,
    offset=3,
    kafka_timestamp="2013-01-01 12:00:00.000",
    ingested_at="2026-01-01 00:00:00.000",
    event_time="2013-01-01 10:15:00.000",
    event_day="2013-01-01",
    payload="00ff",
    valid=True,
    reason=None,
    column=None,
    in_speed=False,
    in_batch=False,
    quarantined_as=None,
    certified=False,
    reading=1,
    best=True,
    winner={"_topic": "flights", "_partition": 0, "_offset": 3},
    differing=(),
    speed_copy=None,
    key_in_speed=None,
    watermark="2013-01-01 06:00:00.000",
    behind=False,
    beyond=False,
    unread=False,
)
LOSES = replace(WINS, best=False, winner=PLACE)
BROKEN = replace(WINS, valid=False, best=False, reason="rule_failed", column="dest")


HOLDS: dict[Explanation, dict[str, Any]] = {
    "late": {"behind": True},
    "quarantined": {"quarantined_as": QUARANTINED},
    "pending": {"beyond": True},
    "remembered": {"key_in_speed": PLACE},
}


def test_of_several_explanations_the_first_by_precedence_is_told(contract: DataContract) -> None:
    for pair in combinations(get_args(Explanation), 2):
        first, second = pair
        found = fate(replace(WINS, **HOLDS[first], **HOLDS[second]), contract)
        # The stream has not held against its watermark what it has refused.
        assert found.verdict == ("quarantined" if pair == ("late", "quarantined") else first)


@pytest.mark.parametrize(
    ("facts", "verdict", "said"),
    [
        (WINS, "missing", "nothing explains why the speed layer lacks it"),
        (replace(WINS, beyond=True), "pending", "the speed layer has not read that far"),
        (
            replace(WINS, behind=True, beyond=True),
            "late",
            "behind the watermark, 2013-01-01 06:00:00.000 UTC",
        ),
        (replace(WINS, behind=True, beyond=True, unread=True), "pending", "has not read that far"),
        (replace(WINS, in_speed=True, behind=True), "winner", "readers have it from the speed layer"),
        (replace(WINS, speed_copy=PLACE), "winner", "readers have flights-1 @ 7 from the speed layer"),
        (
            replace(WINS, key_in_speed=PLACE),
            "remembered",
            "had flights-1 @ 7 of this key and took it for a copy",
        ),
        (
            replace(WINS, quarantined_as=QUARANTINED),
            "quarantined",
            "rule_failed dest by contract 0.9 (open); valid by",
        ),
        (replace(WINS, quarantined_as=QUARANTINED, in_speed=True), "winner", "readers have it"),
        (replace(WINS, certified=True, in_batch=True), "winner", "row of the batch layer"),
        (
            replace(WINS, certified=True, in_batch=True, behind=True),
            "late",
            "row of the batch layer; the speed",
        ),
        (replace(WINS, certified=True, in_speed=True), "late", "2013-01-01 is certified without it"),
        (replace(WINS, reading=2), "duplicate", "of flights-0 @ 3: the same record, read from Kafka again"),
        (LOSES, "duplicate", "of flights-1 @ 7"),
        (replace(LOSES, in_speed=True), "duplicate", "readers have this copy from the speed layer until"),
        (replace(LOSES, in_batch=True, certified=True), "duplicate", "row of the batch layer until"),
        (replace(LOSES, differing=(1, 9)), "conflict", "with flights-1 @ 7, which wins; differs in flight,"),
        (replace(BROKEN, quarantined_as=QUARANTINED), "quarantined", "rule_failed dest (open)"),
        (
            replace(BROKEN, reason="wrong_type", quarantined_as=QUARANTINED),
            "quarantined",
            "wrong_type dest; rule_failed dest by",
        ),
        (BROKEN, "quarantined", "rule_failed dest; not in the quarantine table"),
    ],
)
def test_each_state_has_its_verdict(contract: DataContract, facts: Facts, verdict: str, said: str) -> None:
    found = fate(facts, contract)
    assert found.verdict == verdict
    assert said in found.reason


def explained(contract: DataContract, *records: Facts, **changes: Any) -> Explained:
    each = tuple(ExplainedRecord(facts, fate(facts, contract)) for facts in records)
    found = Explained(Searched(5, "bronze", 1), 1, each, True)
    return replace(found, **changes)


def test_the_table_is_aligned_and_harmless(contract: DataContract) -> None:
    poison = replace(WINS, key=("\x1b[31m", None, "EWR", None), topic="a-longer-topic")
    lines = explanation_document(explained(contract, poison, replace(poison, offset=123)), contract)["lines"]
    _, key, heading, *rows, _, where = lines
    assert key.startswith("carrier = \\x1b[31m, flight = (not shown or not readable), origin = EWR")
    assert where == "searched 5 records of bronze (version 1)"
    assert {row.index("2013-01-01 12:00") for row in rows} == {heading.index("sent (UTC)")}
    assert rows[1].startswith("a-longer-topic-0 @ 123  2013-01-01 12:00:00.000")


def test_nothing_found_and_not_all_shown_are_said(contract: DataContract) -> None:
    nothing = " ".join(explanation_document(explained(contract, keys=0), contract)["lines"])
    assert nothing.startswith("no record has this key: searched 5 records of bronze (version 1)")
    cut = explanation_document(explained(contract, WINS, keys=9), contract)
    assert cut["lines"][-1].startswith("only the first 1 of 9 keys are shown")
    assert not cut["is_whole"]
    assert cut["records"][0]["winner"] == {"topic": "flights", "partition": 0, "offset": 3}
