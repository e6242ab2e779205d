"""What Great Expectations refuses of an expectation, in words for people.

Its models are of pydantic's first version, which names types of Python and says of each argument how it fails
as each of several types. Most arguments may also be an object that names a parameter of a suite. Oncelake
gives suites no parameters, so that alternative is left out.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pipelines.message_texts import shortened
from pipelines.model_errors import inmost, readable_context

Error = Mapping[str, Any]

WORDS: Final[Mapping[str, str]] = {
    "type_error.bool": "true or false",
    "type_error.float": "a number",
    "type_error.integer": "a whole number",
    "type_error.str": "text",
    **dict.fromkeys(("type_error.list", "type_error.sequence", "type_error.set"), "a list"),
    "type_error.tuple": "a list",
    "value_error.tuple.length": "a list of {expected_length} values",
    "type_error.enum": "one of {values}",
    "value_error.const": "one of {values}",
    **dict.fromkeys(("value_error.date", "value_error.datetime"), "a date or a time in ISO 8601"),
    "value_error.number.not_ge": "a number greater than or equal to {limit_value}",
    "value_error.number.not_le": "a number less than or equal to {limit_value}",
    "value_error.any_str.min_length": "text of {limit_value} or more characters",
    "type_error.invalidparametertype": "a condition as text",
    "type_error.none.not_allowed": "a value",
}
"""What was expected, by the type of the error."""

_OBJECT: Final = "an object"
_OTHER: Final = "another value"
_ROOT: Final = "__root__"
_ARGUMENTS: Final = "kwargs"
_LONGEST_SHOWN: Final = 60


def refused_arguments(
    errors: Sequence[Error], config: Mapping[str, Any], known: Collection[str]
) -> Iterator[str]:
    """Yield what is refused of an expectation, each mistake once, with its place in the expectation.

    Args:
        errors: What pydantic says.
        config: The expectation, in the JSON of Great Expectations.
        known: The arguments that it has.
    """
    by_location: dict[tuple[int | str, ...], list[Error]] = {}
    for error in errors:
        location = tuple(step for step in error["loc"] if step != _ROOT)
        by_location.setdefault(location, []).append(error)
    # An item that is refused is told, and not that its list is no object, or that arguments are missing.
    for location, alternatives in inmost(by_location).items():
        yield _refusal(location, alternatives, config, known)


def _refusal(
    location: Sequence[int | str], errors: Sequence[Error], config: Mapping[str, Any], known: Collection[str]
) -> str:
    is_argument = bool(location) and location[0] not in (config.keys() - config[_ARGUMENTS].keys())
    where = ".".join(map(str, (_ARGUMENTS, *location) if is_argument else location))
    kind, message = errors[0]["type"], errors[0]["msg"]
    match kind:
        case "value_error.missing":
            return f"{where}: missing; add it"
        case "value_error.extra":
            close = get_close_matches(str(location[-1]), known, 1)
            return f"{where}: unknown argument; {f'did you mean {close[0]!r}?' if close else 'remove it'}"
        case "value_error":
            # A check of Great Expectations itself, in its own words.
            return f"{where or _ARGUMENTS}: {message.rstrip('.')}"
    found = _found(location, config[_ARGUMENTS] if is_argument else config)
    return f"{where}: expected {expected(errors)}, got {_as_written(found)}"


def expected(errors: Sequence[Error]) -> str:
    """Return what was expected of a value, of all alternatives together but for an object."""
    texts = dict.fromkeys(
        WORDS.get(error["type"], _OTHER).format_map(_figures(error))
        for error in errors
        if not _is_object(error)
    )
    if len(texts) > 1:
        texts.pop(_OTHER, None)
    return " or ".join(texts) or _OBJECT


def _is_object(error: Error) -> bool:
    return str(error["type"]) == "type_error.dict"


def _figures(error: Error) -> dict[str, Any]:
    context = readable_context(error.get("ctx", {}))
    values = [
        getattr(each, "value", each) for each in context.get("enum_values", context.get("permitted", ()))
    ]
    return {**context, "values": ", ".join(map(str, values))}


def _as_written(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case _:
            return shortened(value, _LONGEST_SHOWN)


def _found(location: Sequence[int | str], content: Any) -> Any:
    for step in location:
        match content, step:
            case dict(), _:
                content = content.get(step)
            case list(), int():
                content = content[step]
    return content
