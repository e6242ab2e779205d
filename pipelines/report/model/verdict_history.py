"""The ledger of verdicts as a report shows it: the trend over days, the history of a day, repairs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Final

from pipelines.ledger.certifications import Verdict
from pipelines.report.model.history import PastVerdict, Repair
from pipelines.report.model.report import TrendDay

TREND_DAYS: Final = 60
"""Days of the trend, at most."""


def trend(
    past: Sequence[Verdict], until: date, quarantined: Mapping[date, int] | None
) -> tuple[TrendDay, ...]:
    """Return the newest verdict on each of the last days, with how often the day was repaired.

    Args:
        past: All verdicts, the oldest first.
        until: The last day.
        quarantined: Broken records by the day on which they were sent, of other days there are none; None
            if nobody counted.
    """
    newest = {v.day: v for v in past}
    repairs = Counter(v.day for v in past if v.is_repair)
    return tuple(
        TrendDay(
            day=day,
            status=newest[day].status,
            rows=newest[day].rows,
            records=newest[day].records,
            duplicates=max(0, newest[day].duplicates),
            conflicts=newest[day].conflicts,
            late=newest[day].late,
            quarantined=None if quarantined is None else quarantined.get(day, 0),
            repairs=repairs[day],
        )
        for day in trend_days(past, until)
    )


def trend_days(past: Iterable[Verdict], until: date) -> list[date]:
    """Return the days of the trend, in their order."""
    return sorted({v.day for v in past if v.day <= until})[-TREND_DAYS:]


def past_verdicts(past: Iterable[Verdict], day: date) -> tuple[PastVerdict, ...]:
    """Return every verdict on a day, in the order of `past`."""
    fields = PastVerdict.model_fields.keys()
    return tuple(
        PastVerdict(**{name: value for name, value in asdict(v).items() if name in fields})
        for v in past
        if v.day == day
    )


def repairs(past: Iterable[Verdict], days: Iterable[date]) -> tuple[Repair, ...]:
    """Return the repairs of some days, in the order of `past`."""
    fields, among = Repair.model_fields.keys(), set(days)
    return tuple(
        Repair(**{name: value for name, value in asdict(v).items() if name in fields})
        for v in past
        if v.day in among and v.is_repair
    )
