"""Texts in a condition that Spark reads as another text than its author sees."""

import re
from typing import Final

# A text in SQL, or what begins like one and is none: a name in backticks, a comment.
_PART: Final = re.compile(
    r"`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<raw>\b[rR])?(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
# Of others Spark drops the backslash. That \b is a backspace for it surprises as much.
_KEPT: Final = set("0123456789'\"nrtZuU\\%_")


def lost_backslashes(sql: str) -> str | None:
    r"""The first text of a condition in which a backslash is lost: in SQL `'\d'` is `d`.

    Args:
        sql: the condition.

    Returns:
        The text as it stands there, with its quotes; None if there is none.
    """
    for part in _PART.finditer(sql):
        text = part["text"]
        if text and not part["raw"] and any(sign not in _KEPT for sign in _ESCAPE.findall(text)):
            return text
    return None


def doubled(text: str) -> str:
    """A text with every backslash twice."""
    return text.replace("\\", "\\\\")
