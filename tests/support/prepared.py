"""Lakes, and what they were told, that are made once for all tests of a file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.spark.pipeline import Pipeline
from tests.support.lakes import Lake


def lake_in(folder: Path, spark: SparkSession, contract: DataContract, *settings: str) -> Lake:
    """A lake as `make_lake` makes it, in a folder that outlives a test."""
    given = (f"lake.root={folder}/lake", "batch.seal_by=bronze", *settings)
    return Lake(Pipeline(spark, load_config("flights", environ={}, settings=given), contract))


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile; `caplog` cannot be had by what outlives a test."""
    kept = _Kept()
    logging.getLogger().addHandler(kept)
    try:
        yield kept.records
    finally:
        logging.getLogger().removeHandler(kept)
