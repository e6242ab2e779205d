"""Which settings hold secrets, URLs, programs or headers, by the types that the models give them.

A new setting with a secret is one of type `SecretStr`. Then it is refused in plain text in files of
configuration and is in no deployment file, and nothing else has to name it.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, SecretStr

from pipelines.config.model import PipelineConfig
from pipelines.config.values import Form

_ANY_NAME: Final = "*"


def holds_secret(key: str) -> bool:
    """Return whether a setting, by its dotted key, is a secret or one of several by name."""
    return _matching(SecretStr).fullmatch(key) is not None


def has_form(key: str, form: Form) -> bool:
    """Return whether a setting, by its dotted key, has a form; of several by name, each has it."""
    return _matching(form).fullmatch(key) is not None


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield a type and all that it is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


def all_settings(model: type[BaseModel] = PipelineConfig, above: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield the key of each setting, with what its type is made of; `*` stands for any name within a key."""
    for key, field in model.model_fields.items():
        parts = [*parts_of(field.annotation), *field.metadata]
        name = f"{above}{key}.{_ANY_NAME}" if any(get_origin(part) is dict for part in parts) else above + key
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        for inner in models:
            yield from all_settings(inner, f"{name}.")
        if not models:
            yield name, parts


@cache
def _matching(part: Any) -> re.Pattern[str]:
    """Return what matches the keys of settings in whose type a part is."""
    return re.compile("|".join(_pattern(key) for key, parts in all_settings() if part in parts), re.DOTALL)


def _pattern(key: str) -> str:
    # A name that has settings of its own has no dot; names of settings of others have some.
    inner = re.escape(key.removesuffix(_ANY_NAME)).replace(re.escape(_ANY_NAME), r"[^.]+")
    return f"{inner}.+" if key.endswith(_ANY_NAME) else inner
