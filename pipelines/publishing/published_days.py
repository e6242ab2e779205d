"""The days that publishing has settled: what is on the topic of them is what the batch layer has."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import replace_rows, small_rows
from pipelines.delta.tables import conform
from pipelines.errors import SourceError
from pipelines.ledger.certifications import Verdict, certified, history, require_commit
from pipelines.ledger.ops_tables import PUBLISHED_DAYS, rows_of
from pipelines.publishing.checkpoint_note import SETTLED
from pipelines.publishing.first_start import first_start_of
from pipelines.publishing.settled import Settled
from pipelines.spark.checkpoints import QueryFiles, damaged_file_error, note_path, query_files, write_note
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

_AGAIN: Final = "Publish again from the beginning: docs/publishing.md, 'When versions are gone'"

_log = logging.getLogger(__name__)


class TopicOfAnotherTable(SourceError):
    """Days were published from another batch table than the one at hand. Exit code 4."""


def settled_before(pipeline: Pipeline, query: str, batch: int) -> Settled:
    """Return the days that a stream had settled before a micro-batch.

    Args:
        pipeline: The pipeline.
        query: The id of the stream's query.
        batch: The number of the micro-batch.

    Raises:
        TopicOfAnotherTable: They were settled by another batch table than the one at hand.
        SourceError: The certified version is gone, or is not that of this batch table.
    """
    if not PUBLISHED_DAYS.exists(pipeline):
        return Settled()
    rows = conform(_rows(pipeline, query), PUBLISHED_DAYS.schema).where(F.col("batch") < batch)
    newest = F.max(F.struct("batch_version", "batch_commit")).alias("newest")
    day_rows = small_rows(rows.groupBy("day").agg(newest).select("day", "newest.*").orderBy("day"))
    last = max(day_rows, key=lambda row: row["batch_version"], default=None)
    if last is None:
        return Settled()
    settled = Settled(last["batch_version"], tuple(row["day"] for row in day_rows), last["batch_commit"])
    _require_followed(pipeline, settled)
    return settled


def _require_followed(pipeline: Pipeline, settled: Settled) -> None:
    """Make sure that the batch table has the version that the topic follows, made by the same commit."""
    if not settled.days:
        return

    def refusal(found: str | None) -> SourceError:
        # If readers lack what is certified, that is restored first, and the topic may follow it then.
        certified(pipeline)
        if found is not None:
            return TopicOfAnotherTable(f"{found} is not the one from which days were published. {_AGAIN}")
        return TopicOfAnotherTable(
            f"{pipeline.table('batch')}: its log has no version {settled.version}, from which days were"
            f" published: the table was restored from an older copy, or its log was deleted. {_AGAIN}"
        )

    require_commit(pipeline, settled.version, settled.commit, refusal)


def settled_so_far(pipeline: Pipeline) -> Settled | None:
    """Return the days that publishing has settled, and sent; None if no stream publishes the pipeline.

    Before its first micro-batch is planned, these are the days that were certified when it was started first.
    While that is under way there are none: it sends what days that were sent as a whole have lost or got.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    begun = None if files.next_batch else first_start_of(pipeline, files)
    if begun is not None:
        _require_followed(pipeline, begun)
        if files.in_flight is None:
            return begun
    return None if files.query is None else settled_before(pipeline, files.query, files.next_batch)


def waiting(pipeline: Pipeline) -> list[Verdict]:
    """Return the verdicts by which days were certified since publishing has settled what was certified then.

    There are none while no stream publishes the pipeline, or if publishing is no longer configured.
    """
    settled = settled_so_far(pipeline) if pipeline.config.publish else None
    return [] if settled is None else _certified_since(pipeline, settled)


def may_wait(pipeline: Pipeline) -> list[Verdict]:
    """Return what is `waiting`; if days were published from another batch table, all that is certified.

    Nobody knows then what publishing still needs, which is no reason to stop what only has to keep it.
    """
    try:
        return waiting(pipeline)
    except TopicOfAnotherTable as error:
        _log.warning("what publishing may still need is kept, since its stream is refused: %s", error)
        return _certified_since(pipeline, Settled())


def _certified_since(pipeline: Pipeline, settled: Settled) -> list[Verdict]:
    verdicts = (verdict for verdict in history(pipeline) if verdict.status == "certified")
    return [verdict for verdict in verdicts if verdict.batch_version > settled.version]


def record_settled(pipeline: Pipeline, query: str, batch: int, settled: Settled, topic_id: str) -> None:
    """Record what a micro-batch settles, in place of what an earlier try has recorded.

    Args:
        pipeline: The pipeline.
        query: The id of the stream's query.
        batch: The number of the micro-batch.
        settled: The days, the version at which they are settled, and the days that are left.
        topic_id: The cluster's identifier of the topic.
    """
    PUBLISHED_DAYS.ensure(pipeline)
    one = {
        "query": query,
        "batch": batch,
        "batch_version": settled.version,
        "batch_commit": settled.commit,
        "topic_id": topic_id,
    }
    rows = [{**one, "day": day, "is_left": day in settled.left} for day in settled.days]
    _replace(pipeline, rows, f"{_of(query)} AND batch = {batch}")


