"""What a slot of a micro-batch was made of, so that a retry that would send other rows is noticed."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.publishing.headers import hashed
from pipelines.publishing.slots import ContentError, SlotProgress

COUNTED: Final = "slot int, rows bigint, digest string"
"""What `count_slot` returns for a slot."""

_HASHES: Final = ("_hash_1", "_hash_2")
_MASK: Final = 2**64 - 1


def with_hashes(rows: DataFrame, identity: Collection[str]) -> DataFrame:
    """Return rows with two hashes of 64 bits each, of what distinguishes them.

    Args:
        rows: With `key` and `value`.
        identity: The columns that distinguish rows; those that are not there do not.
    """
    # A hash ignores nulls, so whether a row has a value is hashed by itself.
    columns = [F.col("value").isNull()]
    for name in rows.columns:
        if name in identity:
            columns += hashed(rows) if name == "headers" else [F.col(name)]
    hashes = (F.xxhash64(F.lit(number), *columns).alias(name) for number, name in enumerate(_HASHES))
    return rows.select("*", *hashes)


@dataclass(frozen=True)
class Content:
    """The rows of a slot: how many, and a digest that is the same in whatever order they come."""

    rows: int
    digest: str


class ContentCounter:
    """Counts the rows of a slot while they pass, and sums up their hashes."""

    def __init__(self) -> None:
        self._rows, self._sums = 0, [0] * len(_HASHES)

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows in, as `with_hashes` has made them, and hands them on."""
        for batch in batches:
            self._rows += batch.num_rows
            for number, name in enumerate(_HASHES):
                # The sum of 64-bit integers wraps around, in Arrow as here.
                added = pc.sum(batch.column(name), min_count=0).as_py()
                self._sums[number] = (self._sums[number] + added) & _MASK
            yield batch

    def drained(self, batches: Iterator[pa.RecordBatch]) -> Content:
        """Count rows that nobody else wants."""
        for _ in self.counted(batches):
            pass
        return self.content

    @property
    def content(self) -> Content:
        """What has passed."""
        return Content(self._rows, "".join(f"{total:016x}" for total in self._sums))


NOTHING: Final = ContentCounter().content
"""Of a slot without rows."""


def count_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of the slot that is the partition of the frame; yields one row as `COUNTED` has it."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("count_slot is for tasks of Spark")
    content = ContentCounter().drained(batches)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([context.partitionId()], pa.int32()),
            pa.array([content.rows], pa.int64()),
            pa.array([content.digest], pa.string()),
        ],
        names=["slot", "rows", "digest"],
    )


def refuse_other_rules(slot: int, mark: SlotProgress, rules: Mapping[str, str], finish: str) -> None:
    """Make sure that a slot that is done was made by the current rules.

    Args:
        slot: Its number.
        mark: What progress says of it.
        rules: The current ones.
        finish: The command that publishes the rest of the micro-batch, for the message.

    Raises:
        ContentError: It was not.
    """
    if mark.written is None:
        # Progress from before rules were kept.
        return
    was = mark.written.rules
    if other := sorted(name for name in was.keys() | rules.keys() if was.get(name) != rules.get(name)):
        differences = "; ".join(
            f"{name}: found {rules.get(name, 'nothing')}, expected {was.get(name, 'nothing')}"
            for name in other
        )
        raise ContentError(
            f"slot {slot} of micro-batch {mark.batch} was published by other rules than the current"
            f" ones, and other slots were not published: {differences}. Rows would be lost, so nothing more"
            f" was sent. Undo the change, finish the micro-batch ({finish}), then make the change"
        )


def refuse_other_rows(slot: int, mark: SlotProgress, content: Content, otherwise: str) -> None:
    """Make sure that a slot that is done was made of the rows that it has now.

    Args:
        slot: Its number.
        mark: What progress says of it.
        content: What it has now.
        otherwise: What to do if it cannot be made of them again, for the message.

    Raises:
        ContentError: It was not.
    """
    was = mark.written
    if was is not None and (was.rows, was.digest) != (content.rows, content.digest):
        raise ContentError(
            f"slot {slot} of micro-batch {mark.batch} was published with {was.rows} rows"
            f" ({was.digest}), and has {content.rows} now ({content.digest}): a file was skipped or replaced,"
            " or the query is not deterministic. Rows would be lost, so nothing more was sent. Restore the"
            f" files that it was read from, and start again. {otherwise}"
        )
