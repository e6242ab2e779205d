"""A schema of JSON -> the columns that its records have: types and properties, and what may be null.

Source: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

ANYTHING: Final = VariantType()

_TYPES: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
}
_FORMATS: Final[dict[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}
_JOINTS: Final = ("allOf", "anyOf", "oneOf")
_DIGITS_OF_LONG: Final = 18
_MOST_FOLLOWED: Final = 20_000

Names = frozenset[str]
_NONE: Final[Names] = frozenset()


class AnyInteger(LongType):
    """A whole number without bounds: most are small, and no schema says how small."""


class AnyNumber(DoubleType):
    """A number, with places or without, in as many digits as it likes."""

    @classmethod
    def typeName(cls) -> str:  # noqa: N802 - as Spark calls it
        """Its name in messages."""
        return DoubleType.typeName()


class JsonColumns:
    """Reads a document and what it refers to within itself.

    Args:
        document: As parsed JSON.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        self._followed = 0

    def part(self, node: Any, seen: Names = _NONE) -> tuple[DataType, bool]:
        """Return the type of a part, and whether it may be null.

        Args:
            node: The part.
            seen: The references that led to it.
        """
        return self._kind(node, seen), self._may_be_null(node, seen)

    def _kind(self, node: Any, seen: Names, above: Names = _NONE) -> DataType:
        """Return the type of a part; `above` are names that the schemas around it require of it."""
        if not isinstance(node, dict):
            return ANYTHING
        if isinstance(reference := node.get("$ref"), str):
            # What holds itself has no end as columns.
            target = None if reference in seen else self._target(reference)
            return self._kind(target, seen | {reference}, above)
        others = [name for name in _types(node) if name != "null"]
        if others in ([], ["object"]) and any(joint in node for joint in _JOINTS):
            return self._joined(node, seen, above)
        if not others:
            return NullType() if _types(node) else ANYTHING
        if others == ["object"]:
            return self._object(node, seen, above)
        return self._single(others[0], node, seen) if len(others) == 1 else ANYTHING

    def _single(self, name: str, node: Mapping[str, Any], seen: Names) -> DataType:
        match name:
            case "array":
                return ArrayType(*self.part(node.get("items"), seen))
            case "string":
                return _FORMATS.get(str(node.get("format")), StringType())
            case "integer":
                return _integer(node)
            case "number":
                return AnyNumber()
            case _:
                return _TYPES.get(name, ANYTHING)

    def _object(self, node: Mapping[str, Any], seen: Names, above: Names) -> DataType:
        properties = node.get("properties")
        if not isinstance(properties, dict) or not properties:
            return MapType(StringType(), *self.part(node.get("additionalProperties"), seen))
        fields, required = [], self._required(node, seen) | above
        for name, inner in properties.items():
            kind, nullable = self.part(inner, seen)
            fields.append(StructField(name, kind, nullable or name not in required))
        return StructType(fields)

    def _required(self, node: Any, seen: Names) -> Names:
        """Return the names that must be there, also by what `allOf` adds."""
        if not isinstance(node, dict):
            return _NONE
        if isinstance(reference := node.get("$ref"), str):
            target = None if reference in seen else self._target(reference)
            return self._required(target, seen | {reference})
        names = node.get("required")
        required = frozenset(map(str, names)) if isinstance(names, list) else _NONE
        return required.union(*(self._required(branch, seen) for branch in _branches(node, "allOf")))

    def _joined(self, node: Mapping[str, Any], seen: Names, above: Names) -> DataType:
        """Return what several schemas say together.

        Of objects all they name, of all else one type or null.
        """
        required = above | self._required(node, seen)
        joined = {joint: [self._kind(b, seen, required) for b in _branches(node, joint)] for joint in _JOINTS}
        own = self._object(node, seen, above) if _types(node) else None
        typed = {joint: [k for k in kinds if k != NullType()] for joint, kinds in joined.items()}
        others = [kind for kinds in typed.values() for kind in kinds]
        if own is None and len(others) == 1:
            return others[0]
        every = [kind for kind in (own, *typed["allOf"]) if isinstance(kind, StructType)]
        if own is None and not every and not any(_are_objects(typed[joint]) for joint in _JOINTS[1:]):
            return ANYTHING
        combined = _both([*every, *(_either(typed[joint]) for joint in _JOINTS[1:])])
        return combined if combined.fields else own or ANYTHING

    def _may_be_null(self, node: Any, seen: Names) -> bool:
        """Return whether null keeps a schema, as far as is known: what is not known may be."""
        if not isinstance(node, dict):
            return True
        if isinstance(reference := node.get("$ref"), str):
            return reference in seen or self._may_be_null(self._target(reference), seen | {reference})
        says = [
            not _types(node) or "null" in _types(node),
            "const" not in node or node["const"] is None,
            not isinstance(node.get("enum"), list) or None in node["enum"],
            node.get("not") not in ({"type": "null"}, {"const": None}, {"enum": [None]}),
        ]
        for joint in _JOINTS:
            if branches := _branches(node, joint):
                allowed = [self._may_be_null(branch, seen) for branch in branches]
                says.append(all(allowed) if joint == "allOf" else any(allowed))
        return all(says)

    def _target(self, reference: str) -> Any:
        """Return what a reference within the document leads to; None if it leads elsewhere.

        Raises:
            ValueError: Too many were followed: a few that fork again and again have no end in practice.
        """
        self._followed += 1
        if self._followed > _MOST_FOLLOWED:
            raise ValueError(f"its references ($ref) stand for more than {_MOST_FOLLOWED:,} parts")
        own = self.document.get("$id") if isinstance(self.document, dict) else None
        place = reference.removeprefix(own) if isinstance(own, str) else reference
        if place and not place.startswith("#"):
            return None
        place = unquote(place.removeprefix("#"))
        if place and not place.startswith("/"):
            return next(_anchored(self.document, place), None)
        node = self.document
        for step in place.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            match node:
                case dict():
                    node = node.get(name)
                case list() if name.isdecimal() and int(name) < len(node):
                    node = node[int(name)]
                case _:
                    return None
        return node


