"""The traffic depends on its seed alone, and holds what the oracle has rules for."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from chaos.traffic import DAYS, MAX_FUTURE, Burst, Reading, Refused, Skew, Sort, judge, traffic

SECONDS, RATE = 100.0, 50.0


def test_a_seed_replays_its_traffic() -> None:
    assert list(traffic(1, SECONDS, RATE)) == list(traffic(1, SECONDS, RATE))
    assert list(traffic(1, SECONDS, RATE)) != list(traffic(2, SECONDS, RATE))


def test_each_sort_and_each_reason_comes_up() -> None:
    slow = Skew(0, 20, 60, -MAX_FUTURE - timedelta(hours=6))
    sends = list(traffic(1, SECONDS, RATE, [slow]))
    assert {send.sort for send in sends} == set(Sort)
    reasons = Counter(
        judged.reason for send in sends if isinstance(judged := judge(send.value, send.timestamp_ms), Refused)
    )
    assert set(reasons) == {
        *("null_value", "malformed_json", "not_an_object", "wrong_type", "missing_field", "rule_failed"),
        "event_time_future",
    }


def test_only_what_is_sent_broken_breaks_the_contract_where_clocks_are_right() -> None:
    for send in traffic(1, SECONDS, RATE):
        assert isinstance(judge(send.value, send.timestamp_ms), Refused) == (send.sort is Sort.BROKEN)


def test_of_two_reasons_the_first_of_the_list_counts() -> None:
    reading = Reading("m", 1, datetime(2024, 3, 2, 12, tzinfo=UTC), -1.0)
    sent_ms = round(reading.measured_at.timestamp() * 1000)
    early_ms = round((reading.measured_at - 2 * MAX_FUTURE).timestamp() * 1000)
    assert judge(reading.document(), sent_ms) == Refused("rule_failed")
    assert judge(reading.document(), early_ms) == Refused("event_time_future")


def test_a_record_says_exactly_what_was_measured() -> None:
    sends = [send for send in traffic(1, SECONDS, RATE) if send.sort is not Sort.BROKEN]
    judged = [judge(send.value, send.timestamp_ms) for send in sends]
    for send, reading in zip(sends, judged, strict=True):
        assert isinstance(reading, Reading)
        assert reading.document() == send.value


def test_the_events_span_the_days_that_are_certified_and_one_more() -> None:
    days = {
        reading.measured_at.date()
        for send in traffic(1, SECONDS, RATE)
        if isinstance(reading := judge(send.value, send.timestamp_ms), Reading)
    }
    assert days == {*DAYS, DAYS[-1] + timedelta(days=1)}


def test_a_burst_comes_on_top_of_what_is_sent_all_the_time() -> None:
    sends = list(traffic(1, SECONDS, RATE, burst=Burst(50, 52, 10)))
    moments = [send.at_s for send in sends]
    assert moments == sorted(moments)
    assert [send.number for send in sends] == list(range(len(sends)))
    within = sum(50 <= at_s < 52 for at_s in moments)
    assert (within, len(sends) - within) == (10 * 2 * RATE, (SECONDS - 2) * RATE)
