"""Which verdicts are about the current bronze, and what its index says of the days that they certify.

The index knows its bronze as long as it exists. If it was removed, or restored together with bronze, only
the verdicts know: they keep the commit of bronze that they were built from, and how many records.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pipelines.config.model import PipelineConfig
from pipelines.delta.time_travel import commit_hashes
from pipelines.errors import SourceError
from pipelines.ledger.bronze_index import BronzeIndex, BronzeSlice, bronze_slice
from pipelines.ledger.certifications import Verdict, newest_bronze_version, newest_certified, of_bronze
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DayComparison:
    """Certified days, compared with the current bronze.

    Attributes:
        versions: By certified day, the version of bronze that the day was built from; None if the index does
            not show which records came after that version, or if it is a version of another bronze.
        more: By certified day whose version is None, how many valid records bronze has beyond those that the
            day was built from; days without any are left out.
        fewer: Certified days whose version is None and of which bronze has fewer valid records than the day
            was built from; forgotten records do not count as missing.
    """

    versions: Mapping[date, int | None]
    more: Mapping[date, int]
    fewer: Collection[date]


def own_verdicts(pipeline: Pipeline, ledger: Sequence[Verdict], index: BronzeIndex) -> list[Verdict]:
    """Return the verdicts whose versions of bronze are versions of the current bronze.

    A table that was restored from a copy has the id that it had, and soon the same versions, made by other
    commits. A verdict whose commit is no longer in the log is accepted.

    Args:
        pipeline: The pipeline.
        ledger: Verdicts as `history` gives them, all of them.
        index: The index of bronze.
    """
    named = [v for v in of_bronze(ledger, index.bronze_id) if v.bronze_version <= index.version]
    versions = {v.bronze_version for v in named if v.bronze_commit}
    hashes = commit_hashes(pipeline.spark, pipeline.table("bronze"), versions)
    return [v for v in named if v.bronze_commit in {None, hashes.get(v.bronze_version, v.bronze_commit)}]


def slice_to_audit(
    pipeline: Pipeline, ledger: Sequence[Verdict], index: BronzeIndex, days: Sequence[date]
) -> BronzeSlice:
    """Return what of bronze an audit of some days looks at.

    These are the micro-batches with records of the days, and all that came since the newest verdict on this
    bronze, so that no broken record escapes the check of the quarantine.

    Args:
        pipeline: The pipeline.
        ledger: Verdicts as `history` gives them, all of them.
        index: The index of bronze.
        days: The event days, sorted.
    """
    return bronze_slice(pipeline, index, days, newest_bronze_version(own_verdicts(pipeline, ledger, index)))


def compared(
    own: Sequence[Verdict], ledger: Sequence[Verdict], index: BronzeIndex, forgotten: Mapping[date, int]
) -> DayComparison:
    """Compare the certified days with bronze.

    An index that was rebuilt without its predecessor does not know when the earlier records came. A day that
    was built from such records is compared by the number of its valid records. A day that was built from a
    version that the index knows may have fewer valid records, too, and is not among `fewer`: its records are
    in bronze, and some break the current contract. If bronze had lost records, the index would have been
    refused (`bronze_state.require_indexed_offsets`).

    Args:
        own: What `own_verdicts` gives.
        ledger: All verdicts.
        index: The index of bronze.
        forgotten: How many records of a day were forgotten after it was certified: they are not lost.
    """
    certified, records, first = newest_certified(ledger), index.counts().valid, index.first_commit()
    comparable = {v for v in own if first is not None and first <= v.bronze_version}
    untold = {day: v for day, v in certified.items() if v not in comparable}
    more = {day: records.get(day, 0) + forgotten.get(day, 0) - v.records for day, v in untold.items()}
    return DayComparison(
        {day: v.bronze_version if v in comparable else None for day, v in certified.items()},
        {day: n for day, n in more.items() if n > 0},
        {day for day, n in more.items() if n < 0},
    )


def accepted_since(
    known: Mapping[date, Verdict],
    index: BronzeIndex,
    forgotten: Mapping[date, int],
    came_since: Mapping[date, int],
) -> dict[date, int]:
    """Return how many records of a day are valid now and were broken when it was certified, if any were.

    A contract that has become less strict is one cause, a run by an earlier and stricter one, started by
    mistake, another: that run left out events that no quarantine has to tell of.

    Args:
        known: The newest verdicts of days whose version of bronze the index knows.
        index: The index of bronze.
        forgotten: How many records of a day were forgotten after it was certified.
        came_since: How many valid records of a day came after its version of bronze.
    """
    valid = index.counts().valid
    more = {
        day: valid.get(day, 0) + forgotten.get(day, 0) - came_since.get(day, 0) - verdict.records
        for day, verdict in known.items()
    }
    return {day: n for day, n in more.items() if n > 0}


def require_no_fewer(
    config: PipelineConfig, requested_days: Collection[date], fewer: Collection[date]
) -> None:
    """Make sure that no day that is asked for would be certified with fewer records than it was built from.

    Others are left as they are: the rows that are certified may be all that is left of them.

    Raises:
        SourceError: It would, and `batch.fewer_records` does not say so.
    """
    lost = [day for day in sorted(fewer) if day in requested_days]
    if lost and config.batch.fewer_records == "refuse":
        raise SourceError(
            f"{config.table('bronze')}: holds fewer records of {', '.join(map(str, lost))} than when these"
            " days were certified, so they are not rebuilt: the certified rows may be all that is left."
            " No day was certified. Restore bronze; or, if the days should lose these rows, start again with"
            " --set batch.fewer_records=take: docs/runbook.md,"
            " 'Bronze holds fewer records of a day'"
        )
    if left := sorted({*fewer} - {*lost}):
        _log.warning(
            "certified days of which bronze holds fewer records than when they were built; they are left as"
            " they are: %s",
            ", ".join(map(str, left)),
        )
