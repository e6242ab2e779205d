"""The benchmark's events are what their truth says, and its table compares what belongs together."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.__main__ import main
from benchmarks.events import DAY, PARTITIONS, Truth, add_up, chunks
from benchmarks.items import ITEMS
from benchmarks.many_pipelines import day_of, night_table
from benchmarks.meter import Meter
from benchmarks.progress import Progress
from benchmarks.results import Report
from benchmarks.runner import Result, chosen
from benchmarks.summary import summarize
from pipelines.config.loader import load_config
from pipelines.formats.contract_files import load_contract

pytestmark = pytest.mark.patient

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


def _result(item: str, events: int, wall_s: float, cpu_s: float) -> Result:
    return Result(item, events, 1, 244 * events, wall_s, cpu_s, 1.0, 500)


def test_ratios_are_taken_within_a_repetition() -> None:
    slow = [_result("raw", 1_000, 40.0, 60.0), _result("ingest", 1_000, 50.0, 80.0)]
    fast = [
        replace(_result("raw", 1_000, 10.0, 15.0), repetition=2),
        replace(_result("ingest", 1_000, 12.5, 20.0), repetition=2),
    ]
    raw, ingest = (summary.sizes[0] for summary in summarize([*slow, *fast]))
    assert (raw.ratio_wall, raw.ratio_cpu) == (1.0, 1.0)
    assert (ingest.ratio_wall, ingest.ratio_cpu) == (0.8, 0.75)
    assert ingest.wall_s == 31.25
    assert ingest.records_per_s == 32


def test_the_cost_of_one_more_event_is_the_slope_over_the_sizes() -> None:
    written = {"mb": {"read": 0.0, "written": 0.5}}
    small = Result("raw", 1_000_000, 1, 10**6, 10.0, 20.0, 8.0, 500, written)
    large = Result("raw", 3_000_000, 1, 3 * 10**6, 20.0, 50.0, 12.0, 500, written)
    (raw,) = summarize([small, large])
    assert (raw.marginal_us, raw.warm_us, raw.fixed_s) == (15.0, 13.0, 5.0)
    assert [size.compile_s for size in raw.sizes] == [8.0, 12.0]
    assert [size.written for size in raw.sizes] == [0.5, 0.17]


def test_an_item_that_works_on_a_share_is_compared_with_as_many_records() -> None:
    share = ITEMS["repair"].share
    run = [_result("raw", 3_000, 30.0, 60.0), _result("repair", 3_000, 2.0, 4.0)]
    repair = summarize(run)[1].sizes[0]
    assert (repair.ratio_wall, repair.records_per_s) == (round(30 * share / 2, 3), round(3_000 * share / 2))


def test_results_are_written_for_people_and_programs_whatever_was_measured(tmp_path: Path) -> None:
    report = Report(tmp_path / "out" / "results.json", {"events": [1_000, 2_000], "settings": ["<b>"]})
    steps = [{"step": "audit", "seconds": 1.0, "detail": "5 rows asked"}]
    details = {"mb": {"read": 1.0, "written": 2.0}, "steps": steps}
    results = [
        _result("raw", 1_000, 4.0, 6.0),
        replace(_result("rebuild", 1_000, 8.0, 9.0), details=details),
        _result("raw", 2_000, 5.0, 8.0),
    ]
    for number in range(1, len(results) + 1):
        report.write(results[:number])
    written = json.loads(report.path.read_text())
    assert [row["item"] for row in written["results"]] == ["raw", "rebuild", "raw"]
    assert written["summary"][0]["marginal_us"] == 2000.0
    told = report.path.with_suffix(".md").read_text()
    assert (
        "| raw append | 2000.0 | 2000.0 | 4.0 | 1,000 | 4.0 | 6.0 | 1.0 | 250 | 1.00 | 1.00 |  | 500 |"
        in told
    )
    assert "- rebuild with audit, 1,000 events: audit 1.0 s; the audit is 0.12 of the run" in told
    html = report.path.with_suffix(".html").read_text()
    assert html.count("<svg") == 2
    assert "&lt;b&gt;" in html
    assert "http://www.w3.org/2000/svg" in html
    assert not re.search(r"(?:src|href)=", html)


def test_a_benchmark_refuses_sizes_that_are_none() -> None:
    for sizes in ("", "10", "2000,", "2000;3000", "-2000"):
        done = CliRunner().invoke(main, ["--events", sizes])
        assert done.exit_code == 2, done.output
        assert "expected numbers from 1,000" in done.output


def test_progress_adds_up_micro_batches_by_query() -> None:
    progress = Progress()
    for records in (3, 4, 0):
        progress.progressed(
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what each thread takes")
def test_the_meter_tells_what_the_compilers_of_java_take() -> None:
    named = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'C2 CompilerThread0')\n"
    code = named + "while time.process_time() < 1.2: pass"
    with Meter() as meter:
        subprocess.run([sys.executable, "-c", code], check=True)
        subprocess.run([sys.executable, "-c", code.replace("C2 Comp", "Comp")], check=True)
    cost = meter.cost()
    # The meter looks from time to time, and what a process takes last may go unseen.
    assert 0.4 < cost.compile_s < cost.cpu_s - 0.4


def test_a_night_of_many_pipelines_is_told_by_how_many_were_through() -> None:
    with Meter() as meter:
        began = datetime.now(UTC)
    nights = [{"started_at": began.isoformat(), "duration_s": 0.0}] * 20
    console = Console(width=120, record=True)
    console.print(night_table(nights, meter))
    told = [line.split("│")[1].strip() for line in console.export_text().splitlines() if "│" in line]
    assert told == ["2", "5", "7", "10", "12", "15", "17", "20"]
    assert len(night_table(nights[:3], meter).rows) == 3


@pytest.mark.parametrize("records", [1, 7, 24, 997, 1_000, 10_000])
def test_a_pipeline_of_many_has_as_many_records_as_it_is_asked_for(records: int) -> None:
    age = day_of(records)
    assert age.a_day * age.records == records
    assert 1 <= age.a_day <= 24


def _with_newest(times: list[datetime]) -> list[tuple[datetime, datetime]]:
    newest, pairs = times[0], []
    for moment in times:
        newest = max(newest, moment)
        pairs.append((newest, moment))
    return pairs
