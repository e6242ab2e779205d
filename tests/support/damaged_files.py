"""Data files of tables as a fault of a disk, of a copy or of a store leaves them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import pyarrow.parquet as pq

Fault = Literal["changed", "cut off", "gone"]


def data_file(table: Path) -> Path:
    """The largest data file of a table, without the checksum that only some file systems have beside it."""
    files = (file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts)
    file = max(files, key=lambda each: each.stat().st_size)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def change_page(file: Path, column: str) -> None:
    """Flips one bit of what a file has of a column: in its dictionary, or in its last page if it has none."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    chunks = (group.column(number) for number in range(group.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
    end = chunk.data_page_offset
    if chunk.dictionary_page_offset is None:
        end += chunk.total_compressed_size
    content = bytearray(file.read_bytes())
    content[end - 1] ^= 1
    file.write_bytes(content)


def cut(file: Path, column: str) -> None:
    """Keeps the first half of a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def delete(file: Path, column: str) -> None:
    """Deletes a file."""
    file.unlink()


FAULTS: Final[Mapping[Fault, Callable[[Path, str], None]]] = {
    "changed": change_page,
    "cut off": cut,
    "gone": delete,
}
