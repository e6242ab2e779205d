"""Many late records are told once, and once when they are few again."""

import logging

import pytest

from pipelines.spark.late_records import LateShare

MICRO_BATCHES = ((60, 0), (60, 30), (100, 9), (100, 6), (100, 11), (100, 5), (99, 99))


def test_a_share_about_the_limit_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    share = LateShare(limit=0.1, enough=100)
    for records, late in MICRO_BATCHES:
        share.add(records, late)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.INFO], "told above 0.1, and at 0.05, not between"
    assert "30 of 120 records came behind the watermark" in caplog.text
    (worst,) = share.warnings
    assert worst.startswith("late records: 30 of 120 records")


def test_few_records_are_no_share() -> None:
    share = LateShare(limit=0.1, enough=100)
    share.add(99, 99)
    assert share.warnings == []
