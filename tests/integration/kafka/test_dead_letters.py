"""Broken records are copied to the topic for dead letters, whole, with the reason."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake, Record
from tests.support.nights import on, stream
from tests.support.readers import messages_of


def test_dead_letters_carry_the_record_and_its_reason(
    make_lake: Callable[..., Lake], small: DataContract, broker: str, topic: MakeTopic
) -> None:
    name = topic(**{"max.message.bytes": str(5 * 1024 * 1024)})
    settings = (f"kafka.bootstrap_servers={broker}", f"quarantine.dead_letter_topic={name}")
    lake = make_lake(*settings, contract=small)
    # By default a producer refuses the large one, whatever the topic takes.
    large = b"~" * (3 * 1024 * 1024 // 2)
    # A header of the record's own that would pass for one of ours.
    poison = Record(b"poison", headers=(("attempt", b"1"), ("oncelake.column", b"distance")))
    lake.ingest([on(1, 1), poison, on(1, 2, distance=-5.0), large])
    stream(lake)
    letters = sorted(messages_of(broker, name), key=lambda letter: letter.value or b"")
    headers = [letter.headers for letter in letters]
    assert [letter.key for letter in letters] == [b"k", b"k", b"k"]
    assert letters[0].value == b"poison"
    assert letters[2].value == large
    assert headers[0]["attempt"] == b"1"
    assert headers[0]["oncelake.reason"] == b"malformed_json"
    assert "oncelake.column" not in headers[0]
    assert [headers[1][f"oncelake.{part}"] for part in ("reason", "column", "found", "topic", "offset")] == [
        b"rule_failed",
        b"distance",
        b"-5.0",
        b"flights",
        b"2",
    ]


def test_a_topic_for_dead_letters_that_is_not_there_is_refused_and_not_made(
    make_lake: Callable[..., Lake], small: DataContract, broker: str, admin: AdminClient
) -> None:
    settings = (f"kafka.bootstrap_servers={broker}", "quarantine.dead_letter_topic=nobody-made-it")
    lake = make_lake(*settings, contract=small)
    with pytest.raises(
        ConfigError, match=r"quarantine.dead_letter_topic: there is no topic 'nobody-made-it'"
    ):
        stream(lake)
    assert "nobody-made-it" not in admin.list_topics(timeout=10).topics
