"""Engines that read Delta tables without Spark, and without anything of Oncelake."""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

import duckdb
from deltalake import DeltaTable

Rows = list[tuple[date, int]]


def by_delta_rs(table: str) -> Rows:
    """Day and flight of each row, by delta-rs."""
    columns = DeltaTable(table).to_pyarrow_table(columns=["_event_date", "flight"]).to_pydict()
    return sorted(zip(columns["_event_date"], columns["flight"], strict=True))


def by_duckdb(table: str) -> Rows:
    """The same by DuckDB, from the files that delta-rs names: its own extension is a download."""
    files = DeltaTable(table).file_uris()
    if not files:
        return []
    with duckdb.connect() as connection:
        rows = (
            connection.read_parquet(files, hive_partitioning=True).project("_event_date, flight").fetchall()
        )
    return sorted(rows)


ENGINES: Final[Mapping[str, Callable[[str], Rows]]] = {"delta-rs": by_delta_rs, "DuckDB": by_duckdb}


def rows_of(table: str) -> Rows:
    """Day and flight of each row; all engines have to agree."""
    found = {name: read(table) for name, read in ENGINES.items()}
    first = next(iter(found.values()))
    assert all(rows == first for rows in found.values()), found
    return first
