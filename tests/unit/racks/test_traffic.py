"""Which bytes were read within a rack."""

from typing import Any

import pytest

from pipelines.racks.traffic import rack_share, since, traffic


def test_bytes_by_rack_and_the_share_that_stayed() -> None:
    got: dict[tuple[str, str], dict[int, int]] = {("0", "a"): {1: 90, 2: 5}, ("1", "?"): {3: 5}}
    brokers: dict[int, Any] = {1: "a", 2: "b", 3: None}
    pairs = traffic(got, brokers)
    assert pairs == {"a": {"a": 90, "b": 5}, "?": {"?": 5}}
    assert rack_share(pairs) == pytest.approx(0.9)
    assert rack_share({}) is None
    later = {("0", "a"): {1: 90, 2: 9}, ("2", "b"): {3: 1}}
    assert since(got, later) == {("0", "a"): {1: 0, 2: 4}, ("2", "b"): {3: 1}}
