"""Texts from files and data on a terminal."""


def harmless(text: str) -> str:
    """Return the text on one line, with escapes for what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """Return the text with escapes for what a terminal would obey, except for the ends of its lines."""
    return "\n".join(map(harmless, text.split("\n")))
