"""A supervisor that runs in a thread, over programs that stand for streams."""

import threading

from pipelines.supervision.child import Program
from pipelines.supervision.output import Printer, label_text
from pipelines.supervision.restarts import RestartPolicy
from pipelines.supervision.supervisor import StreamOutcome, Supervisor

WITHIN_S = 60
POLICY = RestartPolicy(most_restarts=3, first_pause_s=0.01, longest_pause_s=0.05)
LOOK_EVERY_S = 0.05
# What streams do with signals, without Spark: SIGTERM ends them well.
STREAM = """
import signal, sys, time
from pathlib import Path
from pipelines.runtime.processes import end_with_parent
end_with_parent()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Path(sys.argv[1]).open("a") as starts:
    starts.write("started\\n")
{then}
"""


class Supervised:
    """A supervisor that runs in a thread."""

    def __init__(
        self, *programs: Program, stop_within_s: float = WITHIN_S, policy: RestartPolicy = POLICY
    ) -> None:
        self.alarms: list[StreamOutcome] = []
        self.outcomes: list[StreamOutcome] = []
        self.supervisor = Supervisor(
            policy, Printer(label_text), self.alarms.append, stop_within_s, look_every_s=LOOK_EVERY_S
        )
        self._thread = threading.Thread(
            target=lambda: self.outcomes.extend(self.supervisor.run(programs)), daemon=True
        )
        self._thread.start()

    def wait(self) -> list[StreamOutcome]:
        """What became of each stream, once all have ended."""
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        return self.outcomes

    def stop(self) -> list[StreamOutcome]:
        """The same, once all were asked to end."""
        self.supervisor.request_stop()
        return self.wait()
