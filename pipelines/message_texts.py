"""Parts of messages: lists and values that are shown in part."""

from collections.abc import Sequence
from typing import Any


def first_items(items: Sequence[str], most: int, noun: str) -> str:
    """Return the first of some items in one text, and how many more there are.

    Args:
        items: The items.
        most: How many are shown.
        noun: What the others are, in the plural.
    """
    more = [f"and {len(items) - most} more {noun}"] if len(items) > most else []
    return "; ".join([*items[:most], *more])


def shortened(value: Any, most: int) -> str:
    """Return a value as Python writes it, cut off after some characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def number_text(value: float) -> str:
    """Return a number with all its digits, since a change may lie in the last; no `.0` if it is whole."""
    return str(int(value)) if value == int(value) else repr(value)
