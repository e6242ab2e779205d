"""Text that Java reads from a properties file is the text that was written."""

import pytest

from pipelines.runtime.java_properties import property_line


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("spark.master", "local[2]", "spark.master=local[2]\n"),
        ("a b=c:d", r"C:\x", "a\\ b\\=c\\:d=C:\\\\x\n"),
        ("k", "one\ntwo\u00e9", "k=one\\u000atwo\\u00e9\n"),
    ],
)
def test_a_line_has_nothing_that_java_would_take_for_something_else(key: str, value: str, line: str) -> None:
    assert property_line(key, value) == line
