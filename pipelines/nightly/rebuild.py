"""Build days from bronze into the batch layer, by commits that carry the run's epoch."""

from collections.abc import Sequence
from typing import Final

from pipelines.contracts.event_days import Span
from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import commits_since, replace_days_fenced
from pipelines.delta.io import by_day_and_key, on_days
from pipelines.ledger.bronze_index import BronzeSlice
from pipelines.ledger.decoding import decode_all
from pipelines.nightly.night_run import refuse_other_writers
from pipelines.records.decode import valid
from pipelines.records.dedup import clustered, without_key_columns
from pipelines.records.kept_copies import kept_copies
from pipelines.session_settings import session_settings
from pipelines.spark.pipeline import Pipeline

# A task of a rebuild of one day then writes its rows as they come, in the order of the key. By default Spark
# first sorts them by day, which takes time and, if it spills, breaks that order. It sorts the remaining rows
# once as many files are open as the value says. A task has one file open, so 2 is the least that avoids it.
_UNSORTED: Final = {"spark.sql.maxConcurrentOutputFileWriters": "2"}


def build_days(
    pipeline: Pipeline,
    span: Span,
    pieces: BronzeSlice,
    stamp: Stamp,
) -> int:
    """Write days from bronze, as one atomic commit; return the version of the batch table that it made.

    Args:
        pipeline: The pipeline.
        span: The days, and those around them of which all records are looked at.
        pieces: What of bronze may hold records of these days.
        stamp: What the commit carries.

    Raises:
        StaleEpoch: Another run has taken the lease over. Nothing was written.
        InfrastructureError: Others, who hold no lease, changed the days at each try.
    """
    return retry_conflicts(pipeline.table("batch"), lambda: _build(pipeline, span, pieces, stamp))


def _build(pipeline: Pipeline, span: Span, pieces: BronzeSlice, stamp: Stamp) -> int:
    contract = pipeline.contract
    events = valid(decode_all(pipeline, pieces.envelopes), contract)
    candidates = clustered(events.where(on_days(span.near)), contract, pieces.index.records_of(span.near))
    # A row that is not decided stands until the audit fails its day.
    rows = kept_copies(candidates, contract, span.horizon, span.known_days).where(on_days(span.days))
    is_one_day = len(span.days) == 1
    # Partitions by key are as good as others for the files of one day, and their rows are in order.
    in_order = rows if is_one_day else by_day_and_key(rows, contract.key_names)
    with session_settings(pipeline.spark, _UNSORTED if is_one_day else {}):
        return replace_days_fenced(
            without_key_columns(in_order, contract), pipeline.table("batch"), span.days, stamp
        )


def require_alone(pipeline: Pipeline, versions: Sequence[int]) -> None:
    """Make sure that what is about to be certified was written by this run alone.

    Args:
        pipeline: The pipeline.
        versions: The versions that the run's commits made, in order: the one that it began with first, the
            one that it is about to certify last.

    Raises:
        SourceError: Others wrote between.
    """
    table = pipeline.table("batch")
    refuse_other_writers(table, commits_since(pipeline.spark, table, versions[0]), versions)
