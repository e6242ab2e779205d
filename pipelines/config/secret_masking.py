"""Messages of others, without what they repeat of a secret."""

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "******"
_WORDS: Final = re.compile(r"[^\s\"';=]+")
_SHORTEST: Final = 3
# Of a login of Kafka's, what says how and not who: a class, a flag, a name of an option.
_PLAIN: Final = re.compile(
    r"[\w.]+(LoginModule|Handler|Provider)|required|requisite|sufficient|optional|username|password"
    r"|clientId|clientSecret|scope"
)


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """Return a text with asterisks for all that it has of secrets, whole or a word of them.

    Args:
        text: A message of a library, such as that of a setting which it cannot read.
        secrets: The values.
    """
    parts = {part for secret in secrets for part in (secret, *_WORDS.findall(secret))}
    # A longer one first: it may contain another.
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SHORTEST and not _PLAIN.fullmatch(part):
            text = text.replace(part, HIDDEN)
    return text
