"""What `oncelake reconcile` says of each difference: the runbook quotes it, and people search for it."""

from pathlib import Path
from typing import get_args

import pytest

from pipelines.cli.reconcile import words_of
from pipelines.lineage.offset_comparison import DifferenceCause, OffsetDifference

HOLES = ((1_200, 1_201), (1_500, 1_500))
WITHIN = "1,234 offsets within 1000..9999 (the first: 1200..1201, 1500)"
GONE = f"{WITHIN}, which Kafka no longer has"
SAID: dict[DifferenceCause, str] = {
    "before": "1000..9999: from before bronze began; Kafka no longer has them",
    "deleted": "1000..9999: deleted from Kafka before they were read",
    "deleted_known": (
        "1000..9999: deleted from Kafka before they were read; listed as lost in audit.known_gaps"
    ),
    "skipped": "1,234 records of 1000..9999: not read: Kafka has them, and bronze does not",
    "skipped_by_setting": "1,234 records of 1000..9999: not read: kafka.starting_offsets: latest",
    "lost": (
        "1,234 records within 1000..9999 (the first: 1200..1201, 1500): Kafka has them, and bronze does not"
    ),
    "lost_though_read": (
        "1,234 records within 1000..9999: Kafka has them, and bronze does not,"
        " though ingest's checkpoint says they were read"
    ),
    "no_record": (
        f"{WITHIN}: Kafka has no record there: transaction markers, or records of aborted transactions"
    ),
    "removed_by_compaction": f"{WITHIN}: removed by compaction",
    "gone_unknown": f"{GONE}: whether they were records is unknown",
    "gone_known": f"{GONE}: listed as lost in audit.known_gaps",
    "gone_compacted": f"{GONE}: the topic is compacted",
    "gone_accepted": f"{GONE}: audit.offset_gaps: warn accepts gaps",
    "not_read": "1000..9999: not read yet, or transaction markers",
    "made_anew": ("bronze has 1000..9999, Kafka's end offset is 7: the topic was recreated, or is another"),
}


@pytest.mark.parametrize("cause", get_args(DifferenceCause))
def test_each_cause_is_said_in_words(cause: DifferenceCause) -> None:
    holes = HOLES if "the first:" in SAID[cause] else ()
    assert words_of(OffsetDifference(0, cause, 1_234, 1_000, 9_999, holes, kafka_end=7)) == SAID[cause]


def test_one_offset_and_a_partition_that_kafka_lacks_are_said_as_such() -> None:
    anew = OffsetDifference(0, "made_anew", 1, 5, 5)
    assert words_of(anew) == (
        "bronze has 5, Kafka has no such partition: the topic was recreated, or is another"
    )


def test_the_runbook_quotes_what_is_said() -> None:
    chapter = Path("docs/runbook.md").read_text().split("## Is everything in bronze?")[1].split("\n## ")[0]
    rows = [line for line in chapter.splitlines() if line.startswith("| `")]
    quoted = [part for row in rows for part in row.split(" | ")[0].split("`")[1::2]]
    # What a quotation leaves out stands in it as dots.
    said = [
        words_of(OffsetDifference(0, cause, 2, 0, 9, HOLES, kafka_end=7))
        for cause in get_args(DifferenceCause)
    ]
    for quotation in quoted:
        parts = quotation.split("…")
        assert any(all(part in text for part in parts) for text in said), quotation
