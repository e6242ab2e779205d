"""What a rebuild says when others write to the days that it writes."""

import time
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from delta.exceptions import ConcurrentAppendException

from pipelines.contracts.event_days import Span
from pipelines.delta.epochs import Stamp
from pipelines.errors import InfrastructureError
from pipelines.nightly import rebuild


def test_a_rebuild_that_always_conflicts_names_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def conflict(*_: object) -> Any:
        attempts.append(1)
        raise ConcurrentAppendException("others wrote")

    monkeypatch.setattr(rebuild, "decode_all", conflict)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    pipeline: Any = SimpleNamespace(contract=None, table=lambda layer: f"lake/{layer}")
    pieces: Any = SimpleNamespace(envelopes=None)
    days = [date(2013, 1, 1)]
    with pytest.raises(InfrastructureError, match=r"^lake/batch: other writers changed these days"):
        rebuild.build_days(pipeline, Span(days, days, 0), pieces, Stamp("lease", 1, "build"))
    assert len(attempts) == 4
