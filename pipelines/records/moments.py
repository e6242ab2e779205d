"""Timestamps and dates as records have them: the texts that are taken for one, and for no other."""

from typing import Final

from pyspark.sql.types import DateType, TimestampType

from pipelines.sql import literal

# The end of the text, in Java and in Python alike: before a last line break there is a `$` as well.
_END: Final = r"(?![\s\S])"
TIMESTAMP: Final = (
    rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,9}})?)?(Z|[+-]\d{{2}}:?\d{{2}})?{_END}"
)
FINER: Final = r"[.][0-9]{6}[0-9]*[1-9]"
"""What a timestamp has that Spark does not hold exactly: digits below a microsecond that are not 0."""

DATE: Final = rf"^\d{{4}}-\d{{2}}-\d{{2}}{_END}"


def moment_of(text: str, kind: TimestampType | DateType) -> str:
    """Return SQL for the timestamp or date that a text is; null if it is none.

    Args:
        text: SQL for the text.
        kind: Which of the two.
    """
    form = TIMESTAMP if isinstance(kind, TimestampType) else DATE
    return f"CASE WHEN {text} RLIKE {literal(form)} THEN try_cast({text} AS {kind.simpleString()}) END"
