"""Run events of OpenLineage: what a job reads and writes, when it began, and how it ended.

They are sent if one of OpenLineage's own environment variables says where to, by its own client, from a
thread of their own: an endpoint that is down, or slow, changes nothing of a job.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

import pipelines
from pipelines.config.datasets import Dataset, Datasets, datasets_of
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.contracts.descriptions import descriptions_of
from pipelines.errors import ConfigError
from pipelines.runtime.addresses import mask_addresses

URL_VARIABLE: Final = "OPENLINEAGE_URL"
CONFIG_VARIABLE: Final = "OPENLINEAGE_CONFIG"
_NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"
_DISABLED: Final = "OPENLINEAGE_DISABLED"
_THREAD: Final = "openlineage"
_PRODUCER: Final = f"urn:oncelake:{pipelines.__version__}"
END_WITHIN_S: Final = 5.0
"""For how long the end of a job waits until its events are sent."""
_SHOWN: Final = 300
_STATES: Final[Mapping[tuple[str, bool], str]] = {
    ("done", False): "COMPLETE",
    ("done", True): "COMPLETE",
    ("failed", False): "FAIL",
    ("failed", True): "FAIL",
    ("stopped", False): "ABORT",
    # To be stopped is how a stream ends.
    ("stopped", True): "COMPLETE",
}

_log = logging.getLogger(__name__)


def begin_events(config: PipelineConfig, contract: DataContract, job: str) -> "RunEvents | None":
    """Send that a job has begun, if the environment asks for run events.

    Args:
        config: The pipeline's configuration.
        contract: Its contract.
        job: The job's name.

    Returns:
        What sends that it has ended; None if nobody asks, or the command is no job.

    Raises:
        ConfigError: The client of OpenLineage is not installed, or refuses its settings.
    """
    datasets = datasets_of(config, job)
    variable = asking_variable(os.environ)
    if datasets is None or variable is None:
        return None
    try:
        from openlineage.client import OpenLineageClient, event_v2
    except ImportError:
        raise ConfigError(
            f"{variable}: found it set, and the package openlineage-python missing, which sends run events."
            " Install it: pip install 'oncelake[openlineage]'; or unset the variable"
        ) from None
    event_v2.set_producer(_PRODUCER)
    try:
        client = OpenLineageClient()
    except Exception as error:  # noqa: BLE001 - it has no common class for what it refuses
        raise ConfigError(
            f"{variable}: found settings that the client of OpenLineage refuses: {type(error).__name__}:"
            f" {mask_addresses(str(error))}; fix them, or unset the variable"
        ) from None
    events = RunEvents(client.emit, _Run(config, contract, job, datasets))
    events.send("START")
    return events


def asking_variable(environ: Mapping[str, str]) -> str | None:
    """Return which variable of the environment asks for run events; None if nobody asks."""
    if environ.get(_DISABLED, "").strip().lower() == "true":
        return None
    return next((name for name in (URL_VARIABLE, CONFIG_VARIABLE) if environ.get(name)), None)


@dataclass(frozen=True)
class _Change:
    """A change of the state of a run.

    Attributes:
        state: The new state.
        error: Why the run has failed.
        at: When.
    """

    state: str
    error: str | None
    at: datetime


class _Run:
    """A run of a job, from which events are made."""

    def __init__(self, config: PipelineConfig, contract: DataContract, job: str, datasets: Datasets) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._run_id = str(generate_new_uuid())
        self._config, self._contract, self._job = config, contract, job
        self.datasets = datasets

    def event(self, change: "_Change") -> Any:
        """Return the event of a change of the run's state."""
        from openlineage.client import event_v2 as events
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        kind = job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if self.datasets.is_stream else "BATCH",
            integration="ONCELAKE",
            jobType="JOB",
        )
        why = change.error
        failure = error_message_run.ErrorMessageRunFacet(message=why or "", programmingLanguage="PYTHON")
        return events.RunEvent(
            eventType=events.RunState[change.state],
            eventTime=change.at.isoformat(),
            run=events.Run(self._run_id, {"errorMessage": failure} if why else {}),
            job=events.Job(
                os.environ.get(_NAMESPACE) or "oncelake",
                f"{self._config.env}.{self._config.name}.{self._job}",
                {"jobType": kind},
            ),
            inputs=[events.InputDataset(**self._described(one)) for one in self.datasets.inputs],
            outputs=[events.OutputDataset(**self._described(one)) for one in self.datasets.outputs],
        )

    def _described(self, dataset: Dataset) -> dict[str, Any]:
        facets = {"schema": _schema(self._contract)} if dataset.has_events else {}
        return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _schema(contract: DataContract) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    comments = descriptions_of(contract).columns

    def fields(kind: DataType, path: str) -> list[Any]:
        match kind:
            case ArrayType():
                return fields(kind.elementType, f"{path}[]")
            case MapType():
                return fields(kind.valueType, f"{path}{{}}")
            case StructType():
                return [field(f.name, f.dataType, f"{path}.{f.name}" if path else f.name) for f in kind]
        return []

    def field(name: str, kind: DataType, path: str) -> Any:
        return schema_dataset.SchemaDatasetFacetFields(
            name=name, type=kind.simpleString(), description=comments.get(path), fields=fields(kind, path)
        )

    return schema_dataset.SchemaDatasetFacet(fields=fields(contract.schema, ""))


class RunEvents:
    """Sends the events of a run, in order, from a thread of its own; what goes wrong is told once."""

    def __init__(self, emit: Callable[[Any], object], run: _Run) -> None:
        self._emit, self._run = emit, run
        self._is_told = False
        self._waiting: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=_THREAD, daemon=True)
        self._thread.start()

    def send(self, state: str, error: str | None = None) -> None:
        """Let an event be sent.

        Args:
            state: The run's new state.
            error: Why it has failed.
        """
        self._waiting.put(_Change(state, error, datetime.now(UTC)))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Send how the run ended, and wait for a short time until it is sent.

        Args:
            summary: The run's summary, with `status`, and with `error` if it has failed.
        """
        state = _STATES[summary["status"], self._run.datasets.is_stream]
        self.send(state, summary.get("error"))
        self._waiting.put(None)
        self._thread.join(END_WITHIN_S)
        if self._thread.is_alive():
            self._tell(f"not sent within {END_WITHIN_S:g} seconds")

    def _work(self) -> None:
        with _Complaints() as complaints:
            while (change := self._waiting.get()) is not None:
                try:
                    self._emit(self._run.event(change))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is no concern of the job
                    self._tell(f"{type(error).__name__}: {error}")
                if complaints.texts:
                    self._tell(complaints.texts.pop())

    def _tell(self, failure: str) -> None:
        if not self._is_told:
            self._is_told = True
            told = mask_addresses(failure)[:_SHOWN]
            _log.warning("run events for OpenLineage are missing there; the job continues: %s", told)


class _Complaints(logging.Handler):
    """Keeps what the client logs from the log of the job; some of its transports do not raise what fails.

    Attributes:
        texts: Its warnings.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._logger = logging.getLogger("openlineage")
        # Others connect by it as well, from other threads.
        self._connections = logging.getLogger("urllib3.connectionpool")

    def __enter__(self) -> "_Complaints":
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._connections.addFilter(_is_of_others)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        self._connections.removeFilter(_is_of_others)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.texts.append(record.getMessage())


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.threadName != _THREAD
