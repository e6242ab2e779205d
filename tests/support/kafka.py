"""Types that the tests on a real broker share."""

from collections.abc import Callable

MakeTopic = Callable[..., str]
