"""Words and numbers of the report: made safe to look at, and never rounded into a lie."""

import unicodedata
from typing import Final

from markupsafe import Markup

MAX_TEXT: Final = 400
"""Characters shown of a text from the data; what is cut is said with the full length."""

NOTHING: Final = "\u2013"
"""Stands where there is no value: a dash."""


def plural(count: int, noun: str) -> str:
    """Count with its noun, such as ``1 check`` or ``1,200 checks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percentage(part: int, whole: int) -> str:
    """Return a part of a whole in per cent; only nothing is 0 %, and only all is 100 %."""
    if not whole:
        return NOTHING
    per_cent = 100 * part / whole
    if part and per_cent < 0.1:
        return "< 0.1 %"
    if part < whole and per_cent > 99.9:
        return "> 99.9 %"
    return f"{per_cent:.1f} %"


class Shown(str):
    """A text that has passed ``visible``, so that it is not cut a second time."""

    __slots__ = ()


def visible(value: object, limit: int = MAX_TEXT) -> object:
    """Make a text from the data safe to look at: nothing invisible, nothing endless.

    Characters that control, reorder, hide or have no glyph become ``⟨U+202E⟩``, line ends ``↵``. What is
    longer than the limit is cut and says how long it was. Escaping for HTML comes after.

    Args:
        value: A text; anything else (numbers, markup) is returned as it is.
        limit: Characters that are kept.

    Returns:
        The text to show.
    """
    if isinstance(value, Markup | Shown) or not isinstance(value, str):
        return value
    shown = "".join(_glyph(character) for character in value[:limit])
    return Shown(f"{shown}… ({len(value):,} characters)" if len(value) > limit else shown)


def _glyph(character: str) -> str:
    if character in "\n\t":
        return "↵" if character == "\n" else " "
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return f"⟨U+{ord(character):04X}⟩"
    return character
