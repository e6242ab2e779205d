"""When a record was sent, as SQL: as far as its Kafka timestamp can be believed."""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

# A record without a Kafka timestamp carries one before 1970.
_STAMPED: Final = "_kafka_timestamp >= timestamp_seconds(0)"
SENT_AT: Final = f"least(CASE WHEN {_STAMPED} THEN _kafka_timestamp END, _ingested_at)"
# By how much the clock of the machine that reads may be behind without a record being called broken.
_READER_BEHIND: Final = timedelta(days=7)
# Added as a number: Spark adds an interval by way of a calendar.
_AT_LATEST: Final = (
    f"timestamp_micros(unix_micros(_ingested_at) + {_READER_BEHIND // timedelta(microseconds=1)})"
)
# The watermark goes no further than SENT_AT, so what a fast producer gains here moves no other record.
_SENT_BY: Final = f"CASE WHEN {_STAMPED} THEN least(_kafka_timestamp, {_AT_LATEST}) ELSE _ingested_at END"


def sent_at() -> Column:
    """Return when a record was sent, as far as it can be believed: never after it was read.

    A record without a Kafka timestamp carries one before 1970; it counts as sent when it was read.
    """
    return F.expr(SENT_AT)


def sent_by() -> Column:
    """Return the latest that a record was sent.

    Event times are measured from it, and so is what may be removed.
    """
    return F.expr(_SENT_BY)
