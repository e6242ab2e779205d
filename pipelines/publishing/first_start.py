"""What was certified when a stream was started for the first time: days certified since are its to send.

Its first micro-batch may come much later: a start can die, wait for the cluster, or find another run.
docs/decisions/0092 has what was lost by that.
"""

from typing import Final

from pipelines.ledger.certifications import history
from pipelines.publishing.checkpoint_note import FIRST_START
from pipelines.publishing.settled import Settled
from pipelines.spark.checkpoints import QueryFiles, damaged_file_error, note_path, query_files, write_note
from pipelines.spark.pipeline import Pipeline

_NONE: Final = "-"


def note_first_start(pipeline: Pipeline) -> None:
    """Note beside the checkpoint what is certified now, if the stream was not started before.

    What is noted there of another query is about a stream that has ended. An earlier release notes nothing;
    where its stream has planned nothing either, this start is the first.

    Args:
        pipeline: The pipeline; this run has its slots.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    has_planned = files.next_batch > 0 or files.in_flight is not None
    if not has_planned and first_start_of(pipeline, files) is None:
        _note(pipeline, files, Settled().since(history(pipeline)) or Settled(), _NONE)


def claim_first_start(pipeline: Pipeline, query: str) -> Settled | None:
    """Return what was certified at the first start of a stream, which from now on is that of its query.

    Args:
        pipeline: The pipeline.
        query: The id of the query.

    Returns:
        The days; None if that was not noted: an earlier release has started the stream.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    begun = first_start_of(pipeline, files)
    if begun is not None:
        _note(pipeline, files, begun, query)
    return begun


def first_start_of(pipeline: Pipeline, files: QueryFiles) -> Settled | None:
    """Return what was certified when a stream was started for the first time; None if that is not noted.

    Args:
        pipeline: The pipeline.
        files: What the checkpoint of the stream says.

    Raises:
        SourceError: The note is damaged.
    """
    if FIRST_START not in files.note:
        return None
    try:
        number, commit, query = str(files.note[FIRST_START]).split()
        version = int(number)
    except ValueError:
        expected = f"`VERSION COMMIT QUERY` under {FIRST_START!r}"
        raise damaged_file_error(note_path(files.path), expected) from None
    if query not in (_NONE, files.query):
        return None
    then = (verdict for verdict in history(pipeline) if verdict.batch_version <= version)
    days = (Settled().since(then) or Settled()).days
    return Settled(version, days, None if commit == _NONE else commit)


def _note(pipeline: Pipeline, files: QueryFiles, begun: Settled, query: str) -> None:
    text = f"{begun.version} {begun.commit or _NONE} {query}"
    write_note(pipeline.spark, files.path, {**files.note, FIRST_START: text})
