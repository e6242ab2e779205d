"""Conditions on whole records: kept by every record, and harmless whatever the record holds."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.contract_rules import Condition
from pipelines.decode import decode
from pipelines.errors import ContractError
from pipelines.ops.preflight import check_conditions
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE, run, stream

ARRIVES = Condition("arrives only if it departs", "arrival_delay IS NULL OR departure_delay IS NOT NULL")
SPEED = Condition("flies slower than sound", "distance / air_time < 13")
CODE = Condition(
    "is one of many",
    "CAST(tailnum AS int) < 10 OR element_at(split(tailnum, ''), CAST(flight AS int)) != '!'",
)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], contract: DataContract) -> Lake:
    return make_lake(contract=replace(contract, day_rules=(), conditions=(ARRIVES, SPEED, CODE)))


def test_a_record_that_breaks_a_condition_is_put_aside_with_its_name(lake: Lake) -> None:
    lake.ingest(
        [
            flight(),
            flight(flight=2, departure_delay=None),
            flight(flight=3, distance=9000.0, air_time=1.0),
            flight(flight=4, departure_delay=None, arrival_delay=None),
        ]
    )
    counts = stream(lake)["counts"]
    assert (counts["rows"], counts["quarantined"]) == (2, 2)
    bad = lake.table("quarantine").orderBy("_offset").select("_reason", "_column", "_found")
    assert [tuple(row) for row in bad.toLocalIterator()] == [
        ("rule_failed", None, ARRIVES.name),
        ("rule_failed", None, SPEED.name),
    ]
    assert run(lake, ONE)["days"] == {ONE.isoformat(): "certified"}


def test_what_cannot_be_computed_stops_nothing_and_counts_as_kept(lake: Lake) -> None:
    values = [flight(air_time=0.0), *(flight(tailnum=text) for text in ("x" * 50, "9" * 14, ""))]
    values += [json.dumps([1]).encode(), b""]
    decoded = decode(lake.envelopes(values), lake.contract, lake.config.decode.max_future)
    reasons = [row["reason"] for row in decoded.orderBy("_offset").select("_error.reason").toLocalIterator()]
    assert reasons == [None, None, None, None, "not_an_object", "malformed_json"]
    assert lake.spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert decoded.select(F.lit(1)).count() == len(values)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("no_such_column > 1", "no_such_column"),
        ("distance >", "expected a condition in SQL"),
        ("distance + 1", "true or false"),
        ("rand() < 0.5", "always the same"),
        ("scheduled_departure < now()", "always the same"),
        ("raise_error('x') IS NULL", "no error of its own"),
        ("distance > (SELECT 1)", "no query"),
        ("count(*) > 1", "is one of many"),
        ("explode(array(distance > 1, true))", "always the same"),
        ("scheduled_departure < TIMESTAMP'tomorrow'", "always the same"),
        ("scheduled_departure < cast(' Today ' AS DATE)", "always the same"),
        ("true) OR (true", "expected a condition in SQL"),
    ],
)
def test_what_is_no_condition_is_refused_before_anything_runs(lake: Lake, sql: str, said: str) -> None:
    contract = replace(lake.contract, conditions=(ARRIVES, Condition("is one of many", sql)))
    with pytest.raises(ContractError, match=r"schema\.quality: custom: is one of many") as refused:
        check_conditions(lake.spark, contract)
    assert said in str(refused.value)


def test_conditions_of_a_contract_pass(lake: Lake) -> None:
    harmless = Condition("not carried over", "tailnum <> 'carry over now' AND dest <> 'select'")
    contract = replace(lake.contract, conditions=(*lake.contract.conditions, harmless))
    check_conditions(lake.spark, contract)
