"""Reads the login of Kafka's client in Java (`sasl.jaas.config`), for clients that know no JAAS."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\\r\n]|\\.)*)" | '(?P<single>(?:[^'\\\r\n]|\\.)*)'
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$.-]*) | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
# As Java's StreamTokenizer has them.
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_EXPECTED: Final = 'expected CLASS required NAME="VALUE" …; with one class and a semicolon at its end'


@dataclass(frozen=True)
class Jaas:
    """A login.

    Attributes:
        module: The class of its login module, without package.
        options: The options of the module, of which some are secrets.
    """

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> Jaas:
    """Read a login as Kafka reads it.

    Raises:
        ValueError: It is none. The message has nothing of the text, which is a secret.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise ValueError(_EXPECTED)
    inner = tokens[2:-1]
    names, marks, values = inner[0::3], inner[1::3], inner[2::3]
    if len(inner) % 3 or any(mark != "=" for mark in marks) or {"=", ";"} & {*names}:
        raise ValueError(_EXPECTED)
    options = dict(zip(map(_value, names), map(_value, values), strict=True))
    return Jaas(_value(tokens[0]).rpartition(".")[2], options)


def _tokens(text: str) -> list[str]:
    """Return words, signs, and quoted texts; these have a quote before them, so that none is a sign."""
    tokens, place = list[str](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(_EXPECTED)
        place = match.end()
        if match.lastgroup in ("double", "single"):
            tokens.append(f'"{_ESCAPE.sub(_unescaped, match[match.lastgroup])}')
        elif match.lastgroup:
            tokens.append(match[match.lastgroup])
    return tokens


def _value(token: str) -> str:
    if token in ("=", ";"):
        raise ValueError(_EXPECTED)
    return token.removeprefix('"')


def _unescaped(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found, 8)) if found.isdecimal() and found < "8" else _ESCAPED.get(found, found)
