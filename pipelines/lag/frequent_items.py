"""The most frequent of many items, by a fixed number of counters.

The algorithm is Space-Saving (Metwally, Agrawal and El Abbadi, 2005). Of n items and k counters, no count is
too low or more than n / k too high, and each item that comes more than n / k times has a counter.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass
class Counted(Generic[Item]):
    """An item, and how often it came.

    Attributes:
        item: The item.
        count: How often it came at most.
        error: By how much that may be too high.
        at: Where it came when its counter began.
    """

    item: Item
    count: int
    error: int
    at: int

    @property
    def least(self) -> int:
        """How often it came at least."""
        return self.count - self.error


def most_frequent(items: Iterable[tuple[Item, int]], counters: int) -> list[Counted[Item]]:
    """Count items, each of which comes with its place.

    Args:
        items: The items. They are read once, and only those that have a counter are kept.
        counters: How many counters there are, at least one.

    Returns:
        The items that have a counter at the end, the most frequent first.
    """
    counted = dict[Item, Counted[Item]]()
    for item, at in items:
        if known := counted.get(item):
            known.count += 1
            continue
        taken = 0
        if len(counted) == counters:
            rarest = min(counted.values(), key=lambda each: each.count)
            taken = counted.pop(rarest.item).count
        counted[item] = Counted(item, taken + 1, taken, at)
    return sorted(counted.values(), key=lambda each: each.count, reverse=True)
