"""Whether a table and the checkpoint of the stream that writes it match: pure, nothing is read."""

from dataclasses import dataclass
from typing import Final

from pipelines.delta.table_state import TableState
from pipelines.spark.checkpoints import QueryFiles

BEGIN: Final = "begin"
"""In the note beside a checkpoint: from where a stream that has no checkpoint may begin."""


@dataclass(frozen=True)
class StreamTable:
    """A table that a stream writes, as it was found.

    Attributes:
        path: Where it is, or ought to be.
        state: What it knows; None if there is no table.
        is_filled: Whether it holds rows that a stream without a checkpoint would write once more.
        table_id: The id of the table that the checkpoint has written to, as far as that was noted.
        required: The last micro-batch that it must know if it holds all that the checkpoint says was written;
            None where that is not known.
        has_taken_back: Whether a RESTORE took rows away.
    """

    path: str
    state: TableState | None
    is_filled: bool = False
    table_id: str | None = None
    required: int | None = None
    has_taken_back: bool = False


def misfit(files: QueryFiles, table: StreamTable) -> str | None:
    """Compare a table with the checkpoint of the stream that writes it, before the stream starts.

    A micro-batch is planned in the checkpoint (`offsets`), then committed to the table (`txn`), then done in
    the checkpoint (`commits`). So the table knows the last micro-batch that is done, or the one in flight.

    Args:
        files: What the checkpoint says.
        table: The table.

    Returns:
        What is wrong, in words; None if they match.
    """
    done = files.next_batch - 1
    newest = done if files.in_flight is None else files.in_flight
    last_batch = table.state.batches.get(files.query) if table.state and files.query else None
    if last_batch is not None and last_batch > newest:
        return (
            f"{table.path} is ahead of its checkpoint: found micro-batch {last_batch} of query {files.query},"
            f" expected {newest} or less by {files.path}, which was restored from an older backup. Delta"
            " would skip the next micro-batches"
        )
    if done < 0:
        return _without_a_checkpoint(files, table, last_batch)
    if table.state is None:
        return (
            f"{table.path}: there is no such table, but the checkpoint {files.path} says that micro-batches"
            f" 0 to {done} were written to it"
        )
    return _another(files, table, table.state.table_id) or _behind(files, table, last_batch)


def _another(files: QueryFiles, table: StreamTable, table_id: str) -> str | None:
    if table.table_id in (None, table_id):
        return None
    return (
        f"{table.path} is not the table of the checkpoint {files.path}: found table id {table_id},"
        f" expected {table.table_id}"
    )


def _behind(files: QueryFiles, table: StreamTable, last_batch: int | None) -> str | None:
    if table.required is not None and last_batch is None:
        return (
            f"{table.path} does not know query {files.query} of the checkpoint {files.path}, which says that"
            f" micro-batch {table.required} was written to it: the table was recreated, or one of the two"
            " belongs to another stream"
        )
    if table.required is not None and last_batch is not None and last_batch < table.required:
        return (
            f"{table.path} is behind its checkpoint: found micro-batch {last_batch} of query {files.query},"
            f" expected {table.required} by {files.path}. The table was restored from an older backup"
        )
    if table.has_taken_back:
        return (
            f"{table.path}: a RESTORE rolled back rows that the stream had written, but {files.path} says"
            " that they are in the table"
        )
    return None


def _without_a_checkpoint(files: QueryFiles, table: StreamTable, last_batch: int | None) -> str | None:
    if not table.is_filled or last_batch is not None or BEGIN in files.note:
        return None
    # It has begun with this table, which was empty then: what is there now came beside it, as a replay does.
    if files.in_flight is not None and table.state and table.table_id == table.state.table_id:
        return None
    return (
        f"{table.path} has rows of a stream, but its checkpoint {files.path} does not exist or is new: it was"
        " lost, or moved without its table. The stream would write these rows again"
    )
