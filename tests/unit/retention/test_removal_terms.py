"""What may be removed, and what keeps more from going, by what a lake says; the lake is a fake."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.config.streams import Layer
from pipelines.delta.retention_cut import parse_cut
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.retention.removal_terms import (
    FirstOffset,
    bronze_removal,
    quarantine_removal,
    speed_removal,
)

NOW = datetime(2013, 6, 30, 12, tzinfo=UTC)
MONTH = timedelta(days=30)
ZONE = ZoneInfo("UTC")
DAYS = tuple(date(2013, 5, 1) + timedelta(days=n) for n in range(60))
CUT = (FirstOffset("flights", 0, 3), FirstOffset("eu/flights", 0, 7))
BELOW = (
    "(_topic = 'flights' AND _partition = 0 AND _offset < 3)"
    " OR (_topic = 'eu/flights' AND _partition = 0 AND _offset < 7)"
)


def verdict(day: date, status: str = "certified") -> Verdict:
    values: dict[str, Any] = dict.fromkeys((each.name for each in fields(Verdict)), 0)
    return Verdict(**values | {"day": day, "records": 5, "status": status})


@dataclass
class Lake:
    """Sixty certified days that ended yesterday, from which all may go that is old enough."""

    config: PipelineConfig = field(default_factory=lambda: load_config("flights", environ={}))
    zone: ZoneInfo = ZONE
    unread: datetime | None = None
    unresolved: datetime | None = None
    not_quarantined: datetime | None = None
    failed: Collection[date] = ()
    late: Collection[date] = ()
    to_publish: Collection[date] = ()
    uncertified: date | None = None
    gone: date | None = None

    def now(self) -> datetime:
        return NOW

    def has(self, layer: Layer) -> bool:
        return True

    def first_complete_day(self) -> date | None:
        return self.gone

    def first_unread(self) -> datetime | None:
        return self.unread

    def first_unresolved(self) -> datetime | None:
        return self.unresolved

    def first_broken_not_quarantined(self, condition: str) -> datetime | None:
        assert condition == BELOW
        return self.not_quarantined

    def records_of_days(self) -> Mapping[date, int]:
        return dict.fromkeys(DAYS, 5)

    def verdicts(self) -> Sequence[Verdict]:
        return [verdict(day, "failed" if day in self.failed else "certified") for day in DAYS]

    def days_with_later_records(self) -> Collection[date]:
        return self.late

    def certified(self) -> Certified | None:
        return Certified(7, DAYS)

    def first_offsets_kept(self, sent: datetime) -> Sequence[FirstOffset]:
        return CUT

    def first_offsets(self) -> Sequence[FirstOffset]:
        return CUT

    def count(self, layer: Layer, condition: str) -> int:
        return 11

    def count_days(self, layer: Layer, condition: str) -> Mapping[date, int]:
        return {DAYS[0]: 11}

    def first_row_day(self, days: Collection[date], since: date) -> date | None:
        return self.uncertified

    def days_to_publish(self) -> Collection[date]:
        return self.to_publish

    def speed_from(self) -> date | None:
        return None


def test_bronze_goes_up_to_the_first_day_that_its_age_keeps() -> None:
    removal = bronze_removal(Lake(), MONTH)
    assert (removal.rows, removal.condition, removal.needs) == (11, BELOW, ())
    assert removal.kept_from == date(2013, 6, 1)
    assert removal.properties == {
        "oncelake.whole_from": "2013-06-01",
        "oncelake.removed_below": "2013-06-01 eu/flights-0@7,flights-0@3",
        "oncelake.removed_for": "0 unknown",
    }
    cut = parse_cut(removal.properties["oncelake.removed_below"])
    assert cut.first_kept == {("flights", 0): 3, ("eu/flights", 0): 7}


def test_bronze_keeps_what_a_stream_a_replay_or_a_rebuild_needs() -> None:
    old = datetime(2013, 5, 10, 12, tzinfo=UTC)
    for lake, kept_from in (
        (Lake(unread=old), date(2013, 5, 11)),
        (Lake(unresolved=old), date(2013, 5, 2)),
        (Lake(not_quarantined=old), date(2013, 5, 11)),
        (Lake(failed=[date(2013, 5, 10)]), date(2013, 5, 9)),
        (Lake(late=[date(2013, 5, 10)]), date(2013, 5, 9)),
    ):
        removal = bronze_removal(lake, MONTH)
        assert removal.to_quarantine == (BELOW if lake.not_quarantined else None)
        assert [need.day for need in removal.needs] == [kept_from]
        assert removal.kept_from == kept_from


def test_bronze_that_was_cut_later_is_not_cut_again() -> None:
    removal = bronze_removal(Lake(gone=date(2013, 5, 20), unread=datetime(2013, 5, 10, tzinfo=UTC)), MONTH)
    assert (removal.rows, removal.condition) == (0, "false")
    assert bronze_removal(Lake(gone=date(2013, 6, 1)), MONTH).rows == 0


def test_the_speed_layer_keeps_what_readers_or_consumers_have_from_nowhere_else() -> None:
    removal = speed_removal(Lake(), MONTH)
    assert removal.condition == "(_event_date >= DATE'2013-05-01' AND _event_date <= DATE'2013-05-29')"
    for lake in (Lake(uncertified=date(2013, 5, 3)), Lake(to_publish=[date(2013, 5, 3), date(2013, 6, 20)])):
        removal = speed_removal(lake, MONTH)
        assert removal.kept_from == date(2013, 5, 3)
        assert "<= DATE'2013-05-02'" in removal.condition


def test_of_the_quarantine_only_what_is_settled_old_and_gone_from_bronze_goes() -> None:
    removal = quarantine_removal(Lake(), MONTH)
    until = int((NOW - MONTH).timestamp())
    assert removal.condition == (
        f"_status <> 'open' AND _tried_at < timestamp_seconds({until}) AND ({BELOW})"
    )
