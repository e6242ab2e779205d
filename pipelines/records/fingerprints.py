"""Payloads compared: equal for retries of one event, whatever their layout, and for nothing else."""

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pipelines.sql import name


def fingerprint(value: str, kind: DataType, depth: int = 0) -> str:
    """Return SQL for a hash of 64 bits that is equal for equal values, and never null.

    Spark's own hash of several values leaves nulls out, so (null, 5) and (5, null) would be the same. Each
    part has a hash of its own here.

    Args:
        value: SQL for the value.
        kind: Its type.
        depth: How many collections the value lies in.
    """
    item = f"_x{depth}"
    match kind:
        case StructType():
            parts = ", ".join(fingerprint(f"{value}.{name(f.name)}", f.dataType, depth) for f in kind)
            return f"xxhash64({value} IS NULL, {parts})"
        case ArrayType():
            hashes = f"transform({value}, {item} -> {fingerprint(item, kind.elementType, depth + 1)})"
            return f"xxhash64({value} IS NULL, {hashes})"
        case MapType():
            entry = fingerprint(f"element_at({value}, {item})", kind.valueType, depth + 1)
            hashes = f"transform(array_sort(map_keys({value})), {item} -> xxhash64({item}, {entry}))"
            return f"xxhash64({value} IS NULL, {hashes})"
        case _:
            return f"xxhash64({value})"


def canonical(value: str, kind: DataType, depth: int = 0) -> str:
    """Return SQL for a value in a form that is equal for equal values: a map's entries have no order.

    Args:
        value: SQL for the value.
        kind: Its type.
        depth: How many collections the value lies in.
    """
    if not _has_map(kind):
        return value
    item = f"_x{depth}"
    match kind:
        case StructType():
            parts = (canonical(f"{value}.{name(f.name)}", f.dataType, depth) for f in kind)
            return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(parts)}) END"
        case ArrayType():
            return f"transform({value}, {item} -> {canonical(item, kind.elementType, depth + 1)})"
        case MapType():
            entry = f"element_at({value}, {item})"
            pair = f"struct({item} AS k, {canonical(entry, kind.valueType, depth + 1)} AS v)"
            return f"transform(array_sort(map_keys({value})), {item} -> {pair})"
    return value


def _has_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case StructType():
            return any(_has_map(field.dataType) for field in kind)
        case ArrayType():
            return _has_map(kind.elementType)
        case _:
            return False
