"""Alerts of lag: people are told once when a stream falls behind, and once when it no longer is."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.errors import InfrastructureError, OncelakeError
from pipelines.lag.alert_file import read_alerts, write_alerts
from pipelines.lag.alerts import EVALUATION, AlertBook, AlertPolicy, AlertState, Evaluation, standing_of
from pipelines.lag.texts import advice_text, evidence_text
from pipelines.runtime.notifications import alert, hooks
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.lag import StageLag

_log = logging.getLogger(__name__)


@dataclass
class LagAlerts:
    """Takes evaluations of lag, and calls the hooks of `notify` when an alert is raised or cleared.

    Alerts, and messages that a hook has not sent, are kept in a file, so it makes no difference whether one
    process makes all evaluations or each is made by a process of its own. A message is kept before it is
    sent, so a process that dies in between may send it twice, and loses none.

    Attributes:
        pipeline: The pipeline.
        goes_on: Whether this process makes more evaluations, so that its memory stands in for a file that
            cannot be written.
    """

    pipeline: Pipeline
    goes_on: bool
    _book: AlertBook | None = None

    def take(self, found: Sequence[StageLag] | OncelakeError) -> Mapping[str, AlertState]:
        """Take an evaluation: the lag of the stages, or why it cannot be found out.

        Returns:
            The alert of each stage, and of the evaluation itself.

        Raises:
            InfrastructureError: the alerts cannot be read, or not be kept for the next process; nothing was
                sent.
        """
        config = self.pipeline.config
        policy = AlertPolicy(config.lag.raise_after, config.lag.clear_after)
        before = self._book or read_alerts(self.pipeline)
        settings = [hook.setting for hook in hooks(config.notify)]
        after = before.after(_evaluations(found, before.states), datetime.now(UTC), policy, settings)
        self._book = self._kept(before, after)
        self._book = self._kept(self._book, self._book.sent(self._send))
        return self._book.states

    def take_failure(self, error: OncelakeError) -> None:
        """Take an evaluation that has failed; alerts that cannot be read or kept are only logged.

        It is the failure that people are to see.

        Args:
            error: Why the lag cannot be found out.
        """
        try:
            self.take(error)
        except InfrastructureError as unkept:
            _log.warning("%s", unkept)

    def _kept(self, before: AlertBook, after: AlertBook) -> AlertBook:
        if after != before:
            try:
                write_alerts(self.pipeline, after)
            except InfrastructureError as error:
                if not self.goes_on:
                    raise
                _log.warning("%s", error)
        return after

    def _send(self, message: Mapping[str, Any], settings: Collection[str]) -> Collection[str]:
        config = self.pipeline.config
        told = {"job": "lag", "pipeline": config.name, "env": config.env, **message}
        return alert(config.notify, told, settings)


def _evaluations(found: Sequence[StageLag] | OncelakeError, known: Iterable[str]) -> list[Evaluation]:
    """Return what an evaluation says of its subjects, and of those that had an alert before."""
    if isinstance(found, OncelakeError):
        return [Evaluation(EVALUATION, "bad", {"error": str(found)})]
    evaluations = [Evaluation(EVALUATION, "good"), *map(_evaluation, found)]
    # A stage that the pipeline no longer has is not behind.
    left = {*known} - {each.subject for each in evaluations}
    return [*evaluations, *(Evaluation(subject, "good") for subject in sorted(left))]


def _evaluation(stage: StageLag) -> Evaluation:
    evidence, diagnosis = stage.evidence, stage.diagnosis
    details = {
        "cause": diagnosis.cause,
        "evidence": [evidence_text(each) for each in diagnosis.evidence],
        "advice": advice_text(diagnosis.advice, stage.start),
        "records": evidence.records,
        "behind_s": evidence.behind_s,
    }
    return Evaluation(evidence.name, standing_of(diagnosis.cause), details)
