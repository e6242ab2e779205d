"""Pages of the console say what needs a person first, look no fresher than they are, and nothing can act."""

import base64
import hashlib
import html
import random
import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from pipelines.console.batch_chart import phase_bar
from pipelines.console.jobs import stream_state, streams_at_work
from pipelines.console.pages import Site, page_name, render_overview, render_pipeline, script
from pipelines.console.view import (
    ClusterFigures,
    LakeFigures,
    LakeView,
    PipelineView,
    RackFigures,
    Reading,
    reading_failures,
)
from pipelines.report.model.records import QuarantineExample, QuarantineReason
from pipelines.report.render.text import NOTHING
from tests.support.consoles import (
    NOW,
    TODAY,
    ago,
    at_work,
    lake_view,
    ledger,
    many,
    pipeline,
    stage,
    stream,
    troubled,
)
from tests.support.pages import Page

LIVE = Site(30.0, is_live=True, reports="reports")
STILL = Site(None, is_live=True, reports="reports")
FILES = Site(None, is_live=False, reports="../reports")
SMALL = lake_view(pipeline(), troubled())


def overview(view: LakeView | None, site: Site = LIVE) -> str:
    return render_overview(view, NOW, site)


def detail(one: PipelineView, site: Site = LIVE) -> str:
    return render_pipeline(lake_view(one), one, NOW, site)


PAGES = {
    "overview": lambda site: overview(SMALL, site),
    "nothing yet": lambda site: overview(None, site),
    "fine": lambda site: detail(pipeline(), site),
    "troubled": lambda site: detail(troubled(), site),
    "refused": lambda site: detail(PipelineView("x", "conf/base/pipelines/x.yml: <b>"), site),
    "unread": lambda site: detail(PipelineView("x"), site),
}


