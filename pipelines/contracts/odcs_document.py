"""A contract's file -> the document of the standard, or what is wrong with its words.

The standard's own model ignores names that it does not know, at most places; a misspelt one would be a rule
that nobody keeps. So names that look like known ones are found here, in the file as it was written.
"""

import difflib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from open_data_contract_standard.model import (
    CustomProperty,
    DataQuality,
    OpenDataContractStandard,
    SchemaObject,
    SchemaProperty,
    ServiceLevelAgreementProperty,
)
from pydantic import ValidationError

from pipelines.contracts.custom_properties import OF_OBJECT, OF_PROPERTY
from pipelines.contracts.rules import ROW_OPTIONS
from pipelines.errors import ContractError
from pipelines.message_texts import shortened
from pipelines.model_errors import WORDS, Location, RefusedValue, refused_values
from pipelines.text_files import LARGEST_YAML, read_text, why_unreadable
from pipelines.yaml import parse_yaml

_OPTIONS: Final = (*ROW_OPTIONS, "format")
# Of the document, what Oncelake reads; a date without quotes is text everywhere else.
_READ: Final = ("schema", "id", "version", "apiVersion", "kind")
_EXPECTED: Final = {
    **WORDS,
    "list_type": "a list, each line beginning with `- `",
    "dict_type": "names with values, as `name: value`",
    "model_type": "names with values, as `name: value`",
}
# Below this share of equal letters two names are two names.
_ALIKE: Final = 0.85
_SHORTEST_ALIKE: Final = 4
_LONGEST_SHOWN: Final = 60

Reason = tuple[str, str]


def read_document(path: Path) -> tuple[OpenDataContractStandard, list[Reason]]:
    """Read a file as the standard has it.

    Args:
        path: A file in YAML.

    Returns:
        The document, and place and reason of each name that is misspelt, doubled or at a wrong place.

    Raises:
        ContractError: The file cannot be read, or is no document of the standard.
    """
    try:
        content = parse_yaml(read_text(path, LARGEST_YAML), str(path), ContractError)
    except (OSError, UnicodeDecodeError) as error:
        fix = (
            "; a pipeline names it by the setting `contract`, in the folder of --contracts-dir"
            if isinstance(error, FileNotFoundError)
            else ""
        )
        raise ContractError(f"{path}: the contract cannot be read: {why_unreadable(error)}{fix}") from None
    if not isinstance(content, dict):
        actual = "nothing" if content is None else shortened(content, _LONGEST_SHOWN)
        raise ContractError(
            f"{path}: expected an Open Data Contract Standard v3 document, which begins with"
            f" `apiVersion: v3.…` and `kind: DataContract`, got {actual}"
        )
    content = {name: value if name in _READ else _as_text(value) for name, value in content.items()}
    try:
        document = OpenDataContractStandard.model_validate(content)
    except ValidationError as error:
        refused = refused_values(error, content)
        reasons = (f"{path}: {_place(content, each.location)}: {_reason(each)}" for each in refused)
        raise ContractError(
            "\n".join(reasons) + "\nexpected an Open Data Contract Standard v3 document"
        ) from None
    return document, list(_misplaced(content))


def _as_text(node: Any) -> Any:
    match node:
        case date():
            return node.isoformat()
        case list():
            return [_as_text(item) for item in node]
        case dict():
            return {name: _as_text(value) for name, value in node.items()}
        case _:
            return node


def _place(content: Any, location: Location) -> str:
    """Return where a value is, with the names of properties instead of their numbers."""
    words: list[str] = []
    for step in location:
        content = content[step]
        name = content.get("name") if isinstance(content, dict) else None
        if words == ["schema"] and isinstance(step, int):
            continue
        is_named = isinstance(step, int) and words[-1:] == ["properties"] and isinstance(name, str)
        words.append(str(name if is_named else step))
    return ".".join(words)


def _reason(refused: RefusedValue) -> str:
    if refused.kind == "extra_forbidden":
        keys = [field.alias or own for own, field in OpenDataContractStandard.model_fields.items()]
        return f"the standard does not have this key{_meant(str(refused.location[-1]), keys)}"
    value, found = refused.found, refused.found_text(_LONGEST_SHOWN)
    if "enum" in refused.location[-2:] and not isinstance(value, dict):
        return f"expected values as `- value: {value}`, got {found}"
    return f"expected {refused.expected(_EXPECTED)}, got {found}"


