"""Whatever bytes come as key, value or header: the stream goes on, and each record is accounted for."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import decode
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from tests.support.avro import AVRO_FLIGHT, FIELDS, encoded, framed, record
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import stream

pytestmark = pytest.mark.usefixtures("two_partitions")

TEXTS = st.text(max_size=12)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False), st.just(10**400), st.none(), TEXTS
)
MOMENTS = st.sampled_from(
    [
        "2013-01-01T05:15:00-05:00",
        "2013-01-01T10:15:00Z",
        "2016-12-31T23:59:60Z",  # a leap second
        "2013-03-10T02:30:00",  # an hour that New York skips
        "2013-11-03T01:30:00-04:00",
        "2013-01-01T05:15:00+14:00",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "",
    ]
)
FLIGHTS = st.builds(
    flight,
    carrier=st.sampled_from(["UA", "", "ÜÄ", "\u0000", None]),
    flight=NUMBERS,
    scheduled_departure=MOMENTS,
    tailnum=TEXTS,
    distance=NUMBERS,
)
CUT = st.tuples(st.integers(0, 230), st.integers(0, 230), st.binary(max_size=8)).map(
    lambda cut: flight()[: cut[0]] + cut[2] + flight()[cut[1] :]
)
RECORDS = st.builds(
    Record,
    value=st.one_of(st.none(), st.binary(max_size=300), CUT, FLIGHTS),
    key=st.one_of(st.none(), st.binary(max_size=20)),
    headers=st.lists(st.tuples(TEXTS, st.one_of(st.none(), st.binary(max_size=20))), max_size=3),
    sent=st.integers(0, 100_000).map(lambda s: EPOCH + timedelta(seconds=s)),
)


SCHEMA = record(FIELDS)
PAYLOAD = encoded(SCHEMA, AVRO_FLIGHT)
CUT_AVRO = st.tuples(st.integers(0, len(PAYLOAD)), st.integers(0, len(PAYLOAD)), st.binary(max_size=8)).map(
    lambda cut: PAYLOAD[: cut[0]] + cut[2] + PAYLOAD[cut[1] :]
)
AVRO = st.one_of(
    st.builds(framed, st.sampled_from([1, 2]), st.one_of(st.binary(max_size=60), CUT_AVRO)),
    st.binary(max_size=10),
)
# The first example would be the plainest: one value again and again.
MANY = st.lists(RECORDS, min_size=100, max_size=200).filter(lambda many: len({r.value for r in many}) > 50)
MANY_AVRO = st.lists(AVRO, min_size=250, max_size=400).filter(lambda many: len({*many}) > 100)
ONE_EXAMPLE = settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
        HealthCheck.too_slow,
    ],
)


@ONE_EXAMPLE
@given(MANY, st.lists(RECORDS, min_size=20, max_size=60))
def test_read_is_written_and_duplicates_and_late_and_quarantined(
    make_lake: Callable[..., Lake],
    small: DataContract,
    tmp_path: Path,
    first: list[Record],
    then: list[Record],
) -> None:
    # A lake for each example, of which there are more where one fails: the state remembers the coordinates of
    # broken records.
    root = f"lake.root={tmp_path}/{len(list(tmp_path.iterdir()))}"
    lake = make_lake("quarantine.max_share=1", root, contract=small)
    rows = quarantined = 0
    for records in (first, then + first[:10]):
        lake.ingest(records)
        counts = stream(lake).counts
        parts = counts.rows + counts.duplicates + counts.late + counts.quarantined
        assert counts.records == parts == len(records)
        rows, quarantined = rows + counts.rows, quarantined + counts.quarantined
    assert lake.count("speed") == rows
    assert lake.count("quarantine") == quarantined


@ONE_EXAMPLE
@given(MANY_AVRO)
def test_any_avro_payload_is_an_event_or_has_a_reason(
    lake: Lake, contract: DataContract, values: list[bytes]
) -> None:
    writers = Writers({"1": WriterSchema("1", "AVRO", json.dumps(SCHEMA))}, CONFLUENT)
    of_avro = replace(contract, value_format="avro")
    envelopes = lake.envelopes([framed(1, PAYLOAD), *values])
    decoded = decode(envelopes, of_avro, timedelta(days=1), writers).persist()
    assert decoded.count() == len(values) + 1
    assert decoded.where("_valid").count() >= 1
    assert decoded.where("_valid = (_error IS NOT NULL) OR NOT _valid AND _error.reason IS NULL").isEmpty()
    decoded.unpersist()
