"""What the tests of tables share."""

import pytest

from tests.support.table_copies import TableCopies


@pytest.fixture(scope="session")
def table_copies(tmp_path_factory: pytest.TempPathFactory) -> TableCopies:
    return TableCopies(tmp_path_factory.mktemp("tables"))