def _types(node: Mapping[str, Any]) -> list[str]:
    types = node.get("type", "object" if "properties" in node else [])
    return [str(name) for name in (types if isinstance(types, list) else [types])]


def _branches(node: Mapping[str, Any], joint: str) -> list[Any]:
    branches = node.get(joint)
    return branches if isinstance(branches, list) else []


def _integer(node: Mapping[str, Any]) -> DataType:
    numbers = {name: value for name, value in node.items() if isinstance(value, int | float)}
    least = [numbers[name] for name in ("minimum", "exclusiveMinimum") if name in numbers]
    most = [numbers[name] for name in ("maximum", "exclusiveMaximum") if name in numbers]
    if not least or not most:
        return AnyInteger()
    if max(least) >= -(2**31) and min(most) < 2**31:
        return IntegerType()
    largest = max(abs(max(least)), abs(min(most)))
    digits = len(str(int(largest))) if largest < 10**_DIGITS_OF_LONG else _DIGITS_OF_LONG + 1
    return AnyInteger() if digits > _DIGITS_OF_LONG else DecimalType(digits, 0)


def _are_objects(kinds: list[DataType]) -> bool:
    return bool(kinds) and all(isinstance(kind, StructType) for kind in kinds)


def _either(kinds: list[DataType]) -> StructType:
    """Return the fields of an object that has one of these types; fields that one lacks are optional."""
    objects = [kind if isinstance(kind, StructType) else StructType([]) for kind in kinds]
    fields = []
    for name in dict.fromkeys(name for kind in objects for name in kind.fieldNames()):
        fields_of_name = [kind[name] for kind in objects if name in kind.fieldNames()]
        same = all(field.dataType == fields_of_name[0].dataType for field in fields_of_name)
        nullable = len(fields_of_name) < len(objects) or any(field.nullable for field in fields_of_name)
        fields.append(StructField(name, fields_of_name[0].dataType if same else ANYTHING, nullable))
    return StructType(fields)


def _both(objects: list[StructType]) -> StructType:
    """Return what objects have that keep all of these."""
    fields = []
    for name in dict.fromkeys(name for kind in objects for name in kind.fieldNames()):
        fields_of_name = [kind[name] for kind in objects if name in kind.fieldNames()]
        data_type = next((field.dataType for field in fields_of_name if field.dataType != ANYTHING), ANYTHING)
        fields.append(StructField(name, data_type, all(field.nullable for field in fields_of_name)))
    return StructType(fields)


def _anchored(node: Any, name: str) -> Iterator[Any]:
    """Yield the parts that carry a name of their own, as `$anchor`, or as `$id` in older drafts."""
    if isinstance(node, dict):
        if node.get("$anchor") == name or f"#{name}" in (node.get("$id"), node.get("id")):
            yield node
        for inner in node.values():
            yield from _anchored(inner, name)
    elif isinstance(node, list):
        for inner in node:
            yield from _anchored(inner, name)
