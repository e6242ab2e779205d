"""What `oncelake lag` prints."""

from datetime import UTC, datetime

from pipelines.cli.lag import summary_of
from pipelines.lag.causes import Diagnosis
from pipelines.lag.evidence import Evidence, PartitionLag
from pipelines.steps.lag import StageLag

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stage(partitions: tuple[PartitionLag, ...], diagnosis: Diagnosis) -> StageLag:
    return StageLag(Evidence("ingest", AT, partitions), diagnosis)


def test_each_partition_has_a_line_and_the_cause_stands_below() -> None:
    partitions = (
        PartitionLag(0, 0, None, 0.0, 0.0),
        PartitionLag(1, 5_000, 90.0, 10.0, 60.0, 3_600.0),
        PartitionLag(2, 7, 4.0, 2.5, 1.0, 86_400.0),
    )
    diagnosis = Diagnosis("small_files", ("\x1b[31m many files",), 0.8, "compact")
    told = summary_of([stage(partitions, diagnosis)])
    assert [line.split() for line in told["lines"] if "─" not in line] == [
        ["stage", "partition", "records", "behind", "in/s", "out/s", "caught", "up", "deleted", "in"],
        ["ingest", "all", "5,007", "90", "s", "12", "61", "103", "s", "60", "min"],
        ["0", "0", "0", "0"],
        ["1", "5,000", "90", "s", "10", "60", "100", "s", "60", "min"],
        ["2", "7", "4.0", "s", "2.5", "1.0", "never", "24.0", "h"],
        ["ingest:", "small", "files", "(80%", "sure):", "\\x1b[31m", "many", "files"],
        ["compact"],
    ]
    (document,) = told["stages"]
    assert document["records"] == 5_007
    assert document["diagnosis"]["cause"] == "small_files"
    assert [each["catch_up_s"] for each in document["partitions"]] == [0.0, 100.0, None]


def test_of_many_partitions_those_are_shown_that_are_most_behind() -> None:
    partitions = tuple(PartitionLag(number, number, 1.0) for number in range(1_000))
    told = summary_of([stage(partitions, Diagnosis("none", ("",), 1.0))])
    shown = [line.split()[0] for line in told["lines"] if line.split()[0].isdigit()]
    assert shown == [*(str(number) for number in range(988, 1_000)), "988"]
    assert "988 more, less behind" in "\n".join(told["lines"])
    assert len(told["stages"][0]["partitions"]) == 1_000


def test_a_stage_that_does_not_know_partitions_has_one_line() -> None:
    told = summary_of(
        [stage((PartitionLag(None, 3, 2.0),), Diagnosis("stopped", ("it ended",), 1.0, "start"))]
    )
    assert len([line for line in told["lines"] if "─" not in line]) == 4
