"""What the console knows of a lake at a moment: figures, when they were read, and why there are no newer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar
from zoneinfo import ZoneInfo

from pipelines.config.values import RackMode
from pipelines.lag.diagnosis import LagCause
from pipelines.lag.stage_facts import StageFacts
from pipelines.ledger.certifications import Verdict
from pipelines.ledger.overview import PipelineLedger
from pipelines.report.model.records import QuarantineReason
from pipelines.report.model.report import DayStatus

DAYS_SHOWN: Final = 31

ConcernSeverity = Literal["failed", "warned", "open", "passed"]
"""`failed`: somebody has to act; `warned`: somebody should look; `open`: not known; `passed`: all is well."""

Figures = TypeVar("Figures")


@dataclass(frozen=True)
class Reading(Generic[Figures]):
    """Figures from one place, which may be older than the page that shows them.

    Attributes:
        value: The newest figures; None if there were none yet.
        at: The moment that they show.
        failure: Why newer ones could not be read; None if they could.
        asked_at: Since when an answer is waited for that takes too long; None if it does not.
    """

    value: Figures | None = None
    at: datetime | None = None
    failure: str | None = None
    asked_at: datetime | None = None

    @property
    def is_read(self) -> bool:
        """Whether the last attempt brought figures."""
        return self.value is not None and self.failure is None and self.asked_at is None

    def age_s(self, now: datetime) -> float | None:
        """Return how old the figures are, in seconds; None if there are none."""
        return None if self.at is None else max((now - self.at).total_seconds(), 0.0)

    def is_old(self, now: datetime, after_s: float) -> bool:
        """Return whether the figures must not be taken for those of now.

        Args:
            now: The time.
            after_s: The age in seconds from which on they are old, whatever the reason.
        """
        age = self.age_s(now)
        return age is not None and (self.failure is not None or self.asked_at is not None or age > after_s)

    def failed(self, failure: str) -> "Reading[Figures]":
        """Return the same figures, of which newer ones could not be read."""
        return replace(self, failure=failure, asked_at=None)


@dataclass(frozen=True)
class LakeFigures:
    """What of a pipeline is beside its tables and in its quarantine.

    Attributes:
        streams: What the files of each stage's stream say, without its lag.
        quarantine: The unresolved records by reason, with samples, redacted by the contract.
        quarantine_state: The table and its version that they are of; None if there is none.
        withholds: Whether the contract has personal data, so that values are not shown.
        publish_query: The id of the publishing query; None if it never ran.
    """

    streams: tuple[StageFacts, ...] = ()
    quarantine: tuple[QuarantineReason, ...] = ()
    quarantine_state: str | None = None
    withholds: bool = False
    publish_query: str | None = None


@dataclass(frozen=True)
class DiagnosisTexts:
    """Why a stage is behind, in the words of `oncelake lag`.

    Attributes:
        cause: The cause; `none` if it is not behind.
        symptoms: What points to it.
        confidence: From 0 to 1, as in `pipelines.lag.diagnosis`.
        advice: What helps; empty if nothing has to be done.
    """

    cause: LagCause
    symptoms: tuple[str, ...]
    confidence: float
    advice: str = ""


@dataclass(frozen=True)
class DiagnosedStage:
    """How far a stage is behind, and why, as `oncelake lag` says it."""

    facts: StageFacts
    diagnosis: DiagnosisTexts


@dataclass(frozen=True)
class RackFigures:
    """Which share of the topic's bytes can be read within a rack, as `oncelake rack doctor` says it.

    Attributes:
        mode: `kafka.rack.mode`.
        shares: The share by mode; empty if no broker has a rack.
        hints: What would raise it.
        cluster: The cluster that has the topic; None for the first.
        failure: Why nothing of it is known; None if it is.
    """

    mode: RackMode
    shares: Mapping[RackMode, float] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    cluster: str | None = None
    failure: str | None = None


@dataclass(frozen=True)
class ClusterFigures:
    """What needs an answer of Kafka.

    Attributes:
        stages: The lag of all stages, in the order of the data.
        racks: What of the topic can be read within a rack, for each cluster that is not retired.
    """

    stages: tuple[DiagnosedStage, ...] = ()
    racks: tuple[RackFigures, ...] = ()


@dataclass(frozen=True)
class DayView:
    """An event day.

    Attributes:
        day: The day.
        status: As in reports; a day without a verdict is `not_certified`.
        verdict: The newest verdict that stands; None if there is none.
        failed_checks: Names of the checks that failed, if the verdict did.
        has_report: Whether the folder of reports has a page of it.
    """

    day: date
    status: DayStatus
    verdict: Verdict | None = None
    failed_checks: tuple[str, ...] = ()
    has_report: bool = False


@dataclass(frozen=True)
class PipelineView:
    """One pipeline.

    Attributes:
        name: Its name.
        refusal: Why its configuration or contract is refused; None if it is not, and the rest is empty if so.
        zone: The zone of its event days.
        publishes_to: The output topic; None if nothing is published.
        ledger: Of the tables under `ops/`.
        lake: Of its files and its quarantine.
        cluster: Of Kafka.
        reports: The days of which there is a report.
    """

    name: str
    refusal: str | None = None
    zone: str = "UTC"
    publishes_to: str | None = None
    ledger: Reading[PipelineLedger] = Reading()
    lake: Reading[LakeFigures] = Reading()
    cluster: Reading[ClusterFigures] = Reading()
    reports: frozenset[date] = frozenset()

    @property
    def days(self) -> tuple[DayView, ...]:
        """The last days, the newest first: those with a verdict, and those that are over since the first.

        They end with today, unless the pipeline reads of a past that is long over.
        """
        ledger = self.ledger.value
        verdicts = {verdict.day: verdict for verdict in ledger.verdicts} if ledger else {}
        if ledger is None or self.ledger.at is None or not verdicts:
            return ()
        today, newest, first = (
            self.ledger.at.astimezone(ZoneInfo(self.zone)).date(),
            max(verdicts),
            min(verdicts),
        )
        last = today if today - newest < timedelta(days=DAYS_SHOWN) else newest
        return tuple(
            self._day(day, verdicts.get(day), ledger)
            for day in (last - timedelta(days=n) for n in range(DAYS_SHOWN))
            if day in verdicts or first < day < today
        )

    def _day(self, day: date, verdict: Verdict | None, ledger: PipelineLedger) -> DayView:
        status: DayStatus = verdict.status if verdict else "not_certified"
        return DayView(day, status, verdict, ledger.failed_checks.get(day, ()), day in self.reports)


@dataclass(frozen=True)
class LakeView:
    """All pipelines of a folder of configuration.

    Attributes:
        env: The environment.
        version: Of Oncelake.
        at: When this was put together.
        old_after_s: From which age on figures are old.
        pipelines: In the order of their names.
        failure: Why the last collection failed as a whole; None if it did not.
    """

    env: str
    version: str
    at: datetime
    old_after_s: float
    pipelines: tuple[PipelineView, ...] = ()
    failure: str | None = None

    @property
    def oldest_at(self) -> datetime | None:
        """The moment that the oldest figures show; None if there are none."""
        readings = (reading for each in self.pipelines for reading in _readings(each))
        return min((reading.at for reading in readings if reading.at), default=None)


def reading_failures(view: LakeView) -> Iterator[str]:
    """Yield why a lake could not be read, or nothing of any pipeline; nothing if something could."""
    if view.failure is not None:
        yield view.failure
    elif not any(reading.is_read for each in view.pipelines for reading in _readings(each)):
        for each in view.pipelines:
            failures = (reading.failure or "no answer in time" for reading in _readings(each))
            for failure in dict.fromkeys([each.refusal] if each.refusal is not None else failures):
                yield f"{each.name}: {failure}"


def _readings(pipeline: PipelineView) -> tuple[Reading[Any], ...]:
    return pipeline.ledger, pipeline.lake, pipeline.cluster
