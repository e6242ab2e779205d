"""What the tests of the nightly run share."""

from collections.abc import Callable

import pytest

from pipelines.contracts.contract import DataContract
from tests.support.lakes import Lake


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake whose contract allows days of few rows."""
    return make_lake(contract=small)
