"""What is logged while a fixture is made, which cannot have `caplog` as it outlives a test, and by jobs."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile."""
    kept = _Kept()
    logging.getLogger().addHandler(kept)
    try:
        yield kept.records
    finally:
        logging.getLogger().removeHandler(kept)


def with_traces(logs: Iterable[Path]) -> list[Path]:
    """Those of log files that have a stack trace of Java or Python."""
    return [log for log in logs if re.search(r"^\s+at |^Traceback", log.read_text(), re.MULTILINE)]
