"""The ledger of verdicts: which days were certified or refused, at which versions of the tables."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import append_fenced
from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import CERTIFIED, parse_property, set_table_property, table_property
from pipelines.delta.tables import exists
from pipelines.delta.time_travel import commit_hash
from pipelines.delta.transaction import version_gone
from pipelines.errors import InfrastructureError, SourceError
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)


def certified_version_property(pipeline: Pipeline) -> int | None:
    """Return the highest version of the batch table that was certified, as it says itself.

    None if it does not.
    """
    table = pipeline.table("batch")
    mark = table_property(pipeline.spark, table, CERTIFIED) if exists(pipeline.spark, table) else None
    return None if mark is None else parse_property(table, CERTIFIED, mark, int)


def mark_certified(pipeline: Pipeline, version: int) -> None:
    """Let the batch table say that a version of it is certified, if it does not.

    Readers go by the verdicts, so that it cannot be said changes nothing of how a run ends.
    """
    try:
        if (certified_version_property(pipeline) or -1) < version:
            set_table_property(pipeline.spark, pipeline.table("batch"), CERTIFIED, str(version))
    except (PySparkException, Py4JError, InfrastructureError) as error:
        _log.warning(
            "%s: the property %s was not set to %d; the next run sets it: %s",
            *(pipeline.table("batch"), CERTIFIED, version, first_line(str(error))),
        )


def require_ledger(config: PipelineConfig, mark: int | None, certified: int | None) -> None:
    """Make sure that the ledger knows what was certified of the batch table.

    Args:
        config: Names the tables.
        mark: What the batch table said, before the ledger was read.
        certified: The highest version of the batch table of which the ledger says so; None if of none.

    Raises:
        SourceError: Verdicts are gone.
    """
    if mark is None or (certified is not None and certified >= mark):
        return
    actual = "no verdict" if certified is None else f"verdicts up to version {certified}"
    raise _verdicts_are_gone(
        config,
        f"verdicts on {config.name} are gone: found {actual}, but {config.table('batch')} says that its"
        f" version {mark} was certified. The ledger was deleted, or restored from an older backup",
    )


def _verdicts_are_gone(config: PipelineConfig, what: str) -> SourceError:
    return SourceError(
        f"{config.ops_table('certifications')}: {what}. Nothing was changed, so that no certified day is"
        " lost. Restore both folders from backups of the same time, or start again: see docs/runbook.md,"
        " 'Verdicts are gone'"
    )


VerdictStatus = Literal["certified", "failed"]


@dataclass(frozen=True)
class Verdict:
    """What a run decided about a day.

    Attributes:
        pipeline: The pipeline's name.
        day: The event day.
        status: `certified`, or `failed`: the audit did not pass and readers keep what they had.
        run_id: The run that decided.
        batch_version: The version of the batch table that was audited.
        bronze_version: The version of bronze that it was built from.
        records: Valid records of the day in bronze.
        rows: Rows of the day in the batch layer.
        duplicates: `records` - `rows`.
        conflicts: Keys whose copies carry different payloads.
        late: Rows that the speed layer had dropped as late.
        quarantined: Records in bronze that break the contract, of whatever day.
        other_days: Valid records in bronze of other days.
        bronze: All records in bronze.
        decided_at: When, in UTC.
        cause: Why the day was rebuilt, see `pipelines.nightly.rebuild_plan`.
        came_late: Records of the day that came after it was decided on before.
        previous_version: The batch version that readers had of the day before, if it was certified.
        added: Rows of keys that version did not have; None where there was none.
        removed: Rows of keys that only that version has.
        changed: Rows of keys that both have, from other records or with other content.
        bronze_id: Whose version `bronze_version` is, see `pipelines.ledger.bronze_index.BronzeIndex`; None in
            verdicts from before this was written down.
        base_version: The certified version that the run began with, and left as it was but for its own days;
            -1 if there was none, None in verdicts of code that did not say.
        epoch: The epoch of the run's lease; None in verdicts of code that had none.
        batch_commit: The hash of the commit that made `batch_version`, see `commit_hash`; None for a day that
            failed, and in verdicts of code that did not say.
        bronze_commit: The hash of the commit that made `bronze_version`; None in verdicts of code that
            did not say.
    """

    pipeline: str
    day: date
    status: VerdictStatus
    run_id: str
    batch_version: int
    bronze_version: int
    records: int
    rows: int
    duplicates: int
    conflicts: int
    late: int
    quarantined: int
    other_days: int
    bronze: int
    decided_at: datetime
    cause: str | None = None
    came_late: int | None = None
    previous_version: int | None = None
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    bronze_id: str | None = None
    base_version: int | None = None
    epoch: int | None = None
    batch_commit: str | None = None
    bronze_commit: str | None = None

    @property
    def is_repair(self) -> bool:
        """Whether a day that was certified before was certified again."""
        return self.status == "certified" and self.previous_version is not None


@dataclass(frozen=True)
class Certified:
    """What readers may see of the batch layer.

    Attributes:
        version: The version of the batch table that holds every certified day.
        days: The certified days, in order.
        commit: The hash of the commit that made the version; None if no verdict has it.
    """

    version: int
    days: tuple[date, ...]
    commit: str | None = None


def record_verdicts(pipeline: Pipeline, verdicts: Iterable[Verdict], stamp: Stamp) -> None:
    """Append verdicts as one commit; from then on readers see the days that are certified.

    Raises:
        StaleEpoch: Another run has taken the lease over. Nothing was written.
    """
    verdicts = list(verdicts)
    rows = CERTIFICATIONS.frame(pipeline, map(asdict, verdicts))
    append_fenced(rows, CERTIFICATIONS.path(pipeline), stamp)
    if (version := highest_certified(verdicts)) is not None:
        mark_certified(pipeline, version)


def ensure_ledger(pipeline: Pipeline) -> None:
    """Make the table of verdicts if there is none.

    Raises:
        SourceError: There was one, see `history`.
    """
    if not CERTIFICATIONS.exists(pipeline):
        require_ledger(pipeline.config, certified_version_property(pipeline), None)
    CERTIFICATIONS.ensure(pipeline)


def history(pipeline: Pipeline, at: int | None = None) -> list[Verdict]:
    """Return the verdicts on the pipeline's days that stand, oldest first; see `standing`.

    Args:
        pipeline: The pipeline.
        at: The version of the ledger, if not the newest.

    Raises:
        SourceError: It lacks verdicts that the batch table or other verdicts know of: it was removed or
            restored, or rows of it were deleted.
    """
    # Before the ledger, to which a run at work may add; it marks the table only then.
    mark = certified_version_property(pipeline) if at is None else None
    return history_of(pipeline.config, mark, _all_verdicts(pipeline, at))


def history_of(config: PipelineConfig, mark: int | None, all_verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that stand, oldest first.

    Args:
        config: The pipeline's configuration.
        mark: The highest certified version by the batch table, read before the verdicts; None if unknown.
        all_verdicts: All verdicts on its days.

    Raises:
        SourceError: Verdicts are gone that the batch table, or another verdict, knows of.
    """
    require_ledger(config, mark, highest_certified(all_verdicts))
    _require_bases(config, all_verdicts)
    # Machines whose clocks differ follow each other by their epochs.
    return standing(config, sorted(all_verdicts, key=lambda v: (v.epoch or 0, v.decided_at, v.batch_version)))


