"""A loss that was accepted certifies days; the next one does not."""

from collections.abc import Callable

import pytest

from pipelines.audit.audited_days import AuditedDays, span_of
from pipelines.audit.integrity_checks import INTEGRITY_CHECKS
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import version
from pipelines.errors import AuditFailed, ConfigError
from pipelines.ledger.bronze_index import bronze_slice
from pipelines.ledger.bronze_indexer import index_bronze
from tests.support.lake_copies import continued
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, on, run

ACCEPTED = "audit.known_gaps=[{partition: 0, first: 0, last: 10, why: retention}]"


@pytest.fixture
def lake(two_days: Lake, make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake of two certified days that has lost the six records after those, of offsets 5 to 10."""
    lake = continued(two_days, make_lake(contract=small))
    record = on(3, 6)
    record.offset = 11
    lake.ingest([record])
    return lake


def contiguous(lake: Lake) -> tuple[str, str]:
    """What an audit of the third day says of the offsets."""
    at = version(lake.spark, lake.config.table("bronze"))
    index, span = index_bronze(lake.pipeline, at), span_of(lake.pipeline, [THREE], None)
    pieces = bronze_slice(lake.pipeline, index, span.near, at)
    (check,) = (check for check in INTEGRITY_CHECKS if check.name == "offsets_contiguous")
    finding = check.find(AuditedDays(lake.pipeline, span, [THREE], pieces, 0))[THREE]
    return finding.status, finding.observed


@pytest.mark.thorough
def test_what_was_accepted_as_lost_hides_no_later_loss(
    lake: Lake, make_lake: Callable[..., Lake], small: DataContract
) -> None:
    assert contiguous(lake) == ("failed", "6 offsets missing in 1 partitions")
    # Some that bronze has are among them.
    accepting = make_lake(ACCEPTED, contract=small)
    assert run(accepting, THREE).days == {THREE: "certified"}
    record = on(4, 7)
    record.offset = 13
    lake.ingest([record])
    lost = "7 offsets missing in 1 partitions, 6 of them by audit.known_gaps"
    with pytest.raises(AuditFailed, match=f"offsets_contiguous: found {lost}"):
        run(accepting, THREE)


def test_where_kafka_is_not_asked_nothing_is_accepted_as_lost_that_bronze_has_not_passed(
    two_days: Lake, make_lake: Callable[..., Lake], small: DataContract
) -> None:
    gap = "partition: 0, first: 0, last: 4"
    accepting = continued(two_days, make_lake(f"audit.known_gaps=[{{{gap}, why: lost}}]", contract=small))
    said = r"expected offsets less than 4, where .*/bronze/flights ends"
    with pytest.raises(ConfigError, match=said):
        run(accepting, ONE)
