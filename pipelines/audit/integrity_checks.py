"""Integrity checks: do the layers hold exactly what bronze says they must?

To add one, write a function here that asks `AuditedDays` for what it needs. Register it by `asked_of_days` if
it looks at one day, by `asked_of_bronze` if it looks at bronze as a whole. What else it needs:
docs/architecture.md, 'Where to change what'.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal

from pipelines.audit.audited_days import AuditedDays
from pipelines.config.clusters import retired
from pipelines.contracts.contract import DataContract
from pipelines.ledger.checks import (
    CLUSTERS_ASKED,
    KEYS_COME_TO_AN_END,
    LATE_WITHIN_LIMIT,
    LAYERS_AGREE,
    Check,
    CheckStatus,
)
from pipelines.ledger.layer_samples import LayerDifference

FAILED: Final = "Audit failed"
WARNED: Final = "A check has warned"

CheckSeverity = Literal["fails", "warns", "fails or warns"]


@dataclass(frozen=True)
class Observation:
    """What an integrity check found on a day, or in bronze as a whole.

    Only `detail` may quote values of records, such as keys: it is all that `oncelake forget` blanks of an
    integrity check when it removes a record of the day.

    Attributes:
        status: Whether it passed.
        observed: What was found, in words: counts, checksums, offsets, names; no value of a record.
        expected: What had to be found, in the same way.
        detail: What to do about it, with values of records where they help; not shown where the check passed.
    """

    status: CheckStatus
    observed: str
    expected: str
    detail: str = ""


@dataclass(frozen=True)
class IntegrityCheck:
    """An integrity check that every audit makes.

    Attributes:
        name: Its name, as `ops/validation_results` has it.
        question: What it asks of a day, or of bronze.
        severity: Whether it keeps a day from being certified, only warns, or does either by what it finds and
            by the configuration.
        runbook: The heading of `docs/runbook.md` that has its row.
        find: Answers it for the audited days; days to which it does not apply are left out.
    """

    name: str
    question: str
    severity: CheckSeverity
    runbook: str
    find: Callable[[AuditedDays], Mapping[date, Observation]]


_ABOUT_RECURRING_KEYS: Final = (
    "A key that recurs daily does not identify an event. Add the event time to primaryKey; or, if"
    " producers do send copies for so long, raise batch.chain_horizons"
)

INTEGRITY_CHECKS: Final[list[IntegrityCheck]] = []
"""All integrity checks, in the order in which an audit makes them."""

_OfDay = Callable[[AuditedDays, date], Observation | None]
_OfBronze = Callable[[AuditedDays], Observation | None]


def asked_of_days(
    name: str, question: str, severity: CheckSeverity = "fails", runbook: str = FAILED
) -> Callable[[_OfDay], _OfDay]:
    """Register a function that looks at one day, see `IntegrityCheck`; None where it does not apply."""

    def register(find: _OfDay) -> _OfDay:
        def each(audited: AuditedDays) -> dict[date, Observation]:
            findings = ((day, find(audited, day)) for day in audited.span.days)
            return {day: finding for day, finding in findings if finding is not None}

        INTEGRITY_CHECKS.append(IntegrityCheck(name, question, severity, runbook, each))
        return find

    return register


def asked_of_bronze(
    name: str, question: str, severity: CheckSeverity = "fails", runbook: str = FAILED
) -> Callable[[_OfBronze], _OfBronze]:
    """Register a function that looks at bronze as a whole: what it finds stands for each day.

    Where records are missing, or too many, nobody knows of which days they are.
    """

    def register(find: _OfBronze) -> _OfBronze:
        asked_of_days(name, question, severity, runbook)(lambda audited, _: find(audited))
        return find

    return register


def integrity_checks(audited: AuditedDays) -> list[Check]:
    """Make every integrity check on every day."""
    return [
        _as_check(check.name, day, finding)
        for check in INTEGRITY_CHECKS
        for day, finding in check.find(audited).items()
    ]


def _as_check(name: str, day: date, finding: Observation) -> Check:
    detail = "" if finding.status == "passed" else finding.detail
    return Check(day, name, "integrity", finding.status, finding.observed, finding.expected, detail)


def shown_detail(name: str, detail: str, contract: DataContract) -> str:
    """Return the stored detail of an integrity check without keys, if the contract calls them personal.

    An earlier contract, by which the day was audited, may not have done so.

    Args:
        name: The name of the check.
        detail: Its detail.
        contract: Says which columns hold personal data.
    """
    quotes_keys = name == KEYS_COME_TO_AN_END and bool(detail)
    return _ABOUT_RECURRING_KEYS if quotes_keys and any(map(contract.treatment, contract.key)) else detail


def _failed(is_wrong: bool) -> CheckStatus:
    return "failed" if is_wrong else "passed"


def _warned(is_wrong: bool) -> CheckStatus:
    return "warned" if is_wrong else "passed"


@asked_of_days("no_duplicate_key", "Does each key occur once, on the day and on its neighbouring days?")
def _no_duplicate_key(audited: AuditedDays, day: date) -> Observation:
    n = audited.duplicate_keys.get(day, 0)
    return Observation(
        _failed(n > 0),
        f"{n:,} duplicate keys",
        "no duplicate key, neighbouring days included",
        "rebuild the day and its neighbours together with --from and --to",
    )


@asked_of_days(
    "counts_add_up",
    "Does each record in bronze count as a row, a duplicate, a quarantined record or one of another day?",
)
def _counts_add_up(audited: AuditedDays, day: date) -> Observation:
    bronze, rows = audited.bronze, audited.layer[day].rows
    facts = bronze.days[day]
    duplicates = facts.records - facts.rows
    total = rows + duplicates + bronze.quarantined + facts.other_days
    return Observation(
        _failed(total != bronze.total),
        f"{rows:,} rows + {duplicates:,} duplicates + {bronze.quarantined:,} quarantined"
        f" + {facts.other_days:,} of other days = {total:,}",
        f"{bronze.total:,} records in bronze",
        "rows are missing from the batch layer, or there are too many",
    )


@asked_of_days(
    "rows_are_the_winners", "Are the rows the winning records, with the same coordinates and content?"
)
def _rows_are_the_winners(audited: AuditedDays, day: date) -> Observation:
    actual, expected = audited.layer[day].checksum, audited.bronze.days[day].checksum
    return Observation(
        _failed(expected != actual),
        f"checksum {actual}",
        f"checksum {expected} of the winning records in bronze",
        "some row is not the record that wins its key, or its content is another",
    )


@asked_of_days("rows_in_their_day", "Is each row in the partition of its own day?")
def _rows_in_their_day(audited: AuditedDays, day: date) -> Observation:
    n = audited.layer[day].misplaced
    return Observation(_failed(n > 0), f"{n:,} rows of another day", "no row of another day")


@asked_of_bronze(
    "offsets_contiguous",
    "Does bronze hold every offset of each Kafka partition, from its first to its last?",
    "fails or warns",
)
def _offsets_contiguous(audited: AuditedDays) -> Observation:
    ranges, gaps_are = audited.offsets, audited.pipeline.config.audit.offset_gaps
    gaps = [(r, r.last - r.first + 1 - (r.distinct or 0)) for r in ranges]
    missing, accepted = sum(n for _, n in gaps), sum(r.known for r in ranges)
    where = ", ".join(f"{r.topic}-{r.partition}: {n:,} of {r.first}..{r.last}" for r, n in gaps if n)
    return Observation(
        "failed" if missing > accepted and gaps_are == "fail" else _warned(missing > 0),
        f"{missing:,} offsets missing in {len(ranges)} partitions"
        + (f", {accepted:,} of them by audit.known_gaps" if accepted else ""),
        "no offset missing except those of audit.known_gaps" if accepted else "no offset missing",
        f"{where}. Compacted and transactional topics have gaps by nature: audit.offset_gaps: warn; list"
        " a loss that you accept in audit.known_gaps, see docs/runbook.md, 'Offsets are gone'",
    )


@asked_of_bronze("offsets_once", "Does bronze hold each offset once?", "warns", WARNED)
def _offsets_once(audited: AuditedDays) -> Observation:
    doubled = sum(r.records - (r.distinct or 0) for r in audited.offsets)
    return Observation(
        _warned(doubled > 0),
        f"{doubled:,} records were ingested more than once",
        "each record ingested once",
        "a checkpoint was lost or replaced; the rows of the batch layer are right",
    )


@asked_of_bronze("index_is_whole", "Does the bronze index count as many records as bronze itself?")
def _index_is_whole(audited: AuditedDays) -> Observation:
    indexed, stored = audited.bronze.total, audited.records_in_table
    return Observation(
        _failed(indexed != stored),
        f"{indexed:,} records in the bronze index",
        f"{stored:,} records in bronze",
        "the rebuild may have missed records of the day. The next run rebuilds the index",
    )


@asked_of_days("each_event_has_a_row", "Does each valid record have a row of its key within the horizon?")
def _each_event_has_a_row(audited: AuditedDays, day: date) -> Observation | None:
    horizon = audited.span.horizon
    if not horizon:
        return None
    n = sum(of for other, of in audited.records_without_row.items() if abs((other - day).days) <= horizon)
    return Observation(
        _failed(n > 0),
        f"{n:,} records have no row of their key within {horizon} days of them",
        "each has one, neighbouring days included",
        "rebuild the day and its neighbours together with --from and --to",
    )


@asked_of_days(KEYS_COME_TO_AN_END, "Does no key recur on more consecutive days than a run compares?")
def _keys_come_to_an_end(audited: AuditedDays, day: date) -> Observation | None:
    if not audited.span.horizon:
        return None
    facts = audited.bronze.days[day]
    named = f"{'; '.join(facts.recurring)}. " if facts.recurring else ""
    return Observation(
        _failed(facts.undecided > 0),
        f"{facts.undecided:,} keys recur day after day, for longer than a run looks",
        "copies of a key lie on a few days",
        f"{named}{_ABOUT_RECURRING_KEYS}",
    )


@asked_of_days(
    LAYERS_AGREE,
    "Is each difference between speed and batch layer explained (late, quarantined, pending, remembered)?",
    "fails or warns",
)
def _layers_agree(audited: AuditedDays, day: date) -> Observation | None:
    difference = audited.differences.get(day)
    if difference is None:
        return None
    unexplained = difference.missing + difference.extra
    fails = bool(unexplained) and audited.pipeline.config.audit.layer_differences == "fail"
    return Observation(
        "failed" if fails else _warned(bool(unexplained or difference.pending or difference.remembered)),
        f"speed lacks {difference.late:,} late, {difference.pending:,} pending, {difference.quarantined:,}"
        f" quarantined, {difference.remembered:,} remembered and {difference.missing:,} unexplained keys,"
        f" has {difference.extra:,} too many; {difference.other_copy:,} from another copy",
        "no unexplained difference",
        _why_layers_differ(difference),
    )


def _why_layers_differ(difference: LayerDifference) -> str:
    if difference.missing or difference.extra:
        return (
            "if speed.watermark_delay, decode.max_future or the contract's rules were changed since, rebuild"
            " the speed layer: docs/runbook.md, 'Change of rules, watermark or state partitions'. Otherwise"
            " bronze has lost records, or the speed layer has: find out which"
        )
    if difference.pending:
        return "the speed layer has not read all of bronze yet"
    return (
        "a key recurs while the state of the speed layer still holds it; readers get these events as soon as"
        " the day is certified"
    )


@asked_of_days("speed_layer_deduplicated", "Does the speed layer hold each key once?", "warns", WARNED)
def _speed_layer_deduplicated(audited: AuditedDays, day: date) -> Observation | None:
    if day not in audited.differences:
        return None
    n = audited.doubled_in_speed.get(day, 0)
    return Observation(
        _warned(n > 0),
        f"{n:,} duplicate keys in the speed layer",
        "each key once within the watermark's delay",
        "copies came further apart than speed.watermark_delay",
    )


@asked_of_days(
    LATE_WITHIN_LIMIT, "Is the share of late events at most speed.late_warn_share?", "warns", WARNED
)
def _late_within_limit(audited: AuditedDays, day: date) -> Observation | None:
    if day not in audited.differences:
        return None
    late, rows = audited.differences[day].late, audited.layer[day].rows
    speed = audited.pipeline.config.speed
    return Observation(
        _warned(rows >= speed.late_warn_records and late > speed.late_warn_share * rows),
        f"{late:,} of {rows:,} events came too late for the speed layer",
        f"at most {100 * speed.late_warn_share:g} % (speed.late_warn_share)",
        "readers did not have them until now; see docs/runbook.md, 'Many late records'",
    )


@asked_of_days("conflicts_within_limit", "Are conflicts within the contract's maxConflictsPercent?")
def _conflicts_within_limit(audited: AuditedDays, day: date) -> Observation | None:
    limit = audited.pipeline.contract.max_conflicts
    if limit is None:
        return None
    facts = audited.bronze.days[day]
    share = 100 * facts.conflicts / facts.rows if facts.rows else 0.0
    return Observation(
        _failed(share > limit),
        f"{facts.conflicts:,} of {facts.rows:,} events have copies with different payloads ({share:.2f} %)",
        f"{limit:g} % at most",
        "a producer sends two versions of an event; `oncelake report` counts them by hour",
    )


@asked_of_bronze(
    "quarantine_is_whole", "Is every record that breaks the contract in quarantine?", "warns", WARNED
)
def _quarantine_is_whole(audited: AuditedDays) -> Observation | None:
    lacking = audited.lacking_in_quarantine
    if lacking is None:
        return None
    return Observation(
        _warned(lacking > 0),
        f"{lacking:,} of {audited.bronze.quarantined:,} records that break the contract"
        " are not in quarantine",
        "each of them in quarantine",
        "speed_stream has not read all of bronze yet, or the contract was changed since",
    )


@asked_of_bronze(
    CLUSTERS_ASKED, "Was each cluster asked whether bronze has all of its records?", "warns", WARNED
)
def _clusters_asked(audited: AuditedDays) -> Observation | None:
    kafka = audited.pipeline.config.kafka
    if not kafka.clusters:
        return None
    not_asked = retired(kafka)
    return Observation(
        _warned(bool(not_asked)),
        f"not asked: {', '.join(not_asked) or 'none'}",
        "each cluster asked",
        "set retired to false for a cluster that is not lost for good; records that it has and bronze lacks"
        " are in no certified day",
    )


_MOVES: Final = IntegrityCheck(
    "moves_with_its_neighbour",
    "If a rebuild moves events between the day and another one, or gives its events their row there, did the"
    " other one pass as well?",
    "fails",
    FAILED,
    # By the other checks of all days, see `fail_together`.
    lambda _: {},
)
INTEGRITY_CHECKS.append(_MOVES)


def fail_together(failed: Collection[date], pairs: Collection[tuple[date, date]]) -> list[Check]:
    """Make a failed check for each day that must not be certified without another one, which failed.

    Args:
        failed: The days that failed.
        pairs: A day, and one that must not be certified if that day fails.
    """
    reached, checks = set(failed), list[Check]()
    while more := {day: other for other, day in pairs if other in reached and day not in reached}:
        checks += [
            _as_check(
                _MOVES.name,
                day,
                Observation(
                    "failed",
                    f"this day shares events with {other}, which failed",
                    "days that share events are certified together",
                    f"fix what is wrong with {other}, and rebuild both together",
                ),
            )
            for day, other in sorted(more.items())
        ]
        reached |= more.keys()
    return checks
