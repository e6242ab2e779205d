"""Whatever a model refuses is said in words of our own: what pydantic says names types of Python."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Final

import pytest
from open_data_contract_standard.model import OpenDataContractStandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.config.model import PipelineConfig
from pipelines.model_errors import WORDS, RefusedValue, like, refused_values

# By the kind of a schema the errors of pydantic that it can raise; those of limits only where it has them.
ERRORS: Final[dict[str, set[str]]] = {
    "bool": {"bool_type", "bool_parsing"},
    "int": {"int_type", "int_parsing", "int_parsing_size", "int_from_float", "finite_number"},
    "float": {"float_type", "float_parsing"},
    "str": {"string_type", "string_unicode"},
    "literal": {"literal_error"},
    "list": {"list_type"},
    "tuple": {"tuple_type"},
    "dict": {"dict_type"},
    "model": {"model_type"},
    "model-fields": {"model_attributes_type"},
}
LIMITS: Final = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
    "multiple_of": "multiple_of",
    "pattern": "string_pattern_mismatch",
}
LENGTHS: Final = {
    ("str", "min_length"): "string_too_short",
    ("str", "max_length"): "string_too_long",
    **{(kind, "min_length"): "too_short" for kind in ("list", "tuple", "dict")},
    **{(kind, "max_length"): "too_long" for kind in ("list", "tuple", "dict")},
}
# They refuse nothing themselves, or by a check of ours, or only what no file and no option can say: what is
# no interval or no secret is refused before.
QUIET: Final = {
    *("any", "default", "definitions", "definition-ref", "function-after", "function-before"),
    *("function-plain", "is-instance", "json-or-python", "lax-or-strict", "model-field", "no-info"),
    *("nullable", "timedelta", "union", "with-info"),
}


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """All schemas that a schema of pydantic-core is made of."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node
        for key, inner in node.items():
            yield from schemas(inner) if key != "metadata" else ()
    elif isinstance(node, list | tuple):
        for inner in node:
            yield from schemas(inner)


def errors_of(schema: dict[str, Any]) -> set[str]:
    kind = schema["type"]
    limits = {error for limit, error in LIMITS.items() if limit in schema}
    return (
        ERRORS[kind]
        | limits
        | {error for (of, key), error in LENGTHS.items() if of == kind and key in schema}
    )


@pytest.mark.parametrize("model", [PipelineConfig, OpenDataContractStandard])
def test_each_error_that_a_model_can_raise_has_words(model: type[BaseModel]) -> None:
    kinds = [s for s in schemas(model.__pydantic_core_schema__) if s["type"] not in QUIET]
    assert len(kinds) > 100
    assert set().union(*map(errors_of, kinds)) - WORDS.keys() == set()


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    share: float = Field(default=0, ge=0, le=0.5)
    names: Annotated[list[Annotated[str, like(r"[a-z]+", "small letters")]], Field(min_length=2)] = ["a", "b"]
    either: float | int | str | None = None
    by_name: dict[Annotated[str, like(r"[a-z]", "a small letter")], int] = {}
    parts: "list[Part] | dict[str, Part] | None" = None


def refused(**document: Any) -> list[RefusedValue]:
    with pytest.raises(ValidationError) as error:
        Part.model_validate(document)
    return refused_values(error.value, document)


@pytest.mark.parametrize(
    ("document", "location", "expected", "found"),
    [
        ({"share": "x"}, "share", "a number", "'x'"),
        ({"share": 0.7}, "share", "a number less than or equal to 0.5", "0.7"),
        ({"share": -1}, "share", "a number greater than or equal to 0", "-1"),
        ({"names": ["a"]}, "names", "2 or more values", "['a']"),
        ({"names": ["a", "b", "C"]}, "names.2", "small letters", "'C'"),
        ({"names": ["a\n", "b"]}, "names.0", "small letters", "'a\\n'"),
        ({"names": True}, "names", "a list", "true"),
        ({"names": ["A"]}, "names.0", "small letters", "'A'"),
        ({"either": [1]}, "either", "a number or text in quotes", "[1]"),
        ({"either": date(2026, 1, 2)}, "either", "a number or text in quotes", "2026-01-02"),
        ({"by_name": {"a": None}}, "by_name.a", "a whole number", "nothing"),
        ({"by_name": {"A": 1}}, "by_name.A", "a small letter", "'A'"),
        ({"by_name": {"A": "x"}}, "by_name.A", "a small letter", "'A'"),
        ({"parts": 1}, "parts", "a list or keys with values", "1"),
        ({"parts": [{"share": "x"}]}, "parts.0.share", "a number", "'x'"),
        ({"parts": {"a": {"share": "x"}}}, "parts.a.share", "a number", "'x'"),
    ],
)
def test_a_mistake_is_told_once_with_its_place(
    document: dict[str, Any], location: str, expected: str, found: str
) -> None:
    (value,) = refused(**document)
    assert ".".join(map(str, value.location)) == location
    assert (value.expected(), value.found_text(20)) == (expected, found)


def test_each_mistake_is_told() -> None:
    found = refused(share="x", names=["a", "B", "C"], more=1, by_name={"A": 1, "b": "x"})
    assert [(value.kind, value.location) for value in found] == [
        ("float_parsing", ("share",)),
        ("form", ("names", 1)),
        ("form", ("names", 2)),
        ("form", ("by_name", "A")),
        ("int_parsing", ("by_name", "b")),
        ("extra_forbidden", ("more",)),
    ]


def test_words_may_suit_the_document() -> None:
    (value,) = refused(parts=1)
    assert value.expected({**WORDS, "list_type": "lines"}) == "lines or keys with values"
