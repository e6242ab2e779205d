"""References in a text of the configuration, by which a secret need not be in a file of it.

`${NAME}` stands for an environment variable, `${file:/PATH}` for what a file holds, and
`${command:PROGRAM ARGUMENTS}` for what a program prints. What they stand for is never part of a message.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pipelines.errors import ConfigError

EXPECTED: Final = (
    "an environment variable, ${NAME}, a file, ${file:/PATH}, or a command, ${command:PROGRAM ARGUMENTS}"
)
"""What may stand for a secret, for messages."""

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|(?:file|command):[^{}\n]+)\}")
_WITHIN_S: Final = 30.0


def references_in(text: str) -> list[str]:
    """Return the references of a text, each without its braces."""
    return _REFERENCE.findall(text)


def variables_in(text: str) -> list[str]:
    """Return the names of the environment variables that a text of the configuration refers to."""
    return [reference for reference in references_in(text) if ":" not in reference]


def without_references(text: str) -> str:
    """Return what is left of a text without its references."""
    return _REFERENCE.sub("", text)


def resolved(text: str, where: str, environ: Mapping[str, str]) -> str:
    """Return a text with what its references stand for.

    Args:
        text: The text.
        where: File and key, for messages.
        environ: The environment's variables. A key that is a whole reference, such as `file:/PATH`, gives
            the value of that reference. So a configuration can be checked without its files and programs.

    Raises:
        ConfigError: A variable is not set, a file cannot be read, a command fails, or there is another `${`.
    """
    if "${" in without_references(text):
        raise ConfigError(
            f"{where}: expected ${{NAME}}, with letters, digits and _ in NAME, ${{file:/PATH}} or"
            " ${command:PROGRAM ARGUMENTS}, got another ${"
        )
    return _REFERENCE.sub(lambda match: _value(match[1], where, environ), text)


def require_text(value: str, where: str) -> None:
    """Make sure that what the operating system hands over is text.

    Raises:
        ConfigError: It has bytes that are not UTF-8, which Python keeps as halves of characters.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: expected text in UTF-8, got other bytes (not shown here)") from None


def plain_secrets(text: str, *, is_secret: bool, names: re.Pattern[str]) -> Iterator[str]:
    """Yield what of a text holds a secret that no reference stands for: `the value`, or names of settings.

    Args:
        text: The text.
        is_secret: Whether it is a secret as a whole, or holds one.
        names: Matches the names of settings within it, such as `password` in `password="x"`, whose values are
            secrets.
    """
    if is_secret and not references_in(text):
        yield "the value"
        return
    for match in _ASSIGNED.finditer(text):
        value = match["value"].strip("\"'")
        if names.search(match["name"]) and value and not references_in(value):
            yield match["name"]


_ASSIGNED: Final = re.compile(
    r"(?P<name>[A-Za-z][\w.]*)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|(?:\$\{[^}]*\}|[^\s;,\"'])+)"
)


def _value(reference: str, where: str, environ: Mapping[str, str]) -> str:
    if reference in environ:
        require_text(environ[reference], f"{where}: the environment variable {reference}")
        return environ[reference]
    kind, colon, rest = reference.partition(":")
    if not colon:
        raise ConfigError(
            f"{where}: the environment variable {reference} is not set; set it, or change the value"
        )
    return _content(rest, where) if kind == "file" else _output(rest, where)


def _content(path: str, where: str) -> str:
    if not Path(path).is_absolute():
        raise ConfigError(
            f"{where}: ${{file:{path}}}: expected the whole path of a file, such as /run/secrets/kafka"
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{where}: the file {path} cannot be read: {error.strerror}; let the user that runs this command"
            " read it, or name another"
        ) from None
    except ValueError:
        raise ConfigError(f"{where}: the file {path} is not text in UTF-8; name another") from None
    return _some(text, where, f"the file {path} is empty")


def _output(command: str, where: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN_S, check=True
        )
        text = done.stdout.decode()
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{where}: {_program(words)} has not ended within {_WITHIN_S:g} s") from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"{where}: {_program(words)} ends with exit code {error.returncode}; expected 0, and the value on"
            " standard output (what it says is not shown here)"
        ) from None
    except OSError as error:
        raise ConfigError(f"{where}: {_program(words)} cannot be started: {error.strerror}") from None
    except (ValueError, IndexError):
        raise ConfigError(
            f"{where}: ${{command:…}}: expected a program and its arguments, with closed quotes, that prints"
            " text in UTF-8"
        ) from None
    return _some(text, where, f"{_program(words)} prints nothing")


def _program(words: list[str]) -> str:
    # Arguments may be secrets.
    return f"the command {words[0] if words else ''}"


def _some(text: str, where: str, otherwise: str) -> str:
    value = text.rstrip("\r\n")
    if not value:
        raise ConfigError(f"{where}: {otherwise}; expected a value")
    return value
