"""What has to be sent so that readers of one state of some days come to another."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame

from pipelines.contracts.contract import DataContract
from pipelines.publishing.corrections import CORRECTION, corrections, perhaps_published, replace_removed
from pipelines.records.decode import VALID, decode
from tests.support.lakes import Lake, Record
from tests.support.nights import on


@pytest.fixture
def rows_of(make_lake: Callable[..., Lake], small_by_flight: DataContract) -> Callable[..., DataFrame]:
    lake = make_lake(contract=small_by_flight)

    def made(*records: Record) -> DataFrame:
        return decode(lake.envelopes(records), lake.contract, timedelta(days=9_000)).where(VALID)

    return made


def told(found: DataFrame) -> list[tuple[int, int, float, str]]:
    rows = found.select("flight", "_event_date", "departure_delay", CORRECTION).toArrow().to_pylist()
    return sorted((r["flight"], r["_event_date"].day, r["departure_delay"], r[CORRECTION]) for r in rows)


def test_a_day_is_corrected_by_the_columns_of_its_events_whichever_copies_they_are(
    rows_of: Callable[..., DataFrame], small_by_flight: DataContract, small: DataContract
) -> None:
    published = rows_of(
        *(on(1, 1), on(1, 2, departure_delay=5.0), on(1, 3), on(1, 4), on(1, 4, departure_delay=4.0)),
        *(on(1, 5), on(1, 5)),
    )
    certified = rows_of(*(on(1, number) for number in (1, 2, 4, 5, 6)))
    # One was published twice and otherwise: nobody knows which of the two came last.
    expected = [(2, 1, 2.0, "changed"), (3, 1, 2.0, "removed"), (4, 1, 2.0, "changed"), (6, 1, 2.0, "added")]
    for contract in (small_by_flight, small):
        assert told(corrections(published, certified, contract)) == expected


def test_what_a_run_had_begun_to_send_is_corrected_whether_it_was_sent_or_not(
    rows_of: Callable[..., DataFrame], small_by_flight: DataContract
) -> None:
    published, certified = (rows_of(*(on(1, each) for each in some)) for some in ((1, 2, 3), (1, 2, 3, 4)))
    begun = rows_of(on(1, 1), on(1, 2, departure_delay=5.0), on(1, 4), on(1, 5))
    perhaps = perhaps_published(begun, published, certified, small_by_flight)
    # The one that is new in both builds comes in any case: nobody knows whether it was sent.
    assert told(corrections(published.unionByName(perhaps), certified, small_by_flight)) == [
        (2, 1, 2.0, "changed"),
        (4, 1, 2.0, "added"),
        (5, 1, 2.0, "removed"),
    ]


def test_one_that_is_gone_from_a_day_is_looked_for_on_its_neighbours(
    rows_of: Callable[..., DataFrame], small_by_flight: DataContract
) -> None:
    published = rows_of(on(1, 1), on(3, 1), on(1, 2), on(1, 3), on(2, 4))
    certified = rows_of(on(2, 1, departure_delay=8.0), on(1, 4))
    others = rows_of(on(4, 3), on(5, 2))
    found = corrections(published, certified, small_by_flight)
    corrected = replace_removed(found, certified, others, small_by_flight, 3)
    # The first is gone from two days and has come to one; the last has moved back.
    assert told(corrected) == [
        (1, 2, 8.0, "changed"),
        (2, 1, 2.0, "removed"),
        (3, 4, 2.0, "changed"),
        (4, 1, 2.0, "changed"),
    ]
