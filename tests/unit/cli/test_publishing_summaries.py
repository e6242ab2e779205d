"""What commands about publishing tell, as JSON and as lines."""

import json
from datetime import date, timedelta

import pytest
from click.testing import CliRunner

from pipelines.cli import publish
from pipelines.config.loader import load_config
from pipelines.publishing.cluster_advice import ClusterFacts
from pipelines.publishing.settings import sink_of
from pipelines.publishing.unsent_days import UnsentDays
from pipelines.spark.checkpoints import QueryFiles
from pipelines.steps.publish import PublishedStream, PublishingDiagnosis, PublishingStatus
from pipelines.steps.publish_days import PublishedDays
from pipelines.steps.publish_reset import PublishingReset

PUBLISHING = load_config("flights", environ={}, settings=["publish.topic=out", "publish.slots=2"])
ONE, TWO = date(2013, 1, 1), date(2013, 1, 2)


def test_the_status_of_publishing_tells_both_sides_and_what_is_left() -> None:
    sink = sink_of(PUBLISHING)
    files = QueryFiles("lake/publish", "q", 3, 3)
    told = publish.summary_of_status(
        PUBLISHING, PublishingStatus(sink, files, {0: 3, 1: 4}, [ONE, TWO], UnsentDays(never=(ONE,)), None)
    )
    assert told["checkpoint"] == {"query": "q", "next_batch": 3, "in_flight": 3}
    assert (told["waiting_days"], told["unsent_days"]) == (["2013-01-01", "2013-01-02"], ["2013-01-01"])
    assert (told["slots"], told["agrees"], told["problem"]) == ({"0": 3, "1": 4}, True, None)
    *lines, unsent, last = told["lines"]
    assert lines == [
        f"{sink.name} -> topic out, 2 slots",
        "checkpoint lake/publish: query q, next micro-batch 3, micro-batch 3 is begun",
        "slot 0: next micro-batch 3",
        "slot 1: next micro-batch 4",
        "certified, and changes not sent yet: 2 days from 2013-01-01 to 2013-01-02",
    ]
    assert unsent.endswith("--from 2013-01-01 --to 2013-01-01")
    assert last == "checkpoint and cluster agree"
    new = PublishingStatus(
        sink, QueryFiles("lake/publish", None, 0, None), {}, [], UnsentDays(), "it does not fit"
    )
    told = publish.summary_of_status(PUBLISHING, new)
    assert (told["agrees"], told["problem"]) == (False, "it does not fit")
    assert told["lines"][1:] == [
        "checkpoint lake/publish: does not exist yet",
        "the cluster has no progress of this sink",
        "problem: it does not fit",
    ]


def test_what_was_published_is_counted_and_what_nobody_has_sent_is_told() -> None:
    done = PublishedDays({ONE: 1200, TWO: None})
    assert publish.summary_of_days(done) == {
        "counts": {"days": 1, "rows": 1200, "days_done_before": 1},
        "lines": ["2013-01-01: 1,200 rows published", "2013-01-02: published before"],
    }
    stream = PublishedStream(rows=3, slots_done_before=1, batches=2, unsent=UnsentDays(partly=(TWO,)))
    told = publish.summary_of_stream(PUBLISHING, stream)
    assert json.dumps(told["counts"]) == '{"rows": 3, "slots_done_before": 1, "batches": 2}'
    assert told["unsent_days"] == ["2013-01-02"]
    assert told["lines"][0].startswith(
        "1 certified day(s) from 2013-01-02 to 2013-01-02 may be on the topic only in part"
    )
    assert publish.summary_of_stream(PUBLISHING, PublishedStream(0, 0, 0, UnsentDays()))["lines"] == []


def test_the_doctor_of_publishing_shows_what_the_cluster_tells_and_what_is_wrong() -> None:
    facts = ClusterFacts(3, {"offsets.retention.minutes": timedelta(days=7)}, {"a": "b"}, {"out": 3})
    told = publish.summary_of_diagnosis(PublishingDiagnosis("out", facts, ["it is odd"]))
    assert told == {
        "limits": {"offsets.retention.minutes": "1 week"},
        "settings": {"a": "b"},
        "replicas": {"out": 3},
        "warnings": ["it is odd"],
        "lines": [
            "the cluster has offsets.retention.minutes = 1 week",
            "topic out has a = b",
            "topic out: 3 replica(s)",
            "warning: it is odd",
        ],
    }
    silent = publish.summary_of_diagnosis(PublishingDiagnosis("out", ClusterFacts(1, {}, {}, {}), []))
    assert silent["lines"] == [
        "the limits of the cluster are unknown (they need DescribeConfigs on it)",
        "no misconfiguration found",
    ]


def test_a_reset_of_publishing_tells_where_it_goes_on() -> None:
    following = {
        "all days that are not certified will be published again": PublishingReset("sink", None),
        "micro-batch 4 is next": PublishingReset("sink", 4),
        "micro-batch 4 continues with part 2 of 3": PublishingReset("sink", 4, 1, 3),
    }
    for said, done in following.items():
        assert publish.summary_of_reset(done) == {"missing": None, "again": None, "lines": [f"sink: {said}"]}
    apart = PublishingReset("sink", 4, missing=range(2, 4), again=range(4, 5))
    told = publish.summary_of_reset(apart)
    assert (told["missing"], told["again"]) == ([2, 3], [4, 4])
    assert told["lines"][1:] == [
        "not sent again, although the topic may lack rows of it: micro-batches 2 to 3",
        "sent again, although consumers have rows of it already: micro-batch 4",
    ]


@pytest.mark.parametrize(
    ("words", "goes_with", "to"),
    [
        ("--in-flight published", "checkpoint", "beginning"),
        ("--accept-missing", "checkpoint", "beginning"),
        ("--accept-partitions", "beginning", "checkpoint"),
    ],
)
def test_an_answer_goes_with_the_reset_that_asks_for_it(words: str, goes_with: str, to: str) -> None:
    option, *value = words.split()
    given = ["reset", "--pipeline", "flights", "--to", to, option, *value]
    refused = CliRunner().invoke(publish.publish, given)
    assert refused.exit_code == 2
    assert f"{option} goes with --to {goes_with}" in refused.output
