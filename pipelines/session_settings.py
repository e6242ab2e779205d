"""Settings of a session that hold for a block alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session while the block runs; afterwards each is as it was, or not set.

    Args:
        spark: The session.
        settings: Values by the names of the settings.
    """
    session: Any = spark.conf
    before: dict[str, str | None] = {key: session.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.set(key, value)
        yield
    except BaseException:
        # If Java has died, what it was asked last says why.
        with suppress(Exception):
            _set_back(session, before)
        raise
    _set_back(session, before)


def _set_back(session: Any, before: Mapping[str, str | None]) -> None:
    for key, was in before.items():
        if was is None:
            session.unset(key)
        else:
            session.set(key, was)
