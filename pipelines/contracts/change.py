"""One difference between two contracts, and whom it breaks."""

from dataclasses import dataclass
from typing import Final, Literal

from pipelines.contracts.rules import RowRule

Party = Literal["producers", "readers", "state"]

PRODUCERS: Final[tuple[Party, ...]] = ("producers",)
READERS: Final[tuple[Party, ...]] = ("readers",)
BOTH: Final[tuple[Party, ...]] = ("producers", "readers")


@dataclass(frozen=True)
class Change:
    """One difference between two contracts.

    Attributes:
        place: what changed, such as `schema.properties.origin`.
        what: how, in words, with the old and the new value.
        breaks: whom it breaks; nobody if it is compatible.
    """

    place: str
    what: str
    breaks: tuple[Party, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether it breaks anybody."""
        return bool(self.breaks)


def place(column: str) -> str:
    """Where the contract speaks of a column."""
    return f"schema.properties.{column}"


def shown(rule: RowRule) -> str:
    """The value of a rule, in words."""
    return ", ".join(map(repr, rule.value)) if rule.kind == "values" else repr(rule.value)


def figure(value: float) -> str:
    """A number with all its digits, since a change may lie in the last."""
    return str(int(value)) if value == int(value) else repr(value)
