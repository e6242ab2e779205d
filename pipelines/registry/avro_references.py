"""Avro schemas that name types of other schemas -> one schema that defines all it names."""

from collections.abc import Mapping
from typing import Any, Final

from pipelines.registry.avro_names import names_of

_PRIMITIVE: Final = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED: Final = ("record", "error", "enum", "fixed")
_COMPLEX: Final = (*_NAMED, "array", "map")

Types = dict[str, Any]


def inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return an Avro schema with each type that it names defined where it is first named.

    Args:
        schema: As parsed JSON.
        definitions: Other schemas, as parsed JSON, by the names under which they are referred to. The types
            within them may be named, too.
    """
    waiting: Types = {}
    for name, definition in definitions.items():
        _apart(_with_full_name(definition, name), "", waiting)
    own: Types = {}
    _apart(schema, "", own)
    return _inlined(schema, "", {name: kind for name, kind in waiting.items() if name not in own})


def _with_full_name(definition: Any, reference: str) -> Any:
    """Return a type that names no namespace is known by that of its reference."""
    match definition:
        case {"name": str() as name} if "." not in name and not definition.get("namespace"):
            return {**definition, "name": reference} if reference.rpartition(".")[2] == name else definition
        case _:
            return definition


def _apart(node: Any, space: str, types: Types) -> Any:
    """Return a schema with the names of types instead of the types, which go into `types`."""
    match node:
        case list():
            return [_apart(item, space, types) for item in node]
        case {"type": kind}:
            full, inner = names_of(node, space)
            whole = {**node, **_parts(node, lambda part: _apart(part, inner, types))}
            if kind not in _NAMED:
                return whole if kind in _COMPLEX else {**whole, "type": _apart(kind, space, types)}
            whole.pop("namespace", None)
            types.setdefault(full, {**whole, "name": full} if inner else {**whole, "namespace": ""})
            return full
        case _:
            return node


def _inlined(node: Any, space: str, waiting: Types) -> Any:
    match node:
        case str() if node not in _PRIMITIVE:
            # The namespace around a name comes before the one without a name.
            for full in (node,) if "." in node or not space else (f"{space}.{node}", node):
                if full in waiting:
                    return _inlined(waiting.pop(full), "", waiting)
            return node
        case list():
            return [_inlined(item, space, waiting) for item in node]
        case {"type": kind}:
            _, inner = names_of(node, space)
            whole = {**node, **_parts(node, lambda part: _inlined(part, inner, waiting))}
            return whole if kind in _COMPLEX else {**whole, "type": _inlined(kind, space, waiting)}
        case _:
            return node


def _parts(node: Mapping[str, Any], change: Any) -> dict[str, Any]:
    parts = {key: change(node[key]) for key in ("items", "values") if key in node}
    if isinstance(fields := node.get("fields"), list):
        parts["fields"] = [
            {**field, "type": change(field["type"])} if isinstance(field, dict) and "type" in field else field
            for field in fields
        ]
    return parts
