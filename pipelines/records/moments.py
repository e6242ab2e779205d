"""Timestamps and dates as records have them: the texts that are taken for one, and for no other."""

from typing import Final

# The end of the text, in Java and in Python alike: before a last line break there is a `$` as well.
_END: Final = r"(?![\s\S])"
TIMESTAMP: Final = (
    rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,9}})?)?(Z|[+-]\d{{2}}:?\d{{2}})?{_END}"
)
FINER: Final = r"[.][0-9]{6}[0-9]*[1-9]"
"""What a timestamp has that Spark does not hold exactly: digits below a microsecond that are not 0."""

DATE: Final = rf"^\d{{4}}-\d{{2}}-\d{{2}}{_END}"
