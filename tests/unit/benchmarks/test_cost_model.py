"""The cost of streams is fitted to measurements, and refused where they do not tell it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.cost_model import Cost, Load, Run, fit, main

TRUE = Cost(start_s=15.0, event_us=12.0, batch_s=0.5)
GIVEN = ("--key-bytes=100", "--stored-bytes=90", "--core-hour=0.05", "--gb-month=0.02")
SIZES = [(500_000, 3), (2_000_000, 9), (500_000, 21), (2_000_000, 81)]


def runs(sizes: list[tuple[int, int]], stream: str = "speed") -> list[Run]:
    return [Run(stream, events, batches, TRUE.cpu_s(events, batches)) for events, batches in sizes]


def write(path: Path, sizes: list[tuple[int, int]]) -> str:
    results = [
        {
            "item": run.stream,
            "events": run.events,
            "cpu_s": run.cpu_s,
            "details": {"queries": {run.stream: {"batches": run.batches}}},
        }
        for stream in ("ingest", "speed")
        for run in runs(sizes, stream)
    ]
    path.write_text(json.dumps({"results": [*results, {"item": "raw"}]}))
    return str(path)


def test_the_parts_of_a_cost_are_found_again() -> None:
    found = fit(runs(SIZES))
    assert (found.start_s, found.event_us, found.batch_s) == pytest.approx((15.0, 12.0, 0.5))


@pytest.mark.parametrize("sizes", [SIZES[:2], [(500_000, 3), (1_000_000, 5), (2_000_000, 9)], []])
def test_runs_that_do_not_tell_the_parts_apart_are_refused(sizes: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="two values of --batch-records"):
        fit(runs(sizes))


def test_what_a_load_needs() -> None:
    load = Load(1e6, interval_s=10, keys=1e9, key_bytes=100, stored_bytes=50, retention_days=2)
    assert load.cores(TRUE) == pytest.approx(12.05)
    assert (load.state_gb(), load.stored_gb()) == pytest.approx((100, 8640))


def test_a_size_that_was_not_fitted_is_predicted(tmp_path: Path) -> None:
    fitted, checked = write(tmp_path / "fit.json", SIZES), write(tmp_path / "check.json", [(4_000_000, 41)])
    shown = CliRunner().invoke(main, [fitted, "--check", checked, *GIVEN], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "4,000,000" in shown.output
    assert "+0%" in shown.output
    refused = CliRunner().invoke(main, [checked, *GIVEN])
    assert refused.exit_code == 2
    assert "found 1 runs" in refused.output
