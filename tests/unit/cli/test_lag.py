"""What `oncelake lag` prints."""

from datetime import UTC, datetime
from typing import get_args

from pipelines.cli.lag import alerts_told, summary_of
from pipelines.lag.alerts import AlertState
from pipelines.lag.diagnosis import Advice, Diagnosis, Symptom, SymptomKind
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.lag.texts import ADVICE, SYMPTOM_TEXTS
from pipelines.steps.lag import StageLag

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = "oncelake ingest_stream --pipeline flights"


def stage(partitions: tuple[PartitionLag, ...], diagnosis: Diagnosis) -> StageLag:
    return StageLag(StageFacts("ingest", AT, partitions), diagnosis, START)


def test_each_partition_has_a_line_and_the_cause_stands_below() -> None:
    partitions = (
        PartitionLag(0, 0, None, 0.0, 0.0),
        PartitionLag(1, 5_000, 90.0, 10.0, 60.0, 3_600.0),
        PartitionLag(2, 7, 4.0, 2.5, 1.0, 86_400.0),
    )
    found = (
        Symptom("run_ended", {"ago_s": 3_600.0}),
        Symptom("run_failed", {"failure": "\x1b[31m disk {0}"}),
    )
    diagnosis = Diagnosis("stopped", found, 0.8, "fix_and_start")
    told = summary_of([stage(partitions, diagnosis)])
    assert [line.split() for line in told["lines"] if "─" not in line] == [
        ["stage", "partition", "records", "behind", "in/s", "out/s", "caught", "up", "deleted", "in"],
        ["ingest", "all", "5,007", "90", "s", "12", "61", "103", "s", "60", "min"],
        ["0", "0", "0", "0"],
        ["1", "5,000", "90", "s", "10", "60", "100", "s", "60", "min"],
        ["2", "7", "4.0", "s", "2.5", "1.0", "never", "24.0", "h"],
        [
            "ingest:",
            "stopped",
            "(80%",
            "sure):",
            "the",
            "last",
            "run",
            "ended",
            "60",
            "min",
            "ago;",
            "it",
            "failed:",
            "\\x1b[31m",
            "disk",
            "{0}",
        ],
        f"fix that, then start it: {START}".split(),
    ]
    (document,) = told["stages"]
    assert document["records"] == 5_007
    assert document["diagnosis"] == {
        "cause": "stopped",
        "evidence": ["the last run ended 60 min ago", "it failed: \x1b[31m disk {0}"],
        "confidence": 0.8,
        "advice": f"fix that, then start it: {START}",
    }
    assert [each["catch_up_s"] for each in document["partitions"]] == [0.0, 100.0, None]


def test_alerts_that_are_raised_are_told_below_the_lag() -> None:
    alerts = {
        "ingest": AlertState(True, 0, AT),
        "speed": AlertState(False, 2, AT),
        "evaluation": AlertState(),
    }
    told = alerts_told({"stages": [], "lines": ["the lag"]}, alerts)
    assert told == {
        "stages": [],
        "alerts": {"ingest": "2026-01-01T12:00:00+00:00"},
        "lines": ["the lag", "alert: ingest, raised at 2026-01-01T12:00:00+00:00"],
    }


def test_of_many_partitions_those_are_shown_that_are_most_behind() -> None:
    partitions = tuple(PartitionLag(number, number, 1.0) for number in range(1_000))
    told = summary_of([stage(partitions, Diagnosis("none", (Symptom("all_processed", {}),), 1.0))])
    shown = [line.split()[0] for line in told["lines"] if line.split()[0].isdigit()]
    assert shown == [*(str(number) for number in range(988, 1_000)), "988"]
    assert "988 more, less behind" in "\n".join(told["lines"])
    assert len(told["stages"][0]["partitions"]) == 1_000


def test_a_stage_that_does_not_know_partitions_has_one_line() -> None:
    told = summary_of(
        [
            stage(
                (PartitionLag(None, 3, 2.0),), Diagnosis("stopped", (Symptom("never_ran", {}),), 1.0, "start")
            )
        ]
    )
    assert len([line for line in told["lines"] if "─" not in line]) == 4


def test_each_symptom_and_each_advice_has_a_text() -> None:
    assert set(SYMPTOM_TEXTS) == set(get_args(SymptomKind))
    assert set(ADVICE) == set(get_args(Advice))


def test_what_is_unknown_is_said_and_of_many_partitions_the_first_are_named() -> None:
    found = (
        Symptom("records_left", {"records": 1_000, "behind_s": None}),
        Symptom("no_leader", {"partitions": tuple(range(12))}),
    )
    told = summary_of([stage((PartitionLag(0, 1_000),), Diagnosis("unknown", found, 0.0))])
    assert told["stages"][0]["diagnosis"]["evidence"] == [
        "1,000 records are not processed; the age of the oldest: unknown",
        "partitions without a leader: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and more",
    ]
    assert told["stages"][0]["diagnosis"]["advice"] == ""
