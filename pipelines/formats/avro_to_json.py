"""Avro -> JSON text, as SQL made from the schema that a value was written by.

Spark reads Avro and writes JSON, with gaps through which a record could end a job or become another one.
So it gets a schema that reads the same bytes, with these changes:

- The value lies in a record of two fields, and the second is a mark that `PAYLOAD_END` adds to the bytes.
  Only where the value ends with its bytes is the mark read.
- Times of day are plain numbers: Spark cannot write one that lies outside of a day, and would end the query.
- Fields that differ only in case get other names while Spark reads them.

A union of several types, which Spark reads as an object of members, is then replaced by the one that is set.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pipelines.registry.avro_names import names_of
from pipelines.sql import literal, name

VALUE: Final = "r"
END: Final = "_end"
# What is behind a value must not look like it by chance; nothing hangs on nobody knowing it.
PAYLOAD_END: Final = "X'9E3779B97F4A7C15'"

_MOST_PARTS: Final = 20_000
_TIMES_OF_DAY: Final = ("time-millis", "time-micros")
_JSON_TIMES: Final = (
    "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", 'timeZone', 'UTC',"
    " 'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
# What Java writes for bytes that are no UTF-8.
_REPLACED: Final = "decode(X'EFBFBD', 'UTF-8')"

Sql = Callable[[str], str]


@dataclass(frozen=True)
class _Part:
    """A part of a schema.

    Attributes:
        schema: As Spark gets it.
        shown: Makes of SQL for what Spark has read SQL for what is meant; None where they are the same.
        broken: Makes of it an SQL condition that is true if a text in it is not UTF-8; None without texts.
        is_scalar: Whether it holds no others.
        parts: How many parts it has, with those of the types that it names.
        takes_bytes: Whether each value of it takes a byte at least.
    """

    schema: Any
    shown: Sql | None = None
    broken: Sql | None = None
    is_scalar: bool = True
    parts: int = 1
    takes_bytes: bool = True


def as_read(text: str, payload: str) -> str:
    """Return SQL for what Spark reads: a struct of value and mark; without a mark it cannot be read.

    Args:
        text: The writer's schema.
        payload: SQL for the bytes.
    """
    wrapped = {
        "type": "record",
        "name": "_oncelake",
        "fields": [
            {"name": VALUE, "type": _root(text).schema},
            {"name": END, "type": {"type": "fixed", "name": "_oncelake_end", "size": 8}},
        ],
    }
    bytes_ = f"concat({payload}, {PAYLOAD_END})"
    return f"from_avro({bytes_}, {literal(json.dumps(wrapped))}, map('mode', 'PERMISSIVE'))"


def as_json(text: str, read: str) -> str:
    """Return SQL for the JSON text `{"r": VALUE}`; null if the bytes are not one value of the schema.

    Args:
        text: The writer's schema.
        read: A column made by `as_read`.
    """
    shown = _root(text).shown
    value = f"{read}.{VALUE}"
    document = f"to_json(named_struct('{VALUE}', {shown(value) if shown else value}), {_JSON_TIMES})"
    return f"CASE WHEN {read}.{END} = {PAYLOAD_END} THEN {document} END"


def has_broken_text(text: str, read: str, document: str) -> str:
    """Return an SQL condition that is true if a text of a value is not UTF-8.

    Args:
        text: The writer's schema.
        read: A column made by `as_read`.
        document: A column made by `as_json`; the texts are looked at only if it holds a sign for what could
            not be written.
    """
    broken = _root(text).broken
    return f"contains({document}, {_REPLACED}) AND {broken(f'{read}.{VALUE}')}" if broken else "false"


def _root(text: str) -> _Part:
    root = _part(json.loads(text), "", {})
    # A few types that name each other twice stand for more SQL than any memory holds.
    if root.parts > _MOST_PARTS:
        raise ValueError(f"the types that it names stand for more than {_MOST_PARTS:,} parts")
    return root


def _part(node: Any, namespace: str, named_parts: dict[str, _Part]) -> _Part:
    """Return a part of a schema; `named_parts` are the named types before it, by full name."""
    match node:
        case "string":
            part = _Part(node, broken=lambda v: f"NOT is_valid_utf8({v})")
        case "null":
            part = _Part(node, takes_bytes=False)
        case str():
            named = named_parts.get(f"{namespace}.{node}") or named_parts.get(node)
            part = replace(named, schema=node) if named else _Part(node)
        case list():
            part = _union([_part(member, namespace, named_parts) for member in node])
        case dict():
            part = _defined(node, namespace, named_parts)
        case _:
            part = _Part(node)
    return part


def _defined(node: dict[str, Any], namespace: str, named_parts: dict[str, _Part]) -> _Part:
    match node:
        case {"type": ("record" | "error") as kind, "fields": list(fields), **others}:
            return _record({"type": kind, **others}, fields, namespace, named_parts)
        case {"type": "array", "items": items}:
            return _array(node, _part(items, namespace, named_parts))
        case {"type": "map", "values": values}:
            return _map(node, _part(values, namespace, named_parts))
        case {"type": ("enum" | "fixed"), **others}:
            full, _ = names_of(others, namespace)
            named_parts[full] = _Part(node, takes_bytes=others.get("size") != 0)
            return named_parts[full]
        case {"type": kind, **others}:
            inner = _part(kind, namespace, named_parts)
            if others.get("logicalType") in _TIMES_OF_DAY:
                del others["logicalType"]
            return replace(inner, schema={**others, "type": inner.schema})
        case _:
            return _Part(node)


def _record(
    node: dict[str, Any], fields: list[dict[str, Any]], namespace: str, named_parts: dict[str, _Part]
) -> _Part:
    full, space = names_of(node, namespace)
    parts = [_part(field.get("type"), space, named_parts) for field in fields]
    sent = [str(field.get("name")) for field in fields]
    read = list(_distinct(sent))
    shown: Sql | None = None
    if read != sent or any(part.shown for part in parts):

        def shown(value: str) -> str:
            inner = (
                f"{literal(field)}, {_applied(part.shown, f'{value}.{name(column)}')}"
                for field, column, part in zip(sent, read, parts, strict=True)
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(inner)}) END"

    texts = [(column, part.broken) for column, part in zip(read, parts, strict=True) if part.broken]

    def broken(value: str) -> str:
        return f"({' OR '.join(inner(f'{value}.{name(column)}') for column, inner in texts)})"

    # Defaults and aliases are for readers of another schema.
    schema: dict[str, Any] = {key: node[key] for key in ("type", "name", "namespace") if key in node}
    schema["fields"] = [{"name": c, "type": p.schema} for c, p in zip(read, parts, strict=True)]
    count = 1 + sum(part.parts for part in parts)
    named_parts[full] = _Part(
        schema,
        shown,
        broken if texts else None,
        is_scalar=False,
        parts=count,
        takes_bytes=any(part.takes_bytes for part in parts),
    )
    return named_parts[full]


def _distinct(names: list[str]) -> Iterator[str]:
    """Yield the names, those changed that another equals but for case."""
    lower = [name.lower() for name in names]
    for position, own in enumerate(names):
        changed = own
        if lower.count(own.lower()) > 1:
            changed = f"{own}_{position}"
            while changed.lower() in lower:
                changed += "_"
        yield changed


def _array(node: dict[str, Any], items: _Part) -> _Part:
    if not items.takes_bytes:
        raise ValueError("an array of values without bytes: four bytes would stand for a million of them")
    shown, broken = items.shown, items.broken
    return _Part(
        {**node, "items": items.schema},
        (lambda v: f"transform({v}, _x -> {shown('_x')})") if shown else None,
        (lambda v: f"exists({v}, _x -> {broken('_x')})") if broken else None,
        is_scalar=False,
        parts=1 + items.parts,
    )


def _map(node: dict[str, Any], values: _Part) -> _Part:
    shown, inner = values.shown, values.broken

    def broken(value: str) -> str:
        keys = f"exists(map_keys({value}), _x -> NOT is_valid_utf8(_x))"
        return f"({keys} OR exists(map_values({value}), _x -> {inner('_x')}))" if inner else keys

    return _Part(
        {**node, "values": values.schema},
        (lambda v: f"transform_values({v}, (_k, _x) -> {shown('_x')})") if shown else None,
        broken,
        is_scalar=False,
        parts=1 + values.parts,
    )


def _union(members: list[_Part]) -> _Part:
    schema = [member.schema for member in members]
    count = 1 + sum(member.parts for member in members)
    set_ = [member for member in members if _kind(member.schema) != "null"]
    if len(set_) == 1:
        return _Part(schema, set_[0].shown, set_[0].broken, set_[0].is_scalar, count)
    if not set_ or {_kind(member.schema) for member in set_} in ({"int", "long"}, {"float", "double"}):
        return _Part(schema)

    def shown(value: str) -> str:
        cases = (
            f"WHEN {value}.member{number} IS NOT NULL THEN {_any(member, f'{value}.member{number}')}"
            for number, member in enumerate(set_)
        )
        return f"CASE {' '.join(cases)} END"

    texts = [(number, member.broken) for number, member in enumerate(set_) if member.broken]

    def broken(value: str) -> str:
        return f"({' OR '.join(inner(f'{value}.member{number}') for number, inner in texts)})"

    return _Part(schema, shown, broken if texts else None, parts=count)


def _any(part: _Part, value: str) -> str:
    """Return SQL for a value as one of any type."""
    shown = _applied(part.shown, value)
    return f"CAST({shown} AS VARIANT)" if part.is_scalar else f"to_variant_object({shown})"


def _kind(schema: Any) -> Any:
    return _kind(schema.get("type")) if isinstance(schema, dict) else schema


def _applied(change: Sql | None, value: str) -> str:
    return change(value) if change else value
