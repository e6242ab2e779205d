"""What a report says in words: where the layers differ, how late records came, what a rebuild changed."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from pipelines.ledger.certifications import Verdict
from pipelines.ledger.layer_samples import LayerSample
from pipelines.report.model.history import SampledChanges, Withheld
from pipelines.report.model.report import DayVerdict, Flow, LatenessCount, ReportData
from pipelines.report.render import document, html_page
from pipelines.report.render.files import render_json

POISON = "<script>alert(1)</script>\u202e"
PLACE = {"topic": "flights", "partition": 1, "offset": 4711}
LATE = LayerSample(
    difference="late",
    key=[{"column": "carrier", "value": POISON}, {"column": "pilot", "value": None}],
    batch=PLACE,
    speed=None,
    event_time="2013-01-05 10:15:00.000",
    ingested_at="2013-01-05 22:00:00.000",
    watermark="2013-01-05 16:00:00.000",
)
EXTRA = replace(LATE, difference="extra", batch=None, speed=PLACE, watermark=None)

AGAIN = Verdict(
    pipeline="flights",
    day=date(2013, 1, 5),
    status="certified",
    run_id="run",
    batch_version=7,
    bronze_version=9,
    records=9,
    rows=9,
    duplicates=0,
    conflicts=0,
    late=0,
    quarantined=0,
    other_days=0,
    bronze=9,
    decided_at=datetime(2013, 1, 7, tzinfo=UTC),
    previous_version=3,
    added=4,
    removed=5,
    changed=6,
)


def page(*samples: LayerSample) -> str:
    flow = Flow(
        bronze=9,
        other_days=0,
        quarantined=0,
        day_records=9,
        duplicates=0,
        conflicts=0,
        batch=9,
        speed=8,
        late=1,
    )
    data = ReportData(
        pipeline="flights",
        day=date(2013, 1, 5),
        time_zone="UTC",
        generated_at=datetime(2013, 1, 6, tzinfo=UTC),
        version="0.1.0",
        verdict=DayVerdict(status="certified", passed=1, failed=0, warned=0),
        flow=flow,
        layer_differences=document.grouped_differences(samples),
    )
    assert ReportData.model_validate_json(render_json(data)) == data
    return html_page.render_html(data)


def test_samples_stand_under_their_difference_what_is_unexplained_first() -> None:
    html = page(LATE, EXTRA)
    section = html[html.index('id="differences"') : html.index('id="quarantine"')]
    assert section.index("only in the speed layer") < section.index("<code>late</code>")
    assert section.count('<code>flights-1</code> @ <span class="n">4711</span>') == 2
    assert (
        "event time 2013-01-05 10:15:00.000, watermark 2013-01-05 16:00:00.000 UTC at the latest" in section
    )
    assert "<code>pilot</code> = <em>not shown</em>" in section
    assert "&lt;script&gt;" in section
    assert "<script" not in html
    assert "\u202e" not in html


def test_without_samples_there_is_no_section() -> None:
    assert 'id="differences"' not in page()


def test_ranges_of_lateness_have_names() -> None:
    counts = (LatenessCount(None, 0, 1), LatenessCount(600, 3_600, 2), LatenessCount(604_800, None, 3))
    assert [(each.label, each.records) for each in document.lateness_buckets(counts)] == [
        ("sent ahead", 1),
        ("10 to 60 min", 2),
        ("over 7 days", 3),
    ]


@pytest.mark.parametrize(
    ("found", "counts", "gone"),
    [
        (SampledChanges(1, 2, 3, ()), (1, 2, 3), None),
        ("forgotten", (4, 5, 6), "The run forgot events, so no rows are shown."),
        ("version_gone", (4, 5, 6), "Version 3 of the batch table is gone: Delta has cleaned its log, or"),
    ],
)
def test_what_a_rebuild_changed_or_why_no_rows_are_shown(
    found: SampledChanges | Withheld, counts: tuple[int, int, int], gone: str | None
) -> None:
    told = document.comparison(AGAIN, found)
    assert told is not None
    assert (told.added, told.removed, told.changed) == counts
    assert (told.gone or "").startswith(gone) if gone else told.gone is None
    assert document.comparison(replace(AGAIN, previous_version=None), None) is None
