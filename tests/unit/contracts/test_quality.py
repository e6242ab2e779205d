r"""A backslash that Spark would drop is found: `'\d'` would be the letter d."""

import pytest

from pipelines.contracts.quality import lost_backslashes


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (r"s RLIKE '^\d+$'", r"'^\d+$'"),
        (r's RLIKE "\w" OR s RLIKE "a\.b"', r'"\w"'),
        (r"s = 'it\'s' AND s RLIKE '\bin'", r"'\bin'"),
        (r"s RLIKE '^\\d+$' OR s LIKE 'a\_%' OR s = '\u00e9\n' OR s = 'a\\'", None),
        (r"s RLIKE r'^\d+$' AND `a\d` > 1 -- '\d'", None),
        (r"s RLIKE R'\d' /* '\d' */ AND s != 'r\d'", r"'r\d'"),
    ],
)
def test_a_text_that_loses_a_backslash_is_found(sql: str, found: str | None) -> None:
    assert lost_backslashes(sql) == found
