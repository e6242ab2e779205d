"""What is logged while a fixture is made: `caplog` cannot be had by what outlives a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


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
