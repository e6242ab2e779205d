"""What becomes of the failure of a stream if the cluster fails as well."""

from dataclasses import dataclass
from typing import Any

import pytest

from pipelines.errors import InfrastructureError
from pipelines.publishing.cluster import end_transactions
from pipelines.publishing.transactional_sink import TransactionalSink


@dataclass(frozen=True)
class Unreadable(TransactionalSink):
    """A sink whose progress topic has no leader."""

    @property
    def connection(self) -> Any:
        """Nothing can be asked there."""
        raise InfrastructureError("records of partition 0 cannot be read")


def test_transactions_that_cannot_be_ended_do_not_hide_why_a_stream_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    end_transactions(Unreadable("sink", "events", 1, {"bootstrap.servers": "localhost:1"}), "run")
    assert "open transactions were not ended: records of partition 0 cannot be read" in caplog.text
