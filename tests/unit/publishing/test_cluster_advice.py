"""Warnings about a cluster that is misconfigured for publishing."""

from dataclasses import replace
from datetime import timedelta

import pytest

from pipelines.errors import ConfigError
from pipelines.publishing.cluster_advice import ClusterFacts, advice, refuse_too_long
from pipelines.publishing.transactional_sink import TransactionalSink

SINK = TransactionalSink(
    "s", "events", 2, {"bootstrap.servers": "x"}, transaction_timeout=timedelta(minutes=20)
)
SOUND = ClusterFacts(
    brokers=3,
    limits={"transaction.max.timeout.ms": timedelta(hours=1), "offsets.retention.minutes": timedelta(days=7)},
    settings={
        "cleanup.policy": "compact,delete",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    },
    replicas={"events": 3, "__consumer_offsets": 3, "__transaction_state": 3},
)


def test_a_sound_cluster_and_one_that_may_not_be_asked_get_no_warning() -> None:
    assert advice(SINK, "tombstone", SOUND) == []
    assert advice(SINK, "tombstone", ClusterFacts(3, {}, {}, {})) == []


def test_one_broker_has_no_choice_of_replicas() -> None:
    alone = replace(SOUND, brokers=1, settings={"min.insync.replicas": "1"}, replicas={"events": 1})
    assert advice(SINK, "tombstone", alone) == []


def test_a_topic_that_is_not_compacted_needs_no_warning_where_no_tombstones_are_sent() -> None:
    deletes = replace(SOUND, settings={**SOUND.settings, "cleanup.policy": "delete"})
    assert len(advice(SINK, "tombstone", deletes)) == 1
    assert advice(SINK, "record", deletes) == []


@pytest.mark.parametrize(
    ("found", "warning"),
    [
        (
            replace(SOUND, limits={"offsets.retention.minutes": timedelta(hours=1)}),
            "offsets.retention.minutes: found 1 hour:",
        ),
        (
            replace(SOUND, settings={"cleanup.policy": "delete"}),
            "topic events: found cleanup.policy = delete: ",
        ),
        (
            replace(SOUND, settings={"min.insync.replicas": "4"}),
            "topic events: found min.insync.replicas = 4, but a partition has 3 replica(s): all of them",
        ),
        (
            replace(SOUND, settings={"min.insync.replicas": "1"}),
            "topic events: found min.insync.replicas = 1: rows that only one broker has",
        ),
        (
            replace(SOUND, settings={"unclean.leader.election.enable": "true"}),
            "topic events: found unclean.leader.election.enable = true: ",
        ),
        (replace(SOUND, settings={}, replicas={"events": 1}), "topic events: found 1 replica: "),
        (
            replace(SOUND, replicas={"__consumer_offsets": 1}),
            "topic __consumer_offsets: found 1 replica: if its broker is lost, the progress",
        ),
    ],
)
def test_unsafe_output_topic_settings_are_warned_of(found: ClusterFacts, warning: str) -> None:
    (told,) = advice(SINK, "tombstone", found)
    assert told.startswith(warning)


def test_transactions_that_the_cluster_would_refuse_are_refused_first() -> None:
    refuse_too_long(SINK, SOUND)
    refuse_too_long(SINK, ClusterFacts(3, {}, {}, {}))
    short = replace(SOUND, limits={"transaction.max.timeout.ms": timedelta(minutes=15)})
    with pytest.raises(ConfigError, match=r"publish\.transaction_timeout: expected 15 minutes at most, .*20"):
        refuse_too_long(SINK, short)