def _misplaced(content: Mapping[str, Any]) -> Iterator[Reason]:
    yield from _custom(content, "", ())
    for level in _dicts(content.get("slaProperties")):
        yield from _unknown(level, "slaProperties", ServiceLevelAgreementProperty.model_fields)
        if level.get("property") != "freshness" and _near(str(level.get("property")), ["freshness"]):
            yield "slaProperties", f"{level['property']!r} is unknown; did you mean 'freshness'?"
    for item in _dicts(content.get("schema")):
        yield from _unknown(item, "schema", SchemaObject.model_fields)
        yield from _custom(item, "schema.", OF_OBJECT)
        yield from _quality(item, "schema")
        for part in _dicts(item.get("properties")):
            yield from _property(part, f"schema.properties.{part.get('name')}")


def _property(item: Mapping[str, Any], place: str) -> Iterator[Reason]:
    yield from _unknown(item, place, SchemaProperty.model_fields)
    yield from ((f"{place}.{name}", "belongs in logicalTypeOptions") for name in _OPTIONS if name in item)
    yield from _custom(item, f"{place}.", OF_PROPERTY)
    yield from _quality(item, place)
    for part in _dicts(item.get("properties")):
        yield from _property(part, f"{place}.properties.{part.get('name')}")
    for part in _dicts([item.get("items")]):
        yield from _property(part, f"{place}.items")
    for pair in _dicts([item.get("map")]):
        for name, part in pair.items():
            if isinstance(part, dict):
                yield from _property(part, f"{place}.map.{name}")


def _quality(item: Mapping[str, Any], place: str) -> Iterator[Reason]:
    for rule in _dicts(item.get("quality")):
        yield from _unknown(rule, f"{place}.quality", DataQuality.model_fields)


def _unknown(item: Mapping[str, Any], place: str, known_keys: Mapping[str, Any]) -> Iterator[Reason]:
    for name in item:
        if name not in known_keys and (meant := _meant(str(name), known_keys)):
            yield f"{place}.{name}", f"the standard does not have this key{meant}"


def _custom(item: Mapping[str, Any], place: str, read: tuple[str, ...]) -> Iterator[Reason]:
    """Yield what of custom properties would be ignored, though it was meant for Oncelake."""
    location, seen = f"{place}customProperties", set()
    for custom_property in _dicts(item.get("customProperties")):
        yield from _unknown(custom_property, f"{place}customProperties", CustomProperty.model_fields)
        name = str(custom_property.get("property"))
        if name in seen and name in read:
            yield f"{location}.{name}", "found twice; remove one"
        elif name not in read and name in (*OF_OBJECT, *OF_PROPERTY):
            where = "the object in schema" if name in OF_OBJECT else "a property"
            yield f"{location}.{name}", f"allowed only in {where}; move it there"
        elif name not in read and (meant := _meant(name, (*OF_OBJECT, *OF_PROPERTY))):
            yield f"{location}.{name}", f"unknown{meant}"
        seen.add(name)


def _meant(name: str, known_names: Any) -> str:
    near = _near(name, list(known_names))
    return f"; did you mean '{near}'?" if near else ""


def _near(name: str, known_names: list[str]) -> str | None:
    plain = {_letters(one): one for one in known_names}
    letters = _letters(name)
    matches = difflib.get_close_matches(letters, plain, n=1, cutoff=_ALIKE)
    matches = matches or [one for one in plain if _is_slip(letters, one)]
    return plain[matches[0]] if matches else None


def _is_slip(name: str, known_name: str) -> bool:
    """Return whether one letter is another, or two have changed places: that makes short names less alike."""
    if len(name) != len(known_name) or len(name) < _SHORTEST_ALIKE:
        return False
    pairs = [pair for pair in zip(name, known_name, strict=True) if pair[0] != pair[1]]
    return len(pairs) == 1 or (len(pairs) == 2 and pairs[0] == pairs[1][::-1])


def _letters(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _dicts(node: Any) -> list[dict[str, Any]]:
    return [item for item in node if isinstance(item, dict)] if isinstance(node, list) else []
