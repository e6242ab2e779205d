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
        TOPIC_ID: "The id of the topic that it is filled from, as hexadecimal text.",
        WHOLE_FROM: "The first event day of which `maintain` has removed no record.",
        FORGETTING: "The last run that emptied records of it, and after which version.",
        DIVERGENCE_ACCEPTED: "Last records that may differ from Kafka's: `flights-0@99,flights-1@7`.",
    },
    "speed": {
        DEDUP: "By which key, event time, zone, watermark and state partitions it is deduplicated, as"
        " hexadecimal JSON.",
        BY_CLOCK_SINCE: "From which ingestion on the clock of ingestion moves the watermark as well.",
        SPEED_FROM: "The first event day of which `maintain` has removed no row.",
    },
    "batch": {
        DAYS: "By which key, event time and zone its rows have a day, as hexadecimal JSON.",
        ZONE_RULES: "The rules of the zone by which its days were made.",
        CERTIFIED: "The highest of its versions that was certified.",
    },
}
"""What each property of Oncelake's own keeps, by the table that has it."""
