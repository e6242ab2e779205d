"""What `oncelake forget` leaves of an integrity check quotes no value of a record."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from pipelines.audit.audited_days import AuditedDays
from pipelines.audit.integrity_checks import INTEGRITY_CHECKS, IntegrityCheck, fail_together
from pipelines.audit.recount import BatchDay, BronzeDay, BronzeFacts
from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import Span
from pipelines.ledger.layer_samples import LayerDifference, LayerSample
from pipelines.ledger.offset_ranges import PartitionOffsets

DAY = date(2013, 1, 1)
NEXT = date(2013, 1, 2)
VALUE = "hush-hush"
_KEY: list[dict[str, str | None]] = [{"column": "origin", "value": VALUE}]
_SAMPLE = LayerSample("missing", _KEY, None, None, VALUE, VALUE, VALUE)
_ALL_DIFFER = LayerDifference(1, 2, 3, 4, 5, 6, 7, (_SAMPLE,))
_WITH_GAPS = PartitionOffsets("flights", 0, 3, 9, 8, 4, datetime(2013, 1, 1, tzinfo=UTC), known=1)


def audited(contract: DataContract, differences: Mapping[date, LayerDifference]) -> AuditedDays:
    """A day on which each check has something to say; all texts of it that are of records are `VALUE`.

    Whoever adds a check adds the facts that it asks for.
    """
    cluster = "kafka.clusters.eu={bootstrap_servers: 'eu:9092', retired: true}"
    config = load_config("flights", environ={}, settings=[cluster, "speed.late_warn_records=1"])
    facts = BronzeDay(9, 1, 7, conflicts=5, checksum=1, undecided=3, recurring=(VALUE,))
    found = SimpleNamespace(
        pipeline=SimpleNamespace(config=config, contract=replace(contract, max_conflicts=0.1)),
        span=Span([DAY], [DAY], 1),
        bronze=BronzeFacts(20, 2, 2, {DAY: facts}),
        layer={DAY: BatchDay(rows=7, misplaced=2, checksum=4)},
        duplicate_keys={DAY: 2},
        offsets=[_WITH_GAPS],
        records_in_table=3,
        records_without_row={DAY: 4},
        differences=differences,
        doubled_in_speed={DAY: 6},
        lacking_in_quarantine=8,
    )
    return cast(AuditedDays, found)


@pytest.mark.parametrize("check", INTEGRITY_CHECKS, ids=lambda check: check.name)
def test_a_check_quotes_values_of_records_in_its_detail_alone(
    check: IntegrityCheck, contract: DataContract
) -> None:
    for difference in (_ALL_DIFFER, replace(_ALL_DIFFER, missing=0, extra=0), LayerDifference(remembered=1)):
        for finding in check.find(audited(contract, {DAY: difference})).values():
            assert VALUE not in f"{finding.observed} {finding.expected}"


def test_there_are_values_to_quote(contract: DataContract) -> None:
    """Else the test above would hold whatever a check says."""
    day = audited(contract, {DAY: _ALL_DIFFER})
    findings = {check.name: check.find(day) for check in INTEGRITY_CHECKS}
    assert {name for name, found in findings.items() if not found} == {"moves_with_its_neighbour"}
    assert {name for name, found in findings.items() if any(VALUE in f.detail for f in found.values())} == {
        "keys_come_to_an_end"
    }
    assert not any(f.status == "passed" for found in findings.values() for f in found.values())


def test_a_day_that_shares_events_with_a_failed_one_fails_by_a_check_that_is_listed() -> None:
    (check,) = fail_together([DAY], [(DAY, NEXT)])
    assert (check.day, check.status) == (NEXT, "failed")
    assert check.name in {each.name for each in INTEGRITY_CHECKS}


def test_days_that_share_events_with_a_failed_one_fail_by_way_of_others_too() -> None:
    third = NEXT + timedelta(days=1)
    checks = fail_together([DAY], [(NEXT, third), (DAY, NEXT), (third, DAY)])
    assert [check.day for check in checks] == [NEXT, third]
    assert not fail_together([NEXT], [(DAY, NEXT)])
