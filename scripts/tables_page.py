"""Write docs/tables.md, the tables under `ops/`, from their catalog: `make pages`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipelines.ledger.catalog import CATALOG, TableSpec

PAGE: Final = "docs/tables.md"
_HEAD: Final = """# Tables under `ops/`

The Delta tables in which a lake remembers what its jobs have done. All pipelines of a lake share them.
The tables of a pipeline (`bronze`, `speed`, `batch`, `quarantine`) and the meaning of single columns are
in [Architecture](architecture.md#steps-and-tables).

This page is generated from `pipelines/ledger/catalog.py` by `make pages`.
"""


def page_text() -> str:
    """Return the page: a section for each table, with its columns and their types."""
    return _HEAD + "".join("\n" + "\n".join(_section(spec)) + "\n" for spec in CATALOG)


def _section(spec: TableSpec) -> Iterator[str]:
    upkeep = [
        *(["compacted"] if spec.is_compacted else []),
        *(["vacuumed"] if spec.is_vacuumed else []),
    ]
    yield f"## `ops/{spec.name}`\n"
    yield f"{spec.meaning} Partitions: {', '.join(f'`{c}`' for c in spec.partitions) or 'none'}."
    yield f"`maintain`: {' and '.join(upkeep) or 'left alone'}.\n"
    yield "| column | type |\n|---|---|"
    for part in _columns(spec.ddl):
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
