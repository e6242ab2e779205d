"""Write docs/tables.md, the tables of a lake and their properties, from where they are made: `make pages`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pipelines.delta.record_tables import BRONZE, ORIGIN_COLUMNS, QUARANTINE
from pipelines.delta.table_properties import OF_CATALOGS, PROPERTIES
from pipelines.ledger.ops_tables import OPS_TABLES, TableSpec

PAGE: Final = "docs/tables.md"
_HEAD: Final = """# Tables

The Delta tables of a lake, with their columns and table properties.
[Architecture](architecture.md#steps-and-tables) explains which steps read and write them, and what
some of the columns mean. The [glossary](glossary.md) defines the terms.

This page is generated from `pipelines/delta/record_tables.py`, `pipelines/delta/table_properties.py` and
`pipelines/ledger/ops_tables.py`. To change it, edit these files and run `make pages`.

## Tables of a pipeline
"""
_LAYERS: Final = {
    "bronze": (
        (
            "Every record of the topic. One more column, `_forgotten struct<at: timestamp, event_time:"
            " timestamp>`, is set if `oncelake forget` has emptied the record. A table of an earlier release"
            " gets this column when it is needed."
        ),
        BRONZE,
    ),
    "quarantine": ("All records that break the contract, with the reason.", QUARANTINE),
    "speed": (
        "Events in real time. Columns: those of the contract, and these.",
        f"_event_date date, {ORIGIN_COLUMNS}",
    ),
    "batch": (
        "Events of past days. Columns: those of the contract, and these.",
        f"_event_date date, {ORIGIN_COLUMNS}",
    ),
    "serving": (
        "Certified days, if `serving.table` is set. Columns: those of the contract, and these.",
        f"_event_date date, {ORIGIN_COLUMNS}",
    ),
}
_CATALOGS: Final = """
## Properties for catalogs

`oncelake catalog register` sets these properties. No job reads them.

"""
_OPS: Final = """
## Tables under `ops/`

These tables record what the jobs have done. All pipelines of a lake share them.
`maintain` compacts tables with `OPTIMIZE` and vacuums them with `VACUUM`, as listed for each table.
"""


def page_text() -> str:
    """Return the page: a section for each table, with its columns, their types and its properties."""
    layers = (_layer(name, meaning, ddl) for name, (meaning, ddl) in _LAYERS.items())
    ops = (_section(spec) for spec in OPS_TABLES)
    catalogs = [_CATALOGS, _table_of_properties(OF_CATALOGS), "\n"]
    parts = [_HEAD, *map(_joined, layers), *catalogs, _OPS, *map(_joined, ops)]
    return "".join(parts)


def _joined(lines: Iterable[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"


def _layer(table: str, meaning: str, ddl: str) -> Iterator[str]:
    yield f"### `{table}/NAME`\n"
    yield f"{meaning}\n"
    yield from _table_of_columns(ddl)
    for layer, properties in PROPERTIES.items():
        if layer == table:
            yield "\n" + _table_of_properties(properties)


def _table_of_properties(properties: Mapping[str, str]) -> str:
    rows = (f"| `{name}` | {kept} |" for name, kept in properties.items())
    return "\n".join(["| property | meaning |\n|---|---|", *rows])


def _section(spec: TableSpec) -> Iterator[str]:
    upkeep = [
        *(["compacted"] if spec.is_compacted else []),
        *(["vacuumed"] if spec.is_vacuumed else []),
    ]
    yield f"### `ops/{spec.name}`\n"
    yield f"{spec.meaning} Partitions: {', '.join(f'`{c}`' for c in spec.partitions) or 'none'}."
    yield f"`maintain`: {' and '.join(upkeep) or 'not changed'}.\n"
    yield from _table_of_columns(spec.ddl)


def _table_of_columns(ddl: str) -> Iterator[str]:
    yield "| column | type |\n|---|---|"
    for part in _columns(ddl):
        name, _, kind = part.partition(" ")
        yield f"| `{name}` | `{kind}` |"


def _columns(ddl: str) -> Iterator[str]:
    """Split columns at commas that lie outside of angle brackets."""
    depth, begin = 0, 0
    for at, character in enumerate(ddl):
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            yield ddl[begin:at].strip()
            begin = at + 1
    yield ddl[begin:].strip()


if __name__ == "__main__":
    Path(PAGE).write_text(page_text(), encoding="utf-8")
