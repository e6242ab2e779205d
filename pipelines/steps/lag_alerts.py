"""Alerts of lag: people are told once when a stream falls behind, and once when it no longer is."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.config.model import PipelineConfig
from pipelines.errors import InfrastructureError, OncelakeError
from pipelines.lag.alert_file import alerts_lock, read_alerts, write_alerts
from pipelines.lag.alerts import EVALUATION, AlertPolicy, AlertState, Evaluation, PipelineAlerts, status_of
from pipelines.lag.texts import advice_text, symptom_text
from pipelines.runtime.notifications import alert, hooks
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.lag import StageLag

_log = logging.getLogger(__name__)


@dataclass
class LagAlerts:
    """Takes evaluations of lag, and calls the hooks of `notify` when an alert is raised or cleared.

    Alerts, and messages that a hook has not sent, are kept in a file, so it makes no difference whether one
    process makes all evaluations, each is made by a process of its own, or several make them beside each
    other. A message is kept before it is sent, so a process that dies in between may send it twice, and loses
    none.

    Attributes:
        pipeline: The pipeline.
        goes_on: Whether this process makes more evaluations, so that its memory stands in for a file that
            cannot be written.
    """

    pipeline: Pipeline
    goes_on: bool
    _book: PipelineAlerts | None = None
    _is_kept: bool = True

    def take(self, found: Sequence[StageLag] | OncelakeError) -> Mapping[str, AlertState]:
        """Take an evaluation: the lag of the stages, or why it cannot be found out.

        Returns:
            The alert of each stage, and of the evaluation itself.

        Raises:
            InfrastructureError: The alerts cannot be read, or not be kept for the next process; nothing was
                sent.
        """
        with alerts_lock(self.pipeline):
            before = self._before()
            after = updated_alerts(before, self.pipeline.config, found)
            # What could not be kept the last time may be now.
            if after != before or not self._is_kept:
                self._keep(after)
            self._book = send_pending(after, self.pipeline.config)
            if self._book != after:
                self._keep(self._book)
        return self._book.states

    def take_failure(self, error: OncelakeError) -> Mapping[str, AlertState] | None:
        """Take an evaluation that has failed; alerts that cannot be read or kept are only logged.

        It is the failure that people are to see.

        Args:
            error: Why the lag cannot be found out.

        Returns:
            As `take`; None if the alerts cannot be read or kept, so that nothing was taken.
        """
        try:
            return self.take(error)
        except InfrastructureError as unkept:
            _log.warning("%s", unkept)
            return None

    def _before(self) -> PipelineAlerts:
        """Return the alerts as the last process has left them; what could not be kept is newer."""
        if self._book is not None and not self._is_kept:
            return self._book
        try:
            return read_alerts(self.pipeline)
        except InfrastructureError as error:
            if self._book is None:
                raise
            _log.warning("%s", error)
            return self._book

    def _keep(self, book: PipelineAlerts) -> None:
        try:
            write_alerts(self.pipeline, book)
            self._is_kept = True
        except InfrastructureError as error:
            if not self.goes_on:
                raise
            self._is_kept = False
            _log.warning("%s", error)


def updated_alerts(
    before: PipelineAlerts, config: PipelineConfig, found: Sequence[StageLag] | OncelakeError
) -> PipelineAlerts:
    """Return alerts after one more evaluation, with a message for each that it changes.

    Args:
        before: The alerts before.
        config: Of the pipeline: how many evaluations change an alert, and which hooks send messages.
        found: The lag of the stages, or why it cannot be found out.
    """
    policy = AlertPolicy(config.lag.raise_after, config.lag.clear_after)
    settings = [hook.setting for hook in hooks(config.notify)]
    return before.after(_evaluations(found, before.states), datetime.now(UTC), policy, settings)


def send_pending(book: PipelineAlerts, config: PipelineConfig) -> PipelineAlerts:
    """Send the messages that wait; return the alerts with those that could not be sent."""

    def send(message: Mapping[str, Any], settings: Collection[str]) -> Collection[str]:
        told = {"job": "lag", "pipeline": config.name, "env": config.env, **message}
        return alert(config.notify, told, settings)

    return book.send_pending(send)


def _evaluations(found: Sequence[StageLag] | OncelakeError, known: Iterable[str]) -> list[Evaluation]:
    """Return what an evaluation says of its subjects, and of those that had an alert before."""
    if isinstance(found, OncelakeError):
        return [Evaluation(EVALUATION, "bad", {"error": str(found)})]
    evaluations = [Evaluation(EVALUATION, "good"), *map(_evaluation, found)]
    # A stage that the pipeline no longer has is not behind.
    left = {*known} - {each.subject for each in evaluations}
    return [*evaluations, *(Evaluation(subject, "good") for subject in sorted(left))]


def _evaluation(stage: StageLag) -> Evaluation:
    facts, diagnosis = stage.facts, stage.diagnosis
    details = {
        "cause": diagnosis.cause,
        "evidence": [symptom_text(each) for each in diagnosis.symptoms],
        "advice": advice_text(diagnosis.advice, stage.start),
        "records": facts.records,
        "behind_s": facts.behind_s,
    }
    return Evaluation(facts.name, status_of(diagnosis.cause), details)
