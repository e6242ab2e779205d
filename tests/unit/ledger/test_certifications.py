"""Whether the ledger knows what the batch table says of itself."""

import pytest

from pipelines.config.loader import load_config
from pipelines.errors import SourceError
from pipelines.ledger.certifications import require_ledger

CONFIG = load_config("flights", environ={})


@pytest.mark.parametrize(("mark", "certified"), [(None, None), (None, 3), (7, 7), (7, 8)])
def test_a_ledger_that_knows_as_much_as_the_batch_table_is_taken(
    mark: int | None, certified: int | None
) -> None:
    require_ledger(CONFIG, mark, certified)


@pytest.mark.parametrize(
    ("certified", "said"), [(None, "found no verdict"), (6, "found verdicts up to version 6")]
)
def test_a_ledger_that_was_lost_or_put_back_is_refused(certified: int | None, said: str) -> None:
    with pytest.raises(SourceError, match=f"verdicts on flights are gone: {said}, but .* its version 7"):
        require_ledger(CONFIG, 7, certified)
