"""The table properties in which Oncelake keeps what must go with a table, and be in each backup of it.

A table that an earlier release made may lack any of them. `docs/tables.md` is made from here.
"""

from collections.abc import Mapping
from typing import Final, Literal

TOPIC_ID: Final = "oncelake.kafka.topicId"
WHOLE_FROM: Final = "oncelake.whole_from"
FORGETTING: Final = "oncelake.forgetting"
DIVERGENCE_ACCEPTED: Final = "oncelake.divergence_accepted"
DEDUP: Final = "oncelake.dedup"
BY_CLOCK_SINCE: Final = "oncelake.watermark.byClockSince"
SPEED_FROM: Final = "oncelake.speed_from"
DAYS: Final = "oncelake.days"
ZONE_RULES: Final = "oncelake.zone_rules"
CERTIFIED: Final = "oncelake.certified"

APPEND_ONLY: Final = "delta.appendOnly"
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
LOG_KEPT: Final = "delta.logRetentionDuration"
REMOVED_FILES: Final = "delta.deletedFileRetentionDuration"

PROPERTIES: Final[Mapping[Literal["bronze", "speed", "batch"], Mapping[str, str]]] = {
    "bronze": {
        TOPIC_ID: "The id of the Kafka topic that is ingested, in hexadecimal.",
        WHOLE_FROM: "The first event day whose records are complete: `maintain` has deleted none of them.",
        FORGETTING: "The last run that emptied records, and the version of the table before it.",
        DIVERGENCE_ACCEPTED: "Accepted differences from Kafka, as partition and last offset, such as"
        " `flights-0@99,flights-1@7`.",
    },
    "speed": {
        DEDUP: "The settings of the deduplication: key, event time, time zone, watermark delay and state"
        " partitions. JSON in hexadecimal.",
        BY_CLOCK_SINCE: "Records ingested since this time advance the watermark at most to the time at"
        " which they were sent or read. Earlier ones advanced it to their event time.",
        SPEED_FROM: "The first event day of which `maintain` has deleted no row.",
    },
    "batch": {
        DAYS: "The settings that determine the event day of a row: key, event time and time zone. JSON in"
        " hexadecimal.",
        ZONE_RULES: "The rules of the time zone with which the event days were computed.",
        CERTIFIED: "The highest certified version of the table.",
    },
}
"""What each property of Oncelake's own keeps, by the table that has it."""
