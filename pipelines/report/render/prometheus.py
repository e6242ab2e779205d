"""Figures of the last nightly run in the text format that Prometheus' textfile collector reads."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Final, get_args
from zoneinfo import ZoneInfo

from pipelines.ledger.certifications import Verdict, newest
from pipelines.ledger.checks import CheckStatus
from pipelines.runtime.prometheus_text import Gauge

_STATES: Final = ("certified", "failed")
_COUNTS: Final = {
    "rows": "Rows in the batch layer of the days that the last nightly run decided on.",
    "records": "Valid records of these days in bronze.",
    "duplicates": "Copies that the rebuild of these days removed.",
    "conflicts": "Dedup keys of these days whose copies have different payloads.",
    "late": "Rows of these days that came too late for the speed layer.",
}


def gauges(
    past: Sequence[Verdict],
    checks: Mapping[str, int],
    zone: ZoneInfo,
    now: datetime,
    first_rebuildable: date | None = None,
) -> list[Gauge]:
    """Return what the last nightly run did, and how far certification has come.

    Args:
        past: All verdicts of the pipeline, the oldest first; one at least.
        checks: How many checks of the last run ended in each status.
        zone: The zone of the event days.
        now: The moment from which days are counted.
        first_rebuildable: The first day that can still be rebuilt; None for any.
    """
    last = past[-1]
    run = [verdict for verdict in past if verdict.run_id == last.run_id]
    certified = [verdict.day for verdict in past if verdict.status == "certified"]
    first = first_rebuildable or date.min
    return [
        *(_certified(max(certified), zone, now) if certified else ()),
        *_of_last_run(run, checks),
        _one(
            "quarantined_records",
            "Records in bronze of any day that broke the contract when the last nightly run checked.",
            last.quarantined,
        ),
        _one(
            "failed_days",
            "Days whose newest verdict is that they failed, however long ago, and that can still be rebuilt.",
            sum(each.status == "failed" and each.day >= first for each in newest(past).values()),
        ),
        _one(
            "repairs", "Repairs of certified days that are known.", sum(verdict.is_repair for verdict in past)
        ),
    ]


def _of_last_run(run: Sequence[Verdict], checks: Mapping[str, int]) -> list[Gauge]:
    failed = any(verdict.status == "failed" for verdict in run)
    decided_at = run[-1].decided_at.timestamp()
    return [
        _one("last_run_timestamp_seconds", "When a run decided on days last.", decided_at),
        Gauge(
            "oncelake_last_run_status",
            "1 for the outcome of the last run that decided on days: failed if it refused one.",
            {(("status", state),): int(failed == (state == "failed")) for state in _STATES},
        ),
        Gauge(
            "oncelake_last_run_days",
            "Days that the last run decided on.",
            {(("status", state),): sum(v.status == state for v in run) for state in _STATES},
        ),
        *(
            _one(f"last_run_{what}", text, sum(getattr(v, what) for v in run))
            for what, text in _COUNTS.items()
        ),
        _one(
            "last_run_repairs",
            "Days that were certified before and that the last nightly run certified again.",
            sum(v.is_repair for v in run),
        ),
        Gauge(
            "oncelake_last_run_checks",
            "Checks of the last nightly run by outcome.",
            {(("status", status),): checks.get(status, 0) for status in get_args(CheckStatus)},
        ),
    ]


def _certified(day: date, zone: ZoneInfo, now: datetime) -> list[Gauge]:
    start = datetime.combine(day, time(), zone).astimezone(UTC)
    return [
        _one("certified_day_timestamp_seconds", "Start of the last certified day.", start.timestamp()),
        _one(
            "days_since_certified",
            "Days from the last certified day to today, when this was written; 1 is yesterday.",
            (now.astimezone(zone).date() - day).days,
        ),
    ]


def _one(name: str, text: str, value: float) -> Gauge:
    return Gauge(f"oncelake_{name}", text, {(): value})
