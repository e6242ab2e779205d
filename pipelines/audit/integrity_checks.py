"""Integrity checks: do the layers hold exactly what bronze says they must?

Facts in, verdicts out: nothing here touches a table.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Literal

from pipelines.audit.recount import BronzeFacts, LayerDay
from pipelines.ledger.checks import LATE_WITHIN_LIMIT, LAYERS_AGREE, Check, Status
from pipelines.ledger.layer_sample import LayerDifference
from pipelines.ledger.offset_ranges import PartitionOffsets


def _check(
    day: date, name: str, failed: bool | Status, observed: str, expected: str, detail: str = ""
) -> Check:
    status: Status = failed if isinstance(failed, str) else ("failed" if failed else "passed")
    return Check(day, name, "integrity", status, observed, expected, detail if status != "passed" else "")


def no_duplicate_key(day: date, doubled: Mapping[date, int]) -> Check:
    """No key stands twice, neither on the day nor once here and once on a neighbouring day."""
    n = doubled.get(day, 0)
    return _check(
        day,
        "no_duplicate_key",
        n > 0,
        f"{n:,} keys stand more than once",
        "no key stands more than once, neighbouring days included",
        "rebuild the day and its neighbours together with --from and --to",
    )


def each_event_has_a_row(day: date, lacking: Mapping[date, int], horizon: int) -> Check:
    """Each valid record of the day, or of a certified neighbour, has a row of its key within the horizon."""
    n = sum(of for other, of in lacking.items() if abs((other - day).days) <= horizon)
    return _check(
        day,
        "each_event_has_a_row",
        n > 0,
        f"{n:,} records have no row of their key within {horizon} days of them",
        "each has one, neighbouring days included",
        "rebuild the day and its neighbours together with --from and --to",
    )


def keys_come_to_an_end(day: date, bronze: BronzeFacts) -> Check:
    """No key recurs for so long that days which were not looked at decide on its rows."""
    facts = bronze.days[day]
    named = f"{'; '.join(facts.recurring)}. " if facts.recurring else ""
    return _check(
        day,
        "keys_come_to_an_end",
        facts.undecided > 0,
        f"{facts.undecided:,} keys recur day after day, for longer than a run looks",
        "copies of a key lie on a few days",
        f"{named}A key that recurs daily is no dedup key: let it name the event, e.g. primaryKey on the event"
        " time as well. If copies do come for so long: a higher batch.chain_horizons",
    )


def fail_together(failed: Collection[date], moves: Collection[tuple[date, date]]) -> list[Check]:
    """A failed check for each day that must not be certified without another one, which failed.

    Args:
        failed: the days that failed.
        moves: pairs of days between which the rebuild moves events.
    """
    reached, checks = set(failed), list[Check]()
    both_ways = [*moves, *((after, before) for before, after in moves)]
    while more := {day: other for other, day in both_ways if other in reached and day not in reached}:
        checks += [
            _check(
                day,
                "moves_with_its_neighbour",
                True,
                f"events move between this day and {other}, which failed",
                "days between which events move are certified together",
                f"mend what is wrong with {other}, and rebuild both together",
            )
            for day, other in sorted(more.items())
        ]
        reached |= more.keys()
    return checks


def counts_add_up(day: date, bronze: BronzeFacts, layer: LayerDay) -> Check:
    """Bronze = rows + duplicates + quarantined + other days; the rows are counted in the batch layer."""
    facts = bronze.days[day]
    other_days = facts.other_days
    duplicates = facts.records - facts.rows
    total = layer.rows + duplicates + bronze.quarantined + other_days
    return _check(
        day,
        "counts_add_up",
        total != bronze.total,
        f"{layer.rows:,} rows + {duplicates:,} duplicates + {bronze.quarantined:,} quarantined"
        f" + {other_days:,} of other days = {total:,}",
        f"{bronze.total:,} records in bronze",
        "rows are missing from the batch layer, or there are too many",
    )


def index_is_whole(day: date, bronze: BronzeFacts, there: int) -> Check:
    """The index, which leads to the records of a day, counts as many records as bronze has.

    Args:
        day: the event day.
        bronze: what the audit counts, by the index as far as other days are concerned.
        there: the records that bronze has by the statistics of its own files.
    """
    return _check(
        day,
        "index_is_whole",
        bronze.total != there,
        f"{bronze.total:,} records in the index of bronze",
        f"{there:,} records in bronze",
        "records of the day may stand where the rebuild did not look. The next run makes the index anew",
    )


def conflicts_within_limit(day: date, bronze: BronzeFacts, max_percent: float) -> Check:
    """Of the day's events no more were told in two ways than the contract allows."""
    facts = bronze.days[day]
    share = 100 * facts.conflicts / facts.rows if facts.rows else 0.0
    return _check(
        day,
        "conflicts_within_limit",
        share > max_percent,
        f"{facts.conflicts:,} of {facts.rows:,} events have copies with different payloads ({share:.2f} %)",
        f"{max_percent:g} % at most",
        "a producer sends two versions of an event; `oncelake report` counts them by hour",
    )