def _all_verdicts(pipeline: Pipeline, at: int | None) -> list[Verdict]:
    if not CERTIFICATIONS.exists(pipeline):
        return []
    names = {field.name for field in fields(Verdict)}
    rows = small_rows(CERTIFICATIONS.rows(pipeline, at))
    return [Verdict(**{name: value for name, value in row.items() if name in names}) for row in rows]


def highest_certified(all_verdicts: Iterable[Verdict]) -> int | None:
    """Return the highest version of the batch table that verdicts certify; None if they certify none."""
    return max((v.batch_version for v in all_verdicts if v.status == "certified"), default=None)


def _require_bases(config: PipelineConfig, all_verdicts: Sequence[Verdict]) -> None:
    """Make sure that no day would lose its verdict since the one is gone that others were built upon.

    A gap that later runs have covered is none: all days were certified again since.

    Raises:
        SourceError: Verdicts are gone.
    """
    certified_versions, end = _chain(all_verdicts)
    passed = [v for v in all_verdicts if v.status == "certified"]
    lost = {v.day for v in passed} - {v.day for v in passed if v.batch_version in certified_versions}
    if end != -1 and lost:
        raise _verdicts_are_gone(
            config,
            f"verdicts on {config.name} are gone: found none on version {end} of {config.table('batch')},"
            f" upon which version {min(certified_versions)} was built. Somebody has deleted rows of the"
            " ledger",
        )


def _chain(all_verdicts: Sequence[Verdict]) -> tuple[set[int], int]:
    """Return the certified versions that the newest one was built upon, and the version where they end.

    That is -1 if it is the first one, else one of which no verdict is there.
    """
    bases = {v.batch_version: v.base_version for v in all_verdicts if v.status == "certified"}
    certified_versions, at = set[int](), max(bases, default=-1)
    while at in bases:
        certified_versions.add(at)
        base = bases[at]
        # Code that did not say built upon the newest one that there was.
        at = max((other for other in bases if other < at), default=-1) if base is None else base
    return certified_versions, at


