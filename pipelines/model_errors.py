"""What a model refuses, in words for people: pydantic's own name types of Python, and each alternative alone.

Who shows a refusal asks here what was expected. What pydantic says itself is never shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeVar

from pydantic import AfterValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from pipelines.message_texts import number_text, shortened

Location = tuple[int | str, ...]

WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    "greater_than_equal": "a number greater than or equal to {ge}",
    "less_than_equal": "a number less than or equal to {le}",
    "string_type": "text in quotes",
    "string_too_short": "text of {min_length} or more characters",
    "string_unicode": "text in UTF-8",
    "literal_error": "{expected}",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "too_short": "{min_length} or more values",
    "too_long": "{max_length} values at most",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "keys with values"),
    "form": "{words}",
}
"""What was expected, by the type of the error; of all that a model here can raise for a value."""

_OTHER: Final = "another value"
_KEY: Final = "[key]"
_NOTHING: Final = object()


def like(pattern: str, words: str) -> AfterValidator:
    """Return a check of a text's form, whose refusal says the form in words and not as a pattern.

    Args:
        pattern: What the text matches as a whole.
        words: The same, for people.
    """
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise PydanticCustomError("form", "expected {words}", {"words": words})
        return text

    return AfterValidator(check)


Errors = TypeVar("Errors")


@dataclass(frozen=True)
class RefusedValue:
    """A value that a model refuses, or a key.

    Attributes:
        location: Where it is in the document.
        errors: What pydantic says of it: an error, or one for each alternative.
        is_key: Whether it is the key itself, the last one of the location.
    """

    location: Location
    errors: tuple[ErrorDetails, ...]
    is_key: bool = False

    @property
    def kind(self) -> str:
        """The type of the error; of several, of the first."""
        return self.errors[0]["type"]

    @property
    def found(self) -> Any:
        """The value."""
        return self.errors[0]["input"]

    def found_text(self, most: int) -> str:
        """Return the value as it stands in YAML, cut off after some characters."""
        match self.found:
            case None:
                return "nothing"
            case bool():
                return str(self.found).lower()
            case date():
                return self.found.isoformat()
            case _:
                return shortened(self.found, most)

    @property
    def message(self) -> str:
        """What a check of ours says of it, if its kind is `value_error`."""
        return self.errors[0]["msg"].removeprefix("Value error, ")

    def expected(self, words: Mapping[str, str] = WORDS) -> str:
        """Return what was expected, of all alternatives together.

        Args:
            words: By the type of the error, if others than these suit the document better.
        """
        texts = [
            words.get(each["type"], _OTHER).format_map(readable_context(each.get("ctx", {})))
            for each in self.errors
        ]
        expected = list(dict.fromkeys(texts))
        if "a number" in expected and "a whole number" in expected:
            expected.remove("a whole number")
        return " or ".join(filter(None, (", ".join(expected[:-1]), expected[-1])))


def refused_values(error: ValidationError, document: Any) -> list[RefusedValue]:
    """Return what a model refuses of a document, each mistake once.

    An item that is refused may make its list too short for pydantic, and a value may be refused as each of
    several alternatives. Of what lies within each other, the inmost is the mistake.

    Args:
        error: What pydantic raised.
        document: What was validated.
    """
    by_location: dict[Location, list[ErrorDetails]] = {}
    for each in error.errors():
        by_location.setdefault(_location(each, document), []).append(each)
    return [
        RefusedValue(location[:-1], tuple(errors), is_key=True)
        if location[-1:] == (_KEY,)
        else RefusedValue(location, tuple(errors))
        for location, errors in inmost(by_location).items()
    ]


def inmost(by_location: Mapping[Location, Errors]) -> dict[Location, Errors]:
    """Return the errors within which there are no others."""
    around = {location[:length] for location in by_location for length in range(len(location))}
    return {location: errors for location, errors in by_location.items() if location not in around}


def _location(error: ErrorDetails, document: Any) -> Location:
    """Return where a value is in a document, without the names that pydantic gives to alternatives."""
    steps: list[int | str] = []
    for number, step in enumerate(error["loc"], 1):
        inner = _part(document, step)
        is_named = number == len(error["loc"]) and (step == _KEY or error["type"] == "missing")
        if inner is not _NOTHING or is_named:
            steps.append(step)
            document = inner
    return tuple(steps)


def _part(document: Any, step: int | str) -> Any:
    match document, step:
        case dict(), _:
            return document.get(step, _NOTHING)
        case list(), int() if step < len(document):
            return document[step]
        case _:
            return _NOTHING


def readable_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an error, such as a limit, as people write them."""
    return {key: number_text(value) if isinstance(value, float) else value for key, value in context.items()}
