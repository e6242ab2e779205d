"""Texts of libraries that name an address, without what of it may be a secret."""

import re
from typing import Final

# User and password, with or without a scheme before them, and a query.
_SECRET: Final = re.compile(r"[^/@\s]+@|\?[^\s)]+")


def mask_addresses(text: str) -> str:
    """Return a text without user, password and query of the addresses in it."""
    return _SECRET.sub("…", text)
