"""A stream that publishes and is told to stop in the middle of a micro-batch."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pipelines.steps.publish import publish
from testbed.waiting import wait_until
from tests.support.lakes import Lake
from tests.support.publish_faults import Fault, striking


def stop_in_the_middle(lake: Lake, slow: Fault, condition: Callable[[], bool]) -> None:
    """Publishes until a condition holds.

    Args:
        lake: whose events go out.
        slow: holds a slot back.
        condition: waited for.
    """

    def stop() -> None:
        try:
            wait_until(condition, "the micro-batch is in its middle")
        finally:
            # Else nobody would end the stream.
            os.kill(os.getpid(), signal.SIGTERM)

    with striking(slow), ThreadPoolExecutor(1) as beside:
        stopping = beside.submit(stop)
        publish(lake.pipeline, once=False)
        stopping.result(60)
