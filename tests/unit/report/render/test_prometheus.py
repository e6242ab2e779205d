"""Figures for Prometheus are in its text format, whatever a label holds, and speak of the last run."""

import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from pipelines.ledger.certifications import Verdict
from pipelines.report.render.prometheus import gauges
from pipelines.runtime.prometheus_text import Gauge, exposition

NEW_YORK = ZoneInfo("America/New_York")
LINE = re.compile(r'[a-z_]+\{([a-z_]+="(\\["\\n]|[^"\\\n])*",?)*\} -?[0-9.e+]+')


def verdict(day: int, run: str, status: str = "certified", previous: int | None = None) -> Verdict:
    return Verdict("flights", date(2013, 1, day), "failed" if status == "failed" else "certified", run, 5, 9,
                   records=110, rows=100, duplicates=10, conflicts=1, late=2, quarantined=7, other_days=0,
                   bronze=117, decided_at=datetime(2013, 1, day + 1, 7, tzinfo=UTC),
                   previous_version=previous)  # fmt: skip


def figures(*past: Verdict, first_rebuildable: date | None = None) -> dict[str, str]:
    now = datetime(2013, 1, 9, 4, tzinfo=UTC)  # still the 8th in New York
    found = gauges(past, {"passed": 20, "failed": 1}, NEW_YORK, now, first_rebuildable)
    text = exposition(found, {"pipeline": "flights", "env": "prod"})
    values = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.replace('pipeline="flights",env="prod"', "").rsplit(" ", 1) for line in values)


def test_the_last_run_is_added_up_over_its_days() -> None:
    found = figures(
        verdict(4, "a"), verdict(5, "b"), verdict(4, "c", previous=3), verdict(6, "c", "failed", previous=4)
    )
    assert found["oncelake_last_run_rows{}"] == "200"
    assert found["oncelake_last_run_duplicates{}"] == "20"
    assert found["oncelake_quarantined_records{}"] == "7"
    assert found['oncelake_last_run_days{,status="certified"}'] == "1"
    assert found['oncelake_last_run_status{,status="failed"}'] == "1"
    assert found['oncelake_last_run_status{,status="certified"}'] == "0"
    assert found['oncelake_last_run_checks{,status="passed"}'] == "20"
    assert found['oncelake_last_run_checks{,status="warned"}'] == "0"
    # A rebuild that failed has repaired nothing.
    assert found["oncelake_last_run_repairs{}"] == found["oncelake_repairs{}"] == "1"


def test_a_day_counts_as_failed_until_it_is_certified() -> None:
    past = [verdict(4, "a", "failed"), verdict(5, "b", "failed"), verdict(6, "c"), verdict(5, "d")]
    assert figures(*past)["oncelake_failed_days{}"] == "1"
    assert figures(*past, verdict(4, "e"))["oncelake_failed_days{}"] == "0"
    assert figures(*past, first_rebuildable=date(2013, 1, 5))["oncelake_failed_days{}"] == "0"


def test_the_certified_day_is_counted_in_its_own_zone() -> None:
    found = figures(verdict(4, "a"), verdict(6, "b", "failed"))
    start = datetime(2013, 1, 4, tzinfo=NEW_YORK).timestamp()
    assert found["oncelake_certified_day_timestamp_seconds{}"] == str(int(start))
    assert found["oncelake_days_since_certified{}"] == "4"


def test_before_the_first_certified_day_nothing_is_said_of_one() -> None:
    found = figures(verdict(4, "a", "failed"))
    assert not [name for name in found if "certified_day" in name or "days_since" in name]
    assert found['oncelake_last_run_status{,status="failed"}'] == "1"


def test_every_line_is_in_the_format_and_every_metric_has_help_and_type() -> None:
    odd = 'a"b\\c\nd'
    text = exposition([Gauge("x_total", f"Is {odd}.", {(): 1.5, (("k", odd),): 10**15})], {"pipeline": odd})
    assert text == (
        '# HELP x_total Is a"b\\\\c\\nd.\n# TYPE x_total gauge\n'
        'x_total{pipeline="a\\"b\\\\c\\nd"} 1.5\n'
        'x_total{pipeline="a\\"b\\\\c\\nd",k="a\\"b\\\\c\\nd"} 1000000000000000\n'
    )
    found = gauges([verdict(4, "a")], {}, NEW_YORK, datetime(2013, 1, 9, tzinfo=UTC))
    lines = exposition(found, {"pipeline": "flights", "env": odd}).splitlines()
    names = [metric.name for metric in found]
    assert len(names) == len(set(names))
    assert [line.split()[2] for line in lines if line.startswith("# HELP ")] == names
    assert [line.split()[2] for line in lines if line.startswith("# TYPE ")] == names
    for line in lines:
        assert line.startswith("# ") or LINE.fullmatch(line), line
