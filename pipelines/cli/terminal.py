"""Texts from files and data on a terminal."""

import sys
from contextlib import suppress

from pipelines.lineage.searches import Searched


def searched_text(searched: Searched) -> str:
    """Return what was searched, as a clause: `5 records of /lake/bronze/flights (version 3)`."""
    return f"{searched.records:,} records of {searched.table} (version {searched.version})"


def harmless(text: str) -> str:
    """Return the text on one line, with escapes for what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """Return the text with escapes for what a terminal would obey, except for the ends of its lines."""
    return "\n".join(map(harmless, text.split("\n")))


def print_error(message: str) -> None:
    """Print why a command fails, if standard error can take it: the exit code is to say it all the same."""
    with suppress(OSError):
        print(f"error: {harmless_lines(message)}", file=sys.stderr, flush=True)
