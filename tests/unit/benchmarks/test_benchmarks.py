"""The benchmark's events are what their truth says, and its table compares what belongs together."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from benchmarks.events import DAY, PARTITIONS, Truth, add_up, chunks
from benchmarks.items import ITEMS
from benchmarks.meter import Meter
from benchmarks.progress import Progress
from benchmarks.results import summarize
from benchmarks.runner import Result, chosen
from pipelines.config.loader import load_config
from pipelines.contracts.contract import load_contract

RECORDS = 120_000
BENCHMARKS = Path("benchmarks")


@pytest.fixture(scope="module")
def made() -> list[Any]:
    return list(chunks(RECORDS, seed=7))


@pytest.fixture(scope="module")
def truth(made: list[Any]) -> Truth:
    result = reduce(add_up, made, None)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def events(made: list[Any]) -> list[dict[str, Any]]:
    """All records that are JSON, decoded."""
    decoded = []
    for value in (value for chunk in made for value in chunk.values):
        try:
            decoded.append(json.loads(value))
        except json.JSONDecodeError:
            continue
    return decoded


def test_the_truth_is_what_another_reader_finds(
    made: list[Any], truth: Truth, events: list[dict[str, Any]]
) -> None:
    keys = {(event["site"], event["device"], event["sequence"]) for event in events}
    assert (truth.records, truth.unique, truth.broken) == (RECORDS, len(keys), RECORDS - len(events))
    assert truth.duplicates == len(events) - len(keys)
    assert truth.sequence_sum == sum(sequence for _, _, sequence in keys)
    assert truth.value_bytes == sum(len(value) for chunk in made for value in chunk.values)


def test_a_fifth_are_duplicates_and_records_have_some_240_bytes(truth: Truth) -> None:
    assert truth.duplicates / truth.records == pytest.approx(0.2, abs=0.01)
    assert truth.value_bytes / truth.records == pytest.approx(240, abs=10)
    assert truth.broken == RECORDS // 10_000


def test_a_duplicate_repeats_every_byte_of_its_first_copy(events: list[dict[str, Any]]) -> None:
    assert len({json.dumps(event) for event in events}) == len({event["sequence"] for event in events})


def test_the_same_seed_gives_the_same_records_and_another_seed_others(made: list[Any]) -> None:
    assert next(chunks(RECORDS, seed=7)).values == made[0].values
    assert next(chunks(RECORDS, seed=8)).values != made[0].values


def test_event_times_rise_with_disorder_lie_on_one_day_and_before_the_sending(
    made: list[Any], events: list[dict[str, Any]]
) -> None:
    times = [datetime.fromisoformat(event["measured_at"]) for event in events]
    assert {moment.astimezone(UTC).date() for moment in times} == {DAY}
    behind = [newest - moment for newest, moment in _with_newest(times)]
    assert timedelta(minutes=5) < max(behind) < timedelta(hours=12)
    sent = [moment for chunk in made for moment in chunk.sent_ms]
    assert sent == sorted(sent)
    assert times[-1].timestamp() * 1000 <= sent[-1]


def test_every_partition_gets_its_share(made: list[Any]) -> None:
    counts = [sum(chunk.partitions.count(number) for chunk in made) for number in range(PARTITIONS)]
    assert sum(counts) == RECORDS
    assert min(counts) > 0.8 * RECORDS / PARTITIONS


def test_contract_and_configuration_of_the_benchmark_are_valid_and_read_these_events(
    events: list[dict[str, Any]],
) -> None:
    config = load_config(
        "events",
        conf_dir=BENCHMARKS / "conf",
        settings=["kafka.bootstrap_servers=localhost:9092"],
        environ={},
    )
    contract = load_contract(BENCHMARKS / "contracts" / config.contract)
    assert contract.key == ("site", "device", "sequence")
    assert set(contract.columns) <= events[0].keys()


def test_an_item_brings_what_it_needs_and_always_the_reference_first() -> None:
    assert chosen(["rebuild"]) == ["raw", "ingest", "speed", "rebuild"]
    assert chosen(["together"]) == ["raw", "together"]
    assert chosen([]) == list(ITEMS)


def test_ratios_are_taken_within_a_repetition() -> None:
    slow = [Result("raw", 40.0, 60.0, 500), Result("ingest", 50.0, 80.0, 600)]
    fast = [Result("raw", 10.0, 15.0, 500), Result("ingest", 12.5, 20.0, 600)]
    raw, ingest = summarize([slow, fast], records=1_000)
    assert (raw["ratio_wall"], raw["ratio_cpu"]) == (1.0, 1.0)
    assert (ingest["ratio_wall"], ingest["ratio_cpu"]) == (0.8, 0.75)
    assert ingest["wall_s"] == 31.25
    assert ingest["records_per_s"] == 32


def test_progress_adds_up_micro_batches_by_query() -> None:
    progress = Progress()
    for records in (3, 4, 0):
        progress.add(
            {
                "name": "speed",
                "numInputRows": records,
                "durationMs": {"addBatch": 10},
                "stateOperators": [{"commitTimeMs": 2}],
            }
        )
    progress.wait_for(7, "speed")
    found = progress.summary()["speed"]
    assert (found["batches"], found["records"]) == (2, 7)
    assert (found["ms"]["addBatch"], found["ms"]["state.commitTimeMs"]) == (30, 6)


def test_the_meter_counts_the_time_of_child_processes() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    with Meter() as meter:
        subprocess.run([sys.executable, "-c", code], check=True)
    cost = meter.cost()
    assert 0.2 < cost.cpu_s < cost.wall_s * 4
    assert cost.peak_mb > 1
    assert meter.cost(until=cost.began).wall_s == 0


def _with_newest(times: list[datetime]) -> list[tuple[datetime, datetime]]:
    newest, pairs = times[0], []
    for moment in times:
        newest = max(newest, moment)
        pairs.append((newest, moment))
    return pairs