def standing(config: PipelineConfig, all_verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that count: a day is certified only if the version readers get holds its build.

    Readers get the newest certified version, which holds what was certified at the version that it was built
    upon, and so on. A verdict on another version, as two runs left it that did not know of each other, is as
    if it had not been given: its day is rebuilt.

    Args:
        config: The pipeline's configuration.
        all_verdicts: All verdicts on its days.
    """
    certified_versions, _ = _chain(all_verdicts)
    standing_verdicts = [
        v for v in all_verdicts if v.status != "certified" or v.batch_version in certified_versions
    ]
    if lost := sorted({v.day for v in all_verdicts} - {v.day for v in standing_verdicts}):
        _log.warning(
            "%s: certified at a version that readers do not get, so not certified; rebuild each day: %s",
            *(", ".join(map(str, lost)), command(config, "nightly_batch", "--date DAY")),
        )
    return standing_verdicts


def newest(ledger: Iterable[Verdict]) -> dict[date, Verdict]:
    """Return the newest verdict on each day, in the order of the days.

    Args:
        ledger: Verdicts as `history` gives them.
    """
    by_day = {verdict.day: verdict for verdict in ledger}
    return {day: by_day[day] for day in sorted(by_day)}


def newest_certified(ledger: Iterable[Verdict]) -> dict[date, Verdict]:
    """Return the newest verdict on each day by which it was certified, in the order of the days.

    A rebuild that failed since has changed nothing: what came for the day still waits for one that passes.

    Args:
        ledger: Verdicts as `history` gives them.
    """
    return newest(verdict for verdict in ledger if verdict.status == "certified")


def verdicts(pipeline: Pipeline) -> list[Verdict]:
    """Return the newest verdict on each day of the pipeline, in the order of the days."""
    return list(newest(history(pipeline)).values())


def certified_in(ledger: Iterable[Verdict]) -> Certified | None:
    """Return the certified state of the batch layer; None if no day was ever certified.

    A day stays certified when a later rebuild of it fails: readers keep the state that passed.

    Args:
        ledger: Verdicts as `history` gives them.
    """
    passed = [verdict for verdict in ledger if verdict.status == "certified"]
    if not passed:
        return None
    version = max(v.batch_version for v in passed)
    commit = next((v.batch_commit for v in passed if v.batch_version == version and v.batch_commit), None)
    return Certified(version, tuple(sorted({v.day for v in passed})), commit)


def certified(pipeline: Pipeline) -> Certified | None:
    """Return the certified state of the batch layer, as it is written down; see `certified_in`.

    Raises:
        SourceError: See `require_certified`.
    """
    state = certified_in(history(pipeline))
    require_certified(pipeline, state)
    return state


def require_certified(pipeline: Pipeline, state: Certified | None) -> None:
    """Make sure that the batch table is the one that was certified.

    A table that took its place, or was restored from a copy, reaches the same version by other commits.

    Args:
        pipeline: The pipeline.
        state: What is certified.

    Raises:
        SourceError: It is not, or the log of the certified version is gone.
    """
    if state is None:
        return
    table, version = pipeline.table("batch"), state.version
    if not exists(pipeline.spark, table):
        raise version_gone(table, version)

    def refusal(found: str | None) -> SourceError:
        if found is None:
            return version_gone(table, version)
        return SourceError(
            f"{found} is not the certified one. Restore the folder from a backup of the time of the verdicts:"
            " docs/runbook.md, 'The certified version is gone'"
        )

    require_commit(pipeline, version, state.commit, refusal)


def require_commit(
    pipeline: Pipeline, version: int, commit: str | None, refusal: Callable[[str | None], SourceError]
) -> None:
    """Make sure that a version of the batch table was made by a commit.

    Args:
        pipeline: The pipeline.
        version: The version.
        commit: The hash of the commit; None if nobody knows it, and any will do.
        refusal: Returns what is said if another commit made it, of the words for that, to which is added what
            the version is not; of None if the log has no such commit.

    Raises:
        SourceError: Another commit made it, or its log is gone.
    """
    if commit is None:
        return
    table = pipeline.table("batch")
    actual = commit_hash(pipeline.spark, table, version)
    if actual is None:
        raise refusal(None)
    if actual != commit:
        raise refusal(
            f"{table}: its version {version} was made by commit {actual[:8]}, expected {commit[:8]}: the"
            " table was replaced, or restored from a copy and written to since, so nothing was changed. This"
            " version"
        )


def of_bronze(ledger: Iterable[Verdict], bronze_id: str) -> list[Verdict]:
    """Return the verdicts whose versions of bronze can be compared with those of the current bronze.

    A verdict that names no bronze was given before verdicts did. It is taken for one of this bronze, unless
    others name another.

    Args:
        ledger: Verdicts as `history` gives them, all of them.
        bronze_id: The current bronze.
    """
    ledger = list(ledger)
    own = {bronze_id, None}
    named = own if {verdict.bronze_id for verdict in ledger} <= own else {bronze_id}
    return [verdict for verdict in ledger if verdict.bronze_id in named]


def newest_bronze_version(ledger: Iterable[Verdict]) -> int:
    """Return the newest version of bronze that a verdict names; -1 if there is none.

    Args:
        ledger: Verdicts as `of_bronze` gives them.
    """
    return max((verdict.bronze_version for verdict in ledger), default=-1)
