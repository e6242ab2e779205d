"""The report shows where the layers differ: by key, with coordinates on both sides and the reason."""

from dataclasses import replace
from datetime import UTC, date, datetime

from pipelines.ledger.layer_samples import LayerSample
from pipelines.report.model.layer_differences import group_samples
from pipelines.report.model.report import DayVerdict, Flow, ReportData
from pipelines.report.render import html_page
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
        layer_differences=group_samples(samples),
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
