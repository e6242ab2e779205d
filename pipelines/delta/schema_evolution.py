"""How a table follows its contract: what may change without touching a row, and how old rows are read."""

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pipelines.contracts.diff import widens
from pipelines.schema_paths import delta_name, flat, holder
from pipelines.sql import name


def alterations(table_schema: StructType, contract_schema: StructType) -> list[str] | None:
    """Return what makes a table's columns those of a contract, as ends of `ALTER TABLE`; None if it is so.

    Optional parts may be added, types made wider, and what was required become optional.

    Args:
        table_schema: The columns of the table.
        contract_schema: The columns that the contract asks for.
    """
    before, after = flat(table_schema), flat(contract_schema)
    added = [path for path in after if path not in before]
    whole = [path for path in added if holder(path) not in added]
    changed = [path for path in after if path in before and before[path].dataType != after[path].dataType]
    gone = before.keys() - after.keys()
    if (
        gone
        or not all(after[path].nullable for path in whole)
        or not all(widens(before[path].dataType, after[path].dataType) for path in changed)
    ):
        return None
    common = [path for path in after if path in before]
    relaxed = [path for path in common if after[path].nullable and not before[path].nullable]
    statements = [f"ALTER COLUMN {delta_name(path)} DROP NOT NULL" for path in relaxed]
    if whole:
        columns = ", ".join(f"{delta_name(path)} {_type_at(contract_schema, path)}" for path in whole)
        statements.append(f"ADD COLUMNS ({columns})")
    if changed:
        statements.append("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    return statements + [
        f"ALTER COLUMN {delta_name(path)} TYPE {after[path].dataType.simpleString()}" for path in changed
    ]


def merged(one: DataType, other: DataType) -> DataType:
    """Return the type that holds the values of both, where one is an earlier state of the other."""
    match one, other:
        case StructType(), StructType():
            other_types = {field.name: field.dataType for field in other}
            both = [
                StructField(
                    f.name,
                    merged(f.dataType, other_types.pop(f.name)) if f.name in other_types else f.dataType,
                )
                for f in one
            ]
            return StructType([*both, *(StructField(name, kind) for name, kind in other_types.items())])
        case ArrayType(), ArrayType():
            return ArrayType(merged(one.elementType, other.elementType))
        case MapType(), MapType():
            return MapType(one.keyType, merged(one.valueType, other.valueType))
        case _:
            return other if widens(one, other) else one


def fitted(value: str, have: DataType, want: DataType, depth: int = 0) -> str:
    """Return SQL for a value in a later type; parts that it lacks are null.

    Args:
        value: SQL for the value.
        have: Its type.
        want: The type it is to have.
        depth: How many collections it lies in.
    """
    if have == want:
        return value
    item = f"_x{depth}"
    match have, want:
        case StructType(), StructType():
            types = {field.name: field.dataType for field in have}
            parts = (
                f"'{f.name}', {fitted(f'{value}.{name(f.name)}', types[f.name], f.dataType, depth)}"
                if f.name in types
                else f"'{f.name}', CAST(NULL AS {f.dataType.simpleString()})"
                for f in want
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
        case ArrayType(), ArrayType():
            inner = fitted(item, have.elementType, want.elementType, depth + 1)
            return f"transform({value}, {item} -> {inner})"
        case MapType(), MapType():
            inner = fitted(item, have.valueType, want.valueType, depth + 1)
            return f"transform_values({value}, (_k{depth}, {item}) -> {inner})"
        case _:
            return f"CAST({value} AS {want.simpleString()})"


def fitted_columns(have: StructType, want: StructType) -> list[str]:
    """Return SQL for each column of a later schema, from rows of an earlier one."""
    types = {field.name: field.dataType for field in have}
    return [
        f"{fitted(name(f.name), types[f.name], f.dataType)} AS {name(f.name)}"
        if f.name in types
        else f"CAST(NULL AS {f.dataType.simpleString()}) AS {name(f.name)}"
        for f in want
    ]


def _type_at(schema: StructType, path: str) -> str:
    kind: DataType = schema
    for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
        match kind:
            case StructType():
                kind = kind[step].dataType
            case ArrayType():
                kind = kind.elementType
            case MapType():
                kind = kind.valueType
    return kind.simpleString()
