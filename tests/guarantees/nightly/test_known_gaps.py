"""A loss that was accepted certifies days; the next one does not."""

from collections.abc import Callable

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.errors import AuditFailed, ConfigError
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, TWO, on, run


def test_what_was_accepted_as_lost_hides_no_later_loss(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    records = [on(1, 1), on(2, 2), on(3, 3)]
    records[1].offset, records[2].offset = 7, 9
    lake = make_lake(contract=small)
    lake.ingest(records[:2])
    with pytest.raises(AuditFailed, match=r"6 offsets missing"):
        run(lake, ONE)
    # One that bronze has is among them, and so is one that is not written yet.
    accepting = make_lake(
        "audit.known_gaps=[{partition: 0, first: 0, last: 6, why: retention}]", contract=small
    )
    assert run(accepting, ONE, TWO)["days"] == {"2013-01-01": "certified", "2013-01-02": "certified"}
    lake.ingest(records[2:])
    with pytest.raises(
        AuditFailed, match=r"7 offsets missing in 1 partitions, 6 of them by audit.known_gaps"
    ):
        run(accepting, THREE)


def test_where_kafka_is_not_asked_nothing_is_accepted_as_lost_that_bronze_has_not_passed(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake(contract=small)
    lake.ingest([on(1, 1)])
    for gap, said in (
        (
            "partition: 0, first: 0, last: 0",
            r"expected offsets less than \d+, where .*/bronze/flights ends",
        ),
        ("partition: 3, first: 0, last: 999999999", r"bronze/flights has no partition 3"),
    ):
        accepting = make_lake(f"audit.known_gaps=[{{{gap}, why: retention}}]", contract=small)
        with pytest.raises(ConfigError, match=said):
            run(accepting, ONE)
