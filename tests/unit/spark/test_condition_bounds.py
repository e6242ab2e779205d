"""What conditions may use only because Java counts it is what Java counts."""

import re
from pathlib import Path
from typing import Final

from pipelines.spark import condition_bounds

JAVA: Final = Path("jvm/src/oncelake/decode")


def test_pairs_that_python_takes_for_counted_are_counted_by_java() -> None:
    source = (JAVA / "BoundedPairs.java").read_text(encoding="utf-8")
    assert {*re.findall(r"(\w+)\.class\b", source)} == {*condition_bounds._PAIRING.split()}


def test_patterns_that_python_takes_for_counted_are_counted_by_java() -> None:
    source = (JAVA / "BoundedMatch.java").read_text(encoding="utf-8")
    (looked_for,) = re.findall(r"boolean looksForPattern.*?\n  }", source, re.DOTALL)
    # LIKE ALL and LIKE ANY, whose patterns are no arguments.
    counted = {*re.findall(r"instanceof (\w+)", looked_for)} - {"MultiLikeBase"}
    assert counted == {*condition_bounds._PATTERNS, "RegExpReplace", "StringToMap"}
