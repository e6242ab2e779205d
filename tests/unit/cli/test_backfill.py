"""What `oncelake backfill` is asked for, and how it shows how far it is."""

import json
import logging
from datetime import UTC, datetime, timedelta, timezone

import click
import pytest

from pipelines.cli.backfill import parse_span, summary_of, told
from pipelines.config.loader import load_config
from pipelines.errors import ConfigError
from pipelines.kafka.backfill_plan import BackfillSpan, PartitionPlan
from pipelines.kafka.backfill_run import Backfill, BackfillProgress
from pipelines.kafka.missing_offsets import MissingOffsets, MissingRange
from pipelines.steps.backfill import source_of

HALF = BackfillProgress(done=500, total=1_000, records=498, elapsed_s=12.0)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert parse_span("2013-01-01", "2013-01-02T06:00:00-05:00", ()) == BackfillSpan(
        datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, 6, tzinfo=timezone(timedelta(hours=-5)))
    )
    assert parse_span(None, "2013-01-01T00:00:00Z", ()).until == datetime(2013, 1, 1, tzinfo=UTC)


def test_offsets_are_written_as_reconcile_prints_them() -> None:
    asked = parse_span(None, None, ("0:100..199", "2:7"))
    assert asked == BackfillSpan(offsets={0: range(100, 200), 2: range(7, 8)})


@pytest.mark.parametrize(
    ("since", "until", "offsets", "said"),
    [
        (None, None, (), "expected either times .* or --offsets"),
        ("2013-01-01", None, ("0:1..2",), "either times"),
        ("2013-01-02", "2013-01-01", (), "--to: expected a time after --from"),
        ("yesterday", None, (), "--from: expected a time such as"),
        (None, None, ("0:9..3",), r"--offsets: expected .* such as 0:100\.\.199, got '0:9\.\.3'"),
        (None, None, ("flights-0:1..2",), "--offsets: expected"),
        (None, None, ("0:1..2", "0:5..6"), "one range for each partition"),
    ],
)
def test_contradictory_backfill_options_are_refused(
    since: str | None, until: str | None, offsets: tuple[str, ...], said: str
) -> None:
    with pytest.raises(click.UsageError, match=said):
        parse_span(since, until, offsets)


def test_progress_is_an_object_or_a_line_with_an_estimate(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    begun = BackfillProgress(done=0, total=1_000, records=0, elapsed_s=0.1)
    with told("json") as tell:
        tell(begun)
        tell(HALF)
    first, second = (json.loads(line)["progress"] for line in capsys.readouterr().err.splitlines())
    assert first == {"offsets": 0, "of": 1_000, "records": 0, "elapsed_s": 0.1, "left_s": None}
    assert second == {"offsets": 500, "of": 1_000, "records": 498, "elapsed_s": 12.0, "left_s": 12.0}
    with caplog.at_level(logging.INFO, "pipelines"), told("text") as tell:
        tell(HALF)
    assert caplog.messages == ["500 of 1,000 offsets read, 498 records appended; about 12 s left"]


def test_the_summary_names_what_is_read_what_is_gone_and_what_is_left() -> None:
    lack = MissingOffsets(
        12, (MissingRange(range(100, 110), is_partial=False), MissingRange(range(200, 260), is_partial=True))
    )
    gone = MissingOffsets(100, (MissingRange(range(100), is_partial=False),))
    partitions = {
        0: PartitionPlan(range(300), lack, gone, left_to_ingest=40),
        1: PartitionPlan(range(50), MissingOffsets(), removed=20),
    }
    done = Backfill("flights", partitions, HALF, 2, {0: [range(100)]})
    summary = summary_of(done, dry_run=True)
    assert summary["counts"] == {
        "missing": 12,
        "offsets_to_read": 1_000,
        "records": 498,
        "commits": 2,
        "left_to_ingest": 40,
        "removed_by_retention": 20,
    }
    assert summary["partitions"][0]["gone"] == [[0, 100]]
    assert summary["lines"] == [
        "to read  flights-0 @ 100..109",
        "to read  flights-0 @ 200..259, of which bronze has some",
        "MISSING  flights-0 @ 0..99: Kafka no longer has them",
        "known    flights-0: ingest_stream reads 40 offsets of these itself",
        (
            "known    flights-1: 20 offsets were removed by maintain.bronze_retention, or by Kafka before"
            " ingest began"
        ),
        "known    flights-1: bronze lacks nothing that was asked for",
    ]


@pytest.mark.parametrize(
    ("cluster", "said"),
    [("us", "--cluster us: no such cluster"), ("old", r"kafka\.clusters\.old\.retired: found true")],
)
def test_a_cluster_that_is_not_read_is_refused_before_spark_starts(cluster: str, said: str) -> None:
    settings = ("kafka.clusters.old.bootstrap_servers=old:1", "kafka.clusters.old.retired=true")
    config = load_config("flights", environ={}, settings=settings)
    assert source_of(config, None).cluster is None
    with pytest.raises(ConfigError, match=said):
        source_of(config, cluster)
