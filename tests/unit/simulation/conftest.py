"""Simulated processes fail often, and say so."""

import logging
import os
import random
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _on_one_core() -> Iterator[None]:
    """Threads that take turns hand over sooner on one core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(cores))})  # noqa: S311 - nothing here is secret
    yield
    os.sched_setaffinity(0, cores)
