"""Which days a nightly run has to rebuild, and why."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Literal

from pyspark.sql import functions as F

from pipelines.audit.audited_days import span_of
from pipelines.contracts.event_days import Span, around, days_of
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.io import on_days, small_rows
from pipelines.delta.small_tables import read_small
from pipelines.ledger.bronze_index import BronzeIndex, bronze_slice
from pipelines.ledger.bronze_verdicts import accepted_since, compared, own_verdicts, require_no_fewer
from pipelines.ledger.certifications import Certified, Verdict, certified_in, newest_certified
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.forgotten_places import forgotten_after, require_final_days_forgotten
from pipelines.ledger.retention_properties import first_rebuildable_day, require_cut_known
from pipelines.records.decode import COORDINATES, EVENT_DATE, valid
from pipelines.records.dedup import UNDECIDED, winners_on_known_days, with_key_columns, without_key_columns
from pipelines.spark.pipeline import Pipeline

RebuildCause = Literal["asked", "missed", "late", "neighbour", "forgotten"]
RepairScope = Literal["nothing", "late", "late and missed"]

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Due:
    """The days that a run rebuilds.

    Attributes:
        causes: Why, by day in their order: `asked` for by the user; `forgotten`, since events of it were
            forgotten after it was certified, and readers may have them; `missed`, since no run has
            certified it yet; `late`, since records came after it was certified, or were broken by the
            contract of that time; `neighbour`, since a copy of an event that stands on it came with another
            day, or the other way round.
        came_late: Records of each day that came, or have become valid, after it was certified; of all days
            that have such.
        never_certified: Days before those that are asked for, of which bronze has events, that no run has
            certified and this one leaves as they are.
    """

    causes: dict[date, RebuildCause]
    came_late: dict[date, int]
    never_certified: list[date]

    @property
    def days(self) -> list[date]:
        """The days, in order."""
        return list(self.causes)

    @property
    def late_days_not_rebuilt(self) -> list[date]:
        """Days that have late records and are not rebuilt by this run."""
        return [day for day in sorted(self.came_late) if day not in self.causes]


def due_days(
    pipeline: Pipeline,
    index: BronzeIndex,
    requested_days: Sequence[date],
    repair: RepairScope,
    ledger: Sequence[Verdict],
) -> Due:
    """Return the days that are asked for, and those before them that need repair.

    Args:
        pipeline: The pipeline.
        index: The index of bronze.
        requested_days: The days that are asked for, sorted.
        repair: Which other days of the lookback are taken as well.
        ledger: The verdicts so far.

    Raises:
        SourceError: Bronze holds fewer records of a day that is asked for than when it was certified; or a
            day that cannot be rebuilt holds events that were forgotten.
    """
    known = _known(pipeline, index, requested_days, ledger)
    causes = _causes(pipeline, requested_days, repair, known)
    while near := _neighbours(pipeline, index, sorted(causes), known):
        causes |= dict.fromkeys(near, "neighbour")
    causes = {day: causes[day] for day in sorted(causes) if day >= known.first_rebuildable}
    never_certified = [
        day
        for day in sorted(known.with_events)
        if known.first_rebuildable <= day < requested_days[0]
        and day not in known.certified
        and day not in causes
    ]
    return Due(causes, known.late, never_certified)


@dataclass(frozen=True)
class _Known:
    """What a run knows of the days before it plans.

    Attributes:
        first_rebuildable: The first day that can still be rebuilt, see `first_rebuildable_day`.
        with_events: Days of which bronze has events.
        certified: The newest verdict of each certified day.
        rebuildable: The newest verdict of each certified day of which bronze has at least as many records as
            when it was certified.
        forgotten: Certified days with events that were forgotten after the certification.
        late: By certified day, how many records came, or have become valid, after the certification.
    """

    first_rebuildable: date
    with_events: Collection[date]
    certified: Mapping[date, Verdict]
    rebuildable: Mapping[date, Verdict]
    forgotten: Collection[date]
    late: dict[date, int]


def _known(
    pipeline: Pipeline, index: BronzeIndex, requested_days: Sequence[date], ledger: Sequence[Verdict]
) -> _Known:
    require_cut_known(pipeline, ledger)
    certified = newest_certified(ledger)
    forgotten = forgotten_after(pipeline, {d: v.decided_at for d, v in certified.items()})
    comparison = compared(own_verdicts(pipeline, ledger, index), ledger, index, forgotten)
    first = first_rebuildable_day(pipeline) or date.min
    require_final_days_forgotten(pipeline, certified_in(ledger), [day for day in forgotten if day < first])
    fewer = {day for day in comparison.fewer if day >= first}
    require_no_fewer(pipeline.config, {*requested_days, *forgotten}, fewer)
    versions = {day: version for day, version in comparison.versions.items() if version is not None}
    since = index.records_after(versions, pipeline.spark)
    accepted = accepted_since({day: certified[day] for day in versions}, index, forgotten, since)
    late = Counter(since) + Counter(accepted) + Counter(comparison.more)
    return _Known(
        first_rebuildable=first,
        with_events=index.counts().valid.keys(),
        certified=certified,
        rebuildable={day: verdict for day, verdict in certified.items() if day not in fewer},
        forgotten=forgotten,
        late={day: n for day, n in late.items() if day >= first},
    )


def _causes(
    pipeline: Pipeline, requested_days: Sequence[date], repair: RepairScope, known: _Known
) -> dict[date, RebuildCause]:
    """Return the days that are rebuilt whatever stands on others, and why; the most telling cause of each."""
    lookback = days_of(
        requested_days[0] - pipeline.config.batch.lookback_days * _DAY, requested_days[0] - _DAY
    )
    first = min([*known.certified, *known.with_events], default=requested_days[0])
    causes: dict[date, RebuildCause] = {}
    if repair == "late and missed":
        missed = (day for day in lookback if day >= first and day not in known.certified)
        causes |= dict.fromkeys(missed, "missed")
    if repair != "nothing":
        causes |= dict.fromkeys((day for day in lookback if day in known.late), "late")
    causes |= dict.fromkeys(requested_days, "asked")
    causes |= dict.fromkeys((day for day in known.forgotten if day >= known.first_rebuildable), "forgotten")
    return causes


def _neighbours(pipeline: Pipeline, index: BronzeIndex, days: Sequence[date], known: _Known) -> list[date]:
    """Return the certified days that have to be rebuilt together with these days.

    These are neighbours with late records, which may win over a row of these days, and days that share keys
    with these days and on which other copies win now than were certified.
    """
    horizon = pipeline.horizon
    certified = known.rebuildable
    neighbours = {day for day in around(days, horizon) if day in known.late and day not in days}
    span = span_of(pipeline, days, first_complete_day(pipeline))
    others = [day for day in span.near if day in certified and day not in {*days, *neighbours}]
    state = certified_in(certified.values())
    if horizon and others and state:
        neighbours |= _changed(pipeline, index, span, state, others)
    return sorted(neighbours)


def _changed(
    pipeline: Pipeline,
    index: BronzeIndex,
    span: Span,
    state: Certified,
    others: Sequence[date],
) -> set[date]:
    """Return certified days whose rows are no longer the winners of keys with copies on the span's days.

    Args:
        pipeline: The pipeline.
        index: The index of bronze.
        span: The days that are rebuilt, and those around them.
        state: What readers have of the batch layer.
        others: Certified days that are compared.
    """
    contract = pipeline.contract
    pieces = bronze_slice(pipeline, index, span.near, index.version)
    events = valid(decode_all(pipeline, pieces.envelopes), contract)
    copies = with_key_columns(events.where(on_days(span.near)), contract)
    of_days = copies.where(on_days(span.days)).select(*contract.key_names).distinct()
    copies = copies.join(of_days, contract.key_names, "left_semi")
    certified_rows = read_small(pipeline.spark, pipeline.table("batch"), state.version)
    rows = with_key_columns(certified_rows.where(on_days(others)), contract)
    rows = rows.join(of_days, contract.key_names, "left_semi")
    won = winners_on_known_days(
        without_key_columns(copies, contract), contract, span.horizon, span.known_days
    ).where(on_days(others))
    at, then = [*contract.key_names, EVENT_DATE], F.struct(*COORDINATES)
    now = with_key_columns(won, contract).select(*at, UNDECIDED, then.alias("_now"))
    both = now.join(rows.select(*at, then.alias("_then")), at, "full_outer")
    changed = both.where(f"NOT coalesce({UNDECIDED}, false) AND NOT _now <=> _then")
    return {row[EVENT_DATE] for row in small_rows(changed.select(EVENT_DATE).distinct())}
