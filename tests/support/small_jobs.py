"""Small processes in the place of jobs, for what chaos does with jobs."""

import json
from collections.abc import Callable
from pathlib import Path

from chaos.commands import Site
from chaos.journal import Injected, Journal
from chaos.runbook import Runbook
from chaos.schedule import QUERIES, Fault, Kind
from chaos.supervisor import Supervisor, names_of
from testbed.waiting import wait_until

# Says and ends as it is told in a file; a stream of which no file tells runs on.
JOB = """
import json, sys, time
from pathlib import Path
words, folder = sys.argv[1:], Path(FOLDER)
name = words[0] + (" reset" if words[1] == "reset" else "") + (" --once" if "--once" in words else "")
with (folder / "calls").open("a") as calls:
    calls.write(name + "\\n")
told = folder / name
if told.exists():
    code, error = json.loads(told.read_text())
    print(json.dumps({"error": error}))
    sys.exit(code)
if name.endswith("_stream"):
    time.sleep(100)
"""
SPEED = "north/speed"
WITHIN_S = 30.0


class SmallJobs:
    """The streams of a pipeline as processes that do as they are told, and their supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "logs").mkdir()
        self.site = Site(folder, "nowhere:9092", ("-c", JOB.replace("FOLDER", repr(str(folder)))))
        self.journal = Journal(folder / "journal.jsonl")
        streams = {name: self.site.stream(*name.split("/")) for name in names_of(["north"], QUERIES)}
        self.is_quiet = True
        runbook = Runbook(self.site, self.journal, lambda _: {0: 7})
        self.supervisor = Supervisor(
            runbook, streams, self.journal, lambda: self.is_quiet, again_s=0.0, refused_s=0.0
        )

    def tell(self, command: str, code: int, error: str) -> None:
        (self.folder / command).write_text(json.dumps([code, error]))

    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def injected(self, kind: Kind) -> Injected:
        return self.journal.inject(Fault(1.0, kind, SPEED, detail="offsets cut"))

    def rules(self) -> set[str]:
        return {violation.rule for violation in self.journal.violations}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, WITHIN_S, self.supervisor.check)
