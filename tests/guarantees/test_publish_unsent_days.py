"""Certified days that a stream does not send are told, with the command that sends them."""

import re
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from pipelines.cli.publish import summary_of_status, summary_of_stream
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of
from pipelines.publishing.published_days import how_to_send
from pipelines.steps.publish import publish, publishing_status
from pipelines.steps.publish_days import publish_days
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, on, run, stream


@pytest.fixture
def lake(publishing_lake: Callable[..., Lake], small: DataContract, topic: MakeTopic) -> Lake:
    return publishing_lake(small, topic(partitions=2, name="unsent"))


def test_a_stream_that_begins_after_nights_says_what_it_leaves_and_how_it_is_sent(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    run(lake, ONE, TWO)
    with caplog.at_level("WARNING"):
        told = publish(lake.pipeline, once=True)
    assert told.counts["rows"] == 0
    assert told.unsent == [ONE, TWO]
    (line,) = summary_of_stream(lake.config, told)["lines"]
    assert line in caplog.text
    command = re.search(r"oncelake publish --pipeline flights --env (\S+) --from (\S+) --to (\S+)", line)
    assert command
    assert command[1] == lake.config.env
    # Until somebody has sent them, in each summary.
    lake.ingest([on(3, 3)])
    stream(lake)
    again = publish(lake.pipeline, once=True)
    assert again.counts["rows"] == 1
    assert summary_of_stream(lake.config, again)["lines"] == [line]
    assert line in summary_of_status(lake.config, publishing_status(lake.pipeline))["lines"]
    days = days_of(date.fromisoformat(command[2]), date.fromisoformat(command[3]))
    publish_days(lake.pipeline, "run", days, again=False)
    assert publishing_status(lake.pipeline).unsent == []
    assert summary_of_stream(lake.config, publish(lake.pipeline, once=True))["lines"] == []


def test_days_with_gaps_are_sent_by_a_command_for_each_range(lake: Lake) -> None:
    days = [ONE + timedelta(days=n) for n in (0, 1, 3, 5, 7, 8)]
    (line,) = how_to_send(lake.config, days)
    assert line.startswith("6 certified day(s) from 2013-01-01 to 2013-01-09 are not on the topic")
    assert line.count("oncelake publish") == 3
    assert line.endswith("--from 2013-01-06 --to 2013-01-06; and 1 more ranges of days")
    assert how_to_send(lake.config, []) == []
