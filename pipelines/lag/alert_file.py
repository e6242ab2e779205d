"""The file that keeps a pipeline's alerts from one evaluation to the next, whoever makes it.

It is replaced as a whole, as the figures of streams are.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pydantic import TypeAdapter, ValidationError

from pipelines.errors import InfrastructureError
from pipelines.lag.alerts import PipelineAlerts
from pipelines.runtime.file_lock import file_lock, lock_file
from pipelines.spark.checkpoints import replace_file
from pipelines.spark.failures import first_line
from pipelines.spark.files import HadoopFile
from pipelines.spark.pipeline import Pipeline

_LOCKED: Final = "lag.alerts"
_LOCK_WITHIN_S: Final = 60.0
_FILE: Final = TypeAdapter(PipelineAlerts)

_log = logging.getLogger(__name__)


@contextmanager
def alerts_lock(pipeline: Pipeline) -> Iterator[None]:
    """Read, send and write alerts while no other process of this machine does.

    Two that did so at once would send the same message. That others wait must not keep people from being
    told: after a minute, or where nothing can be locked, this goes on beside them.
    """
    path = lock_file(pipeline.config.root, pipeline.name, _LOCKED)
    with ExitStack() as held:
        try:
            is_alone = held.enter_context(file_lock(path, _LOCK_WITHIN_S))
        except InfrastructureError as error:
            _log.debug("%s", error)
        else:
            if not is_alone:
                _log.warning("%s: another evaluation of lag still sends; messages may come twice", path)
        yield


def read_alerts(pipeline: Pipeline) -> PipelineAlerts:
    """Return the alerts of a pipeline; none are raised if there is no file, or one that nobody understands.

    Raises:
        InfrastructureError: It cannot be read; as if there were none, messages would be sent again.
    """
    path = pipeline.config.alerts_file
    try:
        text = HadoopFile(pipeline.spark, path).text()
        return alerts_in(text) if text else PipelineAlerts()
    except Py4JError as error:
        raise InfrastructureError(
            f"{path}: the alerts of lag cannot be read: {first_line(str(error))}; check that the user may"
            " read there"
        ) from None
    except ValidationError as error:
        _log.warning("%s is not a valid alerts file; all alerts are reset: %s", path, first_line(str(error)))
        return PipelineAlerts()


def alerts_in(text: str) -> PipelineAlerts:
    """Return the alerts that the text of the file stands for.

    Raises:
        ValidationError: It stands for none.
    """
    return _FILE.validate_json(text)


def write_alerts(pipeline: Pipeline, book: PipelineAlerts) -> None:
    """Replace the file.

    Raises:
        InfrastructureError: It cannot be written.
    """
    path = pipeline.config.alerts_file
    try:
        replace_file(pipeline.spark, path, _FILE.dump_json(book).decode())
    except Py4JError as error:
        raise InfrastructureError(
            f"{path}: the alerts of lag cannot be kept: {first_line(str(error))}; check that the user may"
            " write there"
        ) from None