def rows_are_the_winners(day: date, bronze: BronzeFacts, layer: LayerDay) -> Check:
    """The rows are the winning records, with their payloads: same coordinates, same content."""
    return _check(
        day,
        "rows_are_the_winners",
        bronze.days[day].checksum != layer.checksum,
        f"checksum {layer.checksum}",
        f"checksum {bronze.days[day].checksum} of the winning records in bronze",
        "some row is not the record that wins its key, or its content is another",
    )


def rows_in_their_day(day: date, layer: LayerDay) -> Check:
    """No row stands in the partition of another day."""
    return _check(
        day,
        "rows_in_their_day",
        layer.misplaced > 0,
        f"{layer.misplaced:,} rows of another day",
        "no row of another day",
    )


def offsets_contiguous(
    day: date, ranges: Sequence[PartitionOffsets], gaps_are: Literal["fail", "warn"]
) -> Check:
    """In each Kafka partition bronze holds every offset from its first to its last."""
    gaps = [(r, r.last - r.first + 1 - (r.distinct or 0)) for r in ranges]
    missing, known = sum(n for _, n in gaps), sum(r.known for r in ranges)
    where = ", ".join(f"{r.topic}-{r.partition}: {n:,} of {r.first}..{r.last}" for r, n in gaps if n)
    status: Status = "failed" if missing > known and gaps_are == "fail" else "warned" if missing else "passed"
    return _check(
        day,
        "offsets_contiguous",
        status,
        f"{missing:,} offsets missing in {len(ranges)} partitions"
        + (f", {known:,} of them by audit.known_gaps" if known else ""),
        "no offset missing but those of audit.known_gaps" if known else "no offset missing",
        f"{where}. Compacted and transactional topics have gaps by nature: audit.offset_gaps: warn; a loss"
        " that is accepted stands in audit.known_gaps, see docs/runbook.md, 'Offsets are gone'",
    )


def offsets_once(day: date, ranges: Sequence[PartitionOffsets]) -> Check:
    """Bronze holds each offset once; if not, a checkpoint was lost, and the rebuild removes the copies."""
    doubled = sum(r.records - (r.distinct or 0) for r in ranges)
    return _check(
        day,
        "offsets_once",
        "warned" if doubled else "passed",
        f"{doubled:,} records were read from Kafka again",
        "each record read once",
        "a checkpoint was lost or replaced; the rows above are right all the same",
    )


def layers_agree(day: date, difference: LayerDifference, differences_are: Literal["fail", "warn"]) -> Check:
    """Speed and batch layer differ only by what is known: late rows and conflicting copies."""
    unexplained = difference.missing + difference.extra
    status: Status = "warned" if unexplained or difference.pending else "passed"
    if unexplained and differences_are == "fail":
        status = "failed"
    return _check(
        day,
        LAYERS_AGREE,
        status,
        f"speed lacks {difference.late:,} late, {difference.pending:,} pending, {difference.quarantined:,}"
        f" quarantined and {difference.missing:,} unexplained keys, has {difference.extra:,} too many;"
        f" {difference.other_copy:,} from another copy",
        "no unexplained difference",
        "if speed.watermark_delay, decode.max_future or the contract's rules were changed since:"
        " audit.layer_differences: warn"
        if unexplained
        else "the speed layer has not read all of bronze yet",
    )


def late_within_limit(day: date, late: int, rows: int, limit: tuple[float, int]) -> Check:
    """Few events of the day came too late for real time: a warning, since the rebuild has put them in.

    Args:
        day: the day.
        late: its events that the speed layer dropped as late.
        rows: all its events.
        limit: above which share it warns, and among how many events at least.
    """
    share, enough = limit
    return _check(
        day,
        LATE_WITHIN_LIMIT,
        "warned" if rows >= enough and late > share * rows else "passed",
        f"{late:,} of {rows:,} events came too late for the speed layer",
        f"at most {100 * share:g} % (speed.late_warn_share)",
        "readers did not have them until now; see docs/runbook.md, 'Many late records'",
    )


def quarantine_is_whole(day: date, bronze: BronzeFacts, lacking: int) -> Check:
    """Every record of bronze that breaks the contract stands in quarantine, of whatever day it is."""
    return _check(
        day,
        "quarantine_is_whole",
        "warned" if lacking else "passed",
        f"{lacking:,} of {bronze.quarantined:,} records that break the contract are not in quarantine",
        "each of them in quarantine",
        "speed_stream has not read all of bronze yet, or the contract was changed since",
    )


def doubled_in_speed(day: date, doubled: Mapping[date, int]) -> Check:
    """How many keys real time let through twice: a warning, since the rebuild has repaired them."""
    n = doubled.get(day, 0)
    return _check(
        day,
        "speed_layer_deduplicated",
        "warned" if n else "passed",
        f"{n:,} keys stand more than once in the speed layer",
        "each key once within the watermark's delay",
        "copies came further apart than speed.watermark_delay",
    )