@dataclass(frozen=True)
class _Noted:
    """What is noted beside the checkpoint of a micro-batch that has settled days.

    Attributes:
        query: The id of the query.
        batch: The number of the micro-batch.
        version: The version of the batch table.
    """

    query: str
    batch: int
    version: int

    def text(self) -> str:
        return f"{self.query} {self.batch} {self.version}"


def note_settled(pipeline: Pipeline, query: str, batch: int, version: int) -> None:
    """Note beside the checkpoint what a micro-batch has settled: a restored `ops/published_days` forgets it.

    That of the one before is kept: this one may not come to its end.

    Args:
        pipeline: The pipeline.
        query: The id of the stream's query.
        batch: The number of the micro-batch.
        version: The version of the batch table.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    before = _noted_before(files, query, batch)[:1]
    _write_noted(pipeline, files, [_Noted(query, batch, version), *before])


def require_settled_kept(pipeline: Pipeline) -> None:
    """Make sure that `ops/published_days` has what the stream has settled, by the note beside its checkpoint.

    Raises:
        SourceError: It was restored from an older copy, or is gone: differences would be sent twice, and what
            was sent since would never be retracted.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    done = [] if files.query is None else _noted_before(files, files.query, files.next_batch)
    if not done:
        return
    noted, found = done[0], _settled_version(pipeline, done[0].query)
    if found is None or found < noted.version:
        older = f"the table was restored from an older copy: found days published up to version {found}"
        was = "the table, or the rows of this stream, are gone" if found is None else older
        raise SourceError(
            f"{PUBLISHED_DAYS.path(pipeline)}: {was}, expected version {noted.version} of"
            f" {pipeline.table('batch')}, which {files.path} has published. Nothing was sent. Restore a newer"
            f" one. {_AGAIN}"
        )


def _noted_before(files: QueryFiles, query: str, batch: int) -> list[_Noted]:
    """Return what is noted of micro-batches of a query before one, the last first."""
    noted = _settled_in(files.note, files.path)
    return [each for each in noted if each.query == query and each.batch < batch]


def _write_noted(pipeline: Pipeline, files: QueryFiles, noted: Iterable[_Noted]) -> None:
    text = "; ".join(each.text() for each in noted)
    write_note(pipeline.spark, files.path, {**files.note, SETTLED: text})


def _settled_version(pipeline: Pipeline, query: str) -> int | None:
    """Return the newest version of the batch table that a query has settled; None if it has settled none."""
    if not PUBLISHED_DAYS.exists(pipeline):
        return None
    (row,) = small_rows(_rows(pipeline, query).agg(F.max("batch_version").alias("newest")))
    return None if row["newest"] is None else int(row["newest"])


def _settled_in(note: Mapping[str, Any], path: str) -> list[_Noted]:
    """Return what a note says of micro-batches that have settled days, the last first."""
    try:
        parts = (part.split() for part in str(note.get(SETTLED, "")).split(";") if part.strip())
        return [_Noted(query, int(batch), int(version)) for query, batch, version in parts]
    except ValueError:
        raise damaged_file_error(note_path(path), f"`QUERY N VERSION; …` under {SETTLED!r}") from None


def forget_unknown(pipeline: Pipeline) -> None:
    """Forget what micro-batches have settled of which the checkpoint does not know: it was restored."""
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    if files.query is None:
        return
    known = files.next_batch + (files.in_flight is not None)
    forget_from(pipeline, files.query, known)
    kept = _noted_before(files, files.query, known)
    if kept != _settled_in(files.note, files.path):
        _write_noted(pipeline, files, kept)


def forget_from(pipeline: Pipeline, query: str, batch: int) -> None:
    """Forget what a query has settled by a micro-batch and those after it, since they were not published.

    Args:
        pipeline: The pipeline.
        query: The id of the query.
        batch: The number of the first such micro-batch.
    """
    condition = f"{_of(query)} AND batch >= {batch}"
    if PUBLISHED_DAYS.exists(pipeline) and not PUBLISHED_DAYS.rows(pipeline).where(condition).isEmpty():
        PUBLISHED_DAYS.ensure(pipeline)
        _replace(pipeline, [], condition)


def _rows(pipeline: Pipeline, query: str) -> DataFrame:
    return PUBLISHED_DAYS.rows(pipeline).where(_of(query))


def _of(query: str) -> str:
    return f"query = {literal(query)}"


def _replace(pipeline: Pipeline, rows: list[dict[str, Any]], condition: str) -> None:
    """Replace the rows of the pipeline for which a condition holds."""
    frame = PUBLISHED_DAYS.frame(pipeline, rows)
    replace_rows(frame, PUBLISHED_DAYS.path(pipeline), f"{rows_of(pipeline)} AND {condition}")