@pytest.fixture(params=[LIVE, STILL, FILES], ids=["live", "still", "files"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.param
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own(name: str, site: Site) -> None:
    text = PAGES[name](site)
    page = Page(text)
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert [each["src"].rpartition("/")[2] for each in scripts] == (["console.js"] if site.every_s else [])
    assert not {tag for tag, _ in page.elements} & {
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "image",
    }
    for tag, attributes in page.elements:
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (tag, attribute)
            assert attribute != "style", "the policy allows none"
            assert "//" not in value, (tag, attribute, value)
            if attribute in {"href", "src"}:
                assert re.match(r"data:,$|[#?]|\.\./|[\w%.-]+(/|\.html|\.js)", value), (tag, value)


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_style_of_the_page_and_nothing_that_is_written_into_it(
    name: str, site: Site
) -> None:
    text = PAGES[name](site)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = (
        attributes["content"]
        for tag, attributes in Page(text).elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert ("script-src" in policy) == site.is_live
    assert not re.search(r"url\(|@import", style)


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique_references_resolve_and_headings_lead_through_the_page(name: str) -> None:
    page = Page(PAGES[name](LIVE))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        for attribute in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(attribute, "").split()) <= set(ids), (tag, attributes)
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if tag in {"h1", "h2", "h3"}]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_poison_is_shown_as_text_wherever_it_comes_from() -> None:
    text = detail(troubled())
    page = Page(text)
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "⟨U+202E⟩" in page.text
    assert not re.search("[\x00\x1b\u202e]", text)
    named = replace(troubled(), name="<img src=x onerror=alert(1)>")
    text = overview(lake_view(named))
    assert "<img" not in text
    assert 'href="pipelines/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E.html"' in text


def test_two_hundred_pipelines_stand_in_one_table_the_worst_first() -> None:
    view = many(200)
    page = Page(overview(view))
    rows = [a["class"].split()[1] for tag, a in page.elements if a.get("class", "").startswith("row ")]
    assert len(rows) == 201
    order = ["failed", "warned", "open", "passed"]
    assert [order.index(row) for row in rows] == sorted(order.index(row) for row in rows)
    assert rows[0] == "failed"
    links = {a["href"] for _, a in page.elements if a.get("id", "").startswith("to-")}
    assert links == {f"pipelines/{page_name(each.name)}" for each in view.pipelines}
    assert f"{rows.count('failed')} problems" in page.text
    assert f"{rows.count('passed')} fine" in page.text


def test_a_pipeline_of_which_all_is_well_says_so_and_shows_its_figures() -> None:
    text = Page(detail(pipeline())).text
    assert "flights is fine" in text
    assert "not behind" in text
    assert "The last 60 micro-batches with records" in text
    assert "No unresolved record is in quarantine." in text
    assert "67 % of the bytes" in re.sub(r"\s+", " ", text)
    assert "18, the newest 2026-03-11" in text
    assert "free No run holds a lease." in text


def test_each_cluster_has_the_figures_of_its_racks() -> None:
    fine = pipeline()
    assert fine.cluster.value
    (first,) = fine.cluster.value.racks
    eu = RackFigures("placement", {"off": 0.3, "client": 0.5, "placement": 0.9}, cluster="eu")
    lost = RackFigures("off", cluster="lost", failure="it does not answer")
    both = replace(fine.cluster.value, racks=(first, eu, lost))
    text = re.sub(r"\s+", " ", Page(detail(replace(fine, cluster=Reading(both, ago(1))))).text)
    assert "First cluster" in text
    assert "67 % of the bytes" in text
    assert "Cluster eu With kafka.clusters.eu.rack.mode: placement , 90 % of the bytes" in text
    assert "Cluster lost Racks are not known: it does not answer" in text


def test_figures_that_could_not_be_renewed_are_called_old_where_they_stand() -> None:
    fresh = pipeline()
    assert "old" not in Page(overview(lake_view(fresh))).text.lower().split()
    failed = replace(fresh, cluster=fresh.cluster.failed("the cluster does not answer"))
    slow = replace(fresh, cluster=replace(fresh.cluster, asked_at=ago(90)))
    aged = replace(fresh, cluster=replace(fresh.cluster, at=ago(301)))
    for one, words in (
        (failed, "newer ones cannot be read: the cluster does not answer"),
        (slow, "asked 90 s ago, no answer yet"),
        (aged, "as of 2026-03-14 09:21:52 UTC, 5 min ago"),
    ):
        text = Page(detail(one)).text
        assert "Old figures:" in text
        assert words in text
        assert "fine" not in Page(overview(lake_view(one))).text.split()
        # In the cells of its row as well, for whoever reads nothing else.
        assert Page(overview(lake_view(one))).text.split().count("old") == 3


def test_each_page_says_how_old_its_oldest_figures_are() -> None:
    one = replace(pipeline("other"), lake=replace(pipeline().lake, at=ago(200)))
    text = Page(overview(lake_view(pipeline(), one))).text
    assert "the oldest figures are of 2026-03-14 09:23:33 UTC, 3 min ago" in " ".join(text.split())
    assert "oldest" not in Page(overview(lake_view(PipelineView("x")))).text


def test_a_collection_that_failed_or_hangs_is_told_above_all_figures() -> None:
    failed = Page(overview(replace(SMALL, failure="s3a://lake: no answer <b>"))).text
    assert (
        "The last collection failed, so what the tables under ops/ say is old: s3a://lake: no answer <b>"
        in failed
    )
    hangs = replace(SMALL, at=NOW - timedelta(seconds=301))
    assert "These figures are old: nothing was collected for 5 min." in Page(overview(hangs)).text
    assert "figures are old" not in Page(overview(SMALL)).text.replace("figures on this page are old", "")


def test_what_was_never_read_is_not_called_fine() -> None:
    page = Page(overview(lake_view(PipelineView("x"))))
    assert "1 not known" in page.text
    assert "fine" not in page.text.split()
    text = Page(detail(PipelineView("x"))).text
    assert text.count("not read yet") > 3
    assert "How far the stages are behind is not known." in text
    assert "What is in quarantine is not known." in text


def test_a_page_renews_itself_by_script_or_without_and_can_be_told_not_to() -> None:
    def meta(text: str) -> list[str]:
        return re.findall(r'<noscript><meta http-equiv="refresh" content="(\d+)"></noscript>', text)

    assert meta(overview(SMALL)) == ["30"]
    assert 'href="?refresh=off"' in overview(SMALL)
    assert meta(overview(SMALL, STILL)) == []
    assert "Not refreshed" in overview(SMALL, STILL)
    assert meta(overview(SMALL, FILES)) == []
    assert "This is a file: it does not change" in overview(SMALL, FILES)
    assert "fetch(location.href" in script()


def test_days_lead_to_their_reports_and_name_what_failed() -> None:
    one = troubled()
    page = Page(detail(one, FILES))
    reports = [a["href"] for tag, a in page.elements if a.get("id", "").startswith("day-")]
    assert reports == [f"../../reports/orders-{TODAY - timedelta(days=back)}.html" for back in (1, 4)]
    assert "Failed: no_duplicate_key" in page.text
    assert "Readers keep the certified rows." in page.text
    assert "the audit of 2026-03-12 failed" in page.text
    assert "3 days before those shown failed their audit" in page.text


def test_values_are_not_shown_where_the_contract_has_personal_data() -> None:
    reason = QuarantineReason(
        reason="wrong_type",
        records=1,
        examples=(QuarantineExample(topic="t", partition=0, offset=7, column="name", found="sha256:ab"),),
    )
    lake = LakeFigures((), (reason,), "t 1", withholds=True)
    text = Page(detail(replace(pipeline(), lake=Reading(lake, ago(5))))).text
    assert "personal data, so values of records are not shown" in text
    assert "not shown" in text
    assert "null" not in text.split("Quarantine")[1].split("Nightly")[0]


def test_a_day_that_is_over_without_a_verdict_is_shown_and_an_old_one_is_a_warning() -> None:
    one = pipeline()
    assert one.ledger.value
    kept = tuple(
        v for v in one.ledger.value.verdicts if v.day not in (TODAY - timedelta(1), TODAY - timedelta(5))
    )
    lacking = replace(one, ledger=Reading(replace(one.ledger.value, verdicts=kept), ago(9)))
    assert [day.day for day in lacking.days if day.status == "not_certified"] == [
        TODAY - timedelta(days=1),
        TODAY - timedelta(days=5),
    ]
    # The run of yesterday may still be to come.
    assert "1 day without a verdict, the last 2026-03-09" in Page(detail(lacking)).text


def test_a_chart_has_each_phase_of_each_micro_batch() -> None:
    text = detail(pipeline())
    charts = re.findall(r"<svg class=\"batches\".*?</svg>", text, re.DOTALL)
    assert len(charts) == 3
    # Of what its tasks do, only the speed stream knows more than one phase.
    assert [chart.count("<rect") for chart in charts] == [5 * 60, 9 * 60, 5 * 60]
    assert html.unescape(text).count("Time of ingest by phase") == 1


@pytest.mark.parametrize("site", [LIVE, FILES], ids=["live", "files"])
def test_the_page_over_two_hundred_pipelines_is_not_large(site: Site) -> None:
    assert len(overview(many(200), site).encode()) <= 250_000


def test_each_stage_has_a_bar_of_its_time_by_phase_on_its_page_and_the_first_page_has_the_longest() -> None:
    figures = pipeline().lake.value
    assert figures
    text = overview(lake_view(pipeline()))
    assert '<svg class="phase-bar"' not in text
    longest = re.findall(r'<small class="longest">([^<]+)</small>', text)
    page = detail(pipeline(), FILES)
    bars = re.findall(r"<svg class=\"phase-bar\".*?</svg>", page, re.DOTALL)
    assert len(bars) == len(figures.streams) == len(longest) == 3
    for bar, facts, words in zip(bars, figures.streams, longest, strict=True):
        found = phase_bar(facts.busy, facts.stage)
        assert found
        assert 'aria-hidden="true"' in bar
        assert words == f"{found.sums[0].phase} {found.sums[0].words}"
        assert {f"ph-{each.phase}" for each in found.sums} == {*re.findall(r'rect class="([\w-]+)"', bar)}
        widths = [float(width) for width in re.findall(r' width="([\d.]+)"', bar)]
        assert sum(widths) == pytest.approx(100, abs=0.5)
    assert longest[1] == "decode 27 %"
    # Whoever does not see the bar has a table with a row for each phase.
    rows = re.findall(r'<th scope="row"><i class="dot ph-\w+"></i>(\w+)</th>', page)
    assert rows.count("write") == 3
    assert rows.count("decode") == rows.count("commit") == rows.count("quarantine") == 1


def test_where_a_row_is_a_card_the_style_names_its_cells_as_the_heads_do() -> None:
    text = overview(SMALL)
    heads = re.findall(r'<th scope="col" role="columnheader"(?: class="num")?>([^<]+)</th>', text)[:8]
    assert heads[:2] == ["Pipeline", "State"]
    named = re.findall(r'\.overview td:nth-child\((\d)\)::before \{ content: "([^"]+): "; \}', text)
    assert [(int(number), name) for number, name in named] == list(enumerate(heads, 1))[2:]
    (row,) = re.findall(r'<tr role="row" class="row failed".*?</tr>', text, re.DOTALL)
    assert len(re.findall("<t[hd] ", row)) == len(heads)


def test_days_of_one_verdict_are_drawn_together_and_those_that_failed_each_with_its_sign() -> None:
    one = replace(pipeline(), ledger=Reading(ledger("flights", failed=5), ago(9)))
    drawn = re.findall(r'<i class="d ([\w ]+)" title="([^"]+)">(.?)</i>', overview(lake_view(one)))
    assert drawn == [
        ("certified n9", "2026-02-28 to 2026-03-08: certified", ""),
        ("failed", "2026-03-09: failed", "\u00d7"),
        ("certified n4", "2026-03-10 to 2026-03-13: certified", ""),
    ]
    assert "13 of 14 days certified" in Page(overview(lake_view(one))).text
    # As wide as the days are one by one: eleven pixels each, and two between them.
    assert ".n9 { width: 115px; }" in overview(SMALL)


def test_a_stage_that_read_nothing_yet_has_no_bar() -> None:
    idle = pipeline()
    assert idle.lake.value
    streams = tuple(replace(each, stream=None) for each in idle.lake.value.streams)
    one = replace(idle, lake=Reading(replace(idle.lake.value, streams=streams), ago(5)))
    assert '<svg class="phase-bar"' not in detail(one)
    assert '<small class="longest"' not in overview(lake_view(one)) + overview(lake_view(PipelineView("x")))


def test_whoever_holds_a_lease_is_told_with_command_process_and_time(site: Site) -> None:
    fine = pipeline()
    assert fine.ledger.value
    night = at_work(fine.ledger.value, "nightly_batch")
    assert night.lease
    filling = replace(night.lease, run_id="run-9", job="backfill", since=ago(7_200), host="worker-5")
    died = replace(night.lease, run_id="run-7", job=None, is_gone=True)
    both = replace(fine, ledger=Reading(replace(night, backfill_lease=filling), ago(9)))
    gone = replace(fine, name="orders", ledger=Reading(replace(night, lease=died), ago(9)))
    view = lake_view(both, gone)

    page = Page(overview(view, site))
    told = " ".join(page.text.split()).partition("Leases")[2]
    # Those that died come first, then those that are longest at work.
    found = re.findall(
        r"(\w+) (backfill|nightly_batch|a run that did not tell its command) (died|running)", told
    )
    assert found == [
        ("orders", "a run that did not tell its command", "died"),
        ("flights", "backfill", "running"),
        ("flights", "nightly_batch", "running"),
    ]
    assert "its backfills run-9 900 on worker-5 2026-03-14 07:26:53 UTC" in told
    assert "the pipeline run-0 900 on worker-2 2026-03-14 09:25:53 UTC" in told

    text = " ".join(Page(detail(both, site)).text.split()).partition("Running jobs and leases")[2]
    assert "nightly_batch running the pipeline run-0 900 on worker-2" in text
    assert "backfill running its backfills run-9 900 on worker-5" in text
    assert "free No run holds a lease" not in text
    for job in ("ingest_stream", "speed_stream", "publish_stream"):
        assert f"{job} running {NOTHING} {NOTHING} 4711 on worker-3" in text
    text = " ".join(Page(detail(gone, site)).text.split())
    assert "warning run run-7 died while it held the lease of the pipeline" in text
    assert "A run that died has not given its lease back." in text


def test_a_lease_that_was_given_back_or_is_over_is_held_by_nobody() -> None:
    fine = pipeline()
    assert fine.ledger.value
    held = at_work(fine.ledger.value, "maintain")
    assert held.lease
    over = replace(held, lease=replace(held.lease, until=NOW, is_gone=True))
    one = replace(fine, ledger=Reading(over, ago(9)))
    assert "No run holds a lease, as far as it is known." in Page(overview(lake_view(one))).text
    text = " ".join(Page(detail(one)).text.split())
    assert "The last to hold the lease of the pipeline: maintain, run run-0 , process 900 on worker-2" in text
    assert "died" not in text
    unread = " ".join(Page(detail(PipelineView("x"))).text.split())
    assert "Who holds a lease is not known." in unread


def test_only_streams_that_live_are_at_work() -> None:
    one = troubled()
    assert one.lake.value
    ingest, _, publish = one.lake.value.streams
    assert [stream_state(each, NOW).words for each in one.lake.value.streams] == [
        "failed",
        "process is gone",
        "never ran",
    ]
    assert streams_at_work(one, NOW) == []
    eu = replace(ingest, stream=stream("ingest", random.Random(1), seen_at=ago(900)), cluster="eu")  # noqa: S311
    ended = replace(ingest, stream=stream("ingest", random.Random(1), ended_at=ago(9)))  # noqa: S311
    silent = replace(one, lake=Reading(replace(one.lake.value, streams=(ended, eu, publish)), ago(2)))
    assert streams_at_work(silent, NOW) == [eu]
    assert "ingest_stream --cluster eu silent" in " ".join(Page(detail(silent)).text.split())


def test_the_stages_of_one_that_publishes_nothing_are_two() -> None:
    one = replace(
        pipeline(),
        publishes_to=None,
        cluster=Reading(ClusterFigures((stage("ingest"), stage("speed"))), ago(3)),
    )
    assert "This pipeline publishes nothing." in Page(detail(one)).text


@pytest.mark.parametrize("site", [STILL, FILES], ids=["still", "files"])
def test_a_page_that_stays_as_it_is_tells_moments_and_no_ages(site: Site) -> None:
    one = troubled()
    fine = pipeline("slow")
    waiting, aged = replace(fine.cluster, asked_at=ago(90)), replace(fine.ledger, at=ago(9_000))
    slow = replace(fine, cluster=waiting, ledger=aged)
    for text in (overview(lake_view(slow, one), site), detail(slow, site), detail(one, site)):
        assert " ago" not in Page(text).text
    assert "no answer since 2026-03-14 09:25:23 UTC" in Page(detail(slow, site)).text


def test_what_could_not_be_read_at_all_is_told_and_no_more() -> None:
    gone, down = Reading[Any](failure="gone"), Reading[Any](failure="down")
    broken = PipelineView("broken", ledger=gone, lake=gone, cluster=down)
    refused = PipelineView("refused", "unknown key")
    assert list(reading_failures(lake_view(pipeline(), broken, refused))) == []
    assert list(reading_failures(replace(SMALL, failure="s3a://lake: gone"))) == ["s3a://lake: gone"]
    assert list(reading_failures(lake_view(broken, refused, PipelineView("slow")))) == [
        "broken: gone",
        "broken: down",
        "refused: unknown key",
        "slow: no answer in time",
    ]
