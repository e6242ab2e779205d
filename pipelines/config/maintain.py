"""What a configuration may say of the upkeep of its tables: how long rows and files are kept."""

from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from pipelines.config.values import PositiveInterval
from pipelines.durations import format_interval

_SHORTEST_VACUUM: Final = timedelta(days=7)


def _long_enough(interval: timedelta) -> timedelta:
    if interval < _SHORTEST_VACUUM:
        raise ValueError(
            "expected 7 days at least: readers and streams that began with an older version of a table still"
            " need its files"
        )
    return interval


VacuumInterval = Annotated[PositiveInterval, AfterValidator(_long_enough)]


class MaintainConfig(BaseModel):
    """What `maintain` deletes and compacts.

    Attributes:
        bronze_retention: How long records stay in bronze after they were sent; without it, forever. Days
            whose records are deleted are never rebuilt or audited again. More than `batch.lookback_days` + 2
            x `batch.dedup_horizon_days` + `decode.max_future`.
        speed_retention: How long rows of certified days stay in the speed layer, behind the last certified
            day; without it, forever. At least `batch.lookback_days` + 2 x `batch.dedup_horizon_days`.
        quarantine_retention: How long replayed and discarded records stay in quarantine after bronze has
            deleted them; without it, forever. At least `maintain.bronze_retention`, which must be set.
        vacuum_after: How long files stay that only earlier versions of a table use. At least 7 days.
        max_idle: Maximum age of the newest commit of bronze. If it is older, `maintain` does not trust the
            clock: it deletes nothing, and ends with exit code 1.
        compact: Whether small files are compacted (`OPTIMIZE`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bronze_retention: PositiveInterval | None = None
    speed_retention: PositiveInterval | None = None
    quarantine_retention: PositiveInterval | None = None
    vacuum_after: VacuumInterval = _SHORTEST_VACUUM
    max_idle: PositiveInterval = timedelta(days=7)
    compact: bool = True


def check_retentions(maintain: MaintainConfig, lookback: int, horizon: int, max_future: timedelta) -> None:
    """Make sure that what one step needs is not removed by another's retention.

    Args:
        maintain: The retentions.
        lookback: How many days the nightly run looks back for late records.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
        max_future: How far an event time may lie after its record was sent.

    Raises:
        ValueError: A retention is too short. The message names the setting and the shortest that will do.
    """
    needed = timedelta(days=lookback + 2 * horizon)
    parts = f"batch.lookback_days ({lookback}) + 2 x batch.dedup_horizon_days ({horizon})"
    bronze, speed, quarantine = (
        maintain.bronze_retention,
        maintain.speed_retention,
        maintain.quarantine_retention,
    )
    if bronze and bronze <= needed + max_future:
        raise ValueError(
            f"bronze_retention: expected more than {parts} + decode.max_future"
            f" ({format_interval(max_future)}), which is {format_interval(needed + max_future)}, got"
            f" '{format_interval(bronze)}': the nightly run rebuilds these days from bronze"
        )
    if speed and speed < needed:
        raise ValueError(
            f"speed_retention: expected {parts}, which is {format_interval(needed)}, at least, got"
            f" '{format_interval(speed)}': the audit compares these days with the speed layer"
        )
    if quarantine and (bronze is None or quarantine < bronze):
        bronze_text = f"'{format_interval(bronze)}'" if bronze else "not set, so that bronze keeps everything"
        raise ValueError(
            f"quarantine_retention: expected no less than bronze_retention, which is {bronze_text}, got"
            f" '{format_interval(quarantine)}': the audit looks for bronze's broken records in quarantine"
        )
