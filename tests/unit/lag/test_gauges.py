"""The lag of stages as metrics: what is unknown is left out, and the cause is a label."""

from datetime import UTC, datetime

from pipelines.lag.gauges import lag_gauges
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.runtime.prometheus_text import exposition

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def lines(*stages: tuple[StageFacts, str]) -> list[str]:
    text = exposition(lag_gauges(stages), {"pipeline": "p"})  # type: ignore[arg-type]
    return [line.removeprefix("oncelake_lag_") for line in text.splitlines() if not line.startswith("#")]


def test_what_is_known_of_a_stage_is_told() -> None:
    partitions = (PartitionLag(0, 7, 5.0, 2.0, 3.0, 9.0), PartitionLag(1, 1, 4.0, 1.0, 1.0, 8.0))
    facts = StageFacts("ingest", NOW, partitions, cluster="eu")
    labels = 'pipeline="p",stream="ingest",cluster="eu"'
    assert lines((facts, "slow")) == [
        f"records{{{labels}}} 8",
        f"seconds{{{labels}}} 5",
        f"rate_in{{{labels}}} 3",
        f"rate_out{{{labels}}} 4",
        f"catch_up_seconds{{{labels}}} 8",
        f"retention_seconds{{{labels}}} 8",
        f"asked_timestamp_seconds{{{labels}}} {int(NOW.timestamp())}",
        f'cause{{{labels},cause="slow",status="bad"}} 1',
    ]


def test_what_is_unknown_is_left_out() -> None:
    speed = StageFacts("speed", NOW, (PartitionLag(0, 7, None),))
    publish = StageFacts("publish", NOW, ())
    of_eu = StageFacts("ingest", NOW, (), cluster="eu", unreachable="no answer")
    of_nobody = StageFacts("speed", NOW, (), missing_table="bronze")
    for facts in (of_eu, of_nobody):
        assert [line.partition("{")[0] for line in lines((facts, "kafka"))] == [
            "asked_timestamp_seconds",
            "cause",
        ]
    told = lines((speed, "unknown"), (publish, "none"))
    assert [line for line in told if "asked" not in line] == [
        'records{pipeline="p",stream="speed"} 7',
        'records{pipeline="p",stream="publish"} 0',
        'seconds{pipeline="p",stream="publish"} 0',
        'catch_up_seconds{pipeline="p",stream="publish"} 0',
        'cause{pipeline="p",stream="speed",cause="unknown",status="bad"} 1',
        'cause{pipeline="p",stream="publish",cause="none",status="good"} 1',
    ]
