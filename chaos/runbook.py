"""What an operator does when a stream is refused: the commands of docs/runbook.md and docs/publishing.md."""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.commands import Site
from chaos.journal import Journal

_PUBLISHING: Final = "publish_stream"
_COMMAND_S: Final = 180.0
_TRIES_S: Final = 240.0
_PAUSE_S: Final = 5.0
_NO_RIGHT: Final = re.compile(r"does not allow|[Aa]uthori[sz]|AUTHORIZATION")
_RESET: Final = re.compile(r"checkpoint reset\b.*?--query (\w+)")
_DAMAGED: Final = re.compile(
    r"(?:file:)?(/\S+/_delta_log/\d+)\.json: the file of a commit is empty or cut off"
)
_NOT_DONE: Final = re.compile(r"(?:file:)?(/\S+/commits/\d+): the file that says that micro-batch")


def reset_in(error: str) -> str | None:
    """Return the query whose checkpoint a message tells to reset; None if it does not."""
    found = _RESET.search(error)
    return found[1] if found else None


def lacks_permission(error: str) -> bool:
    """Return whether a message says that the cluster does not allow something."""
    return bool(_NO_RIGHT.search(error))


def damaged_commit(error: str) -> Path | None:
    """Return the commit that a message says is damaged, without `.json`; None if it says nothing of one."""
    found = _DAMAGED.search(error)
    return Path(found[1]) if found else None


def damaged_end(error: str) -> Path | None:
    """Return the file of a checkpoint's `commits` that a message says is damaged; None if it says of none."""
    found = _NOT_DONE.search(error)
    return Path(found[1]) if found else None


def _damaged(error: str) -> Path | None:
    return damaged_commit(error) or damaged_end(error)


@dataclass
class Runbook:
    """Follows the runbook, while the streams that it is about are stopped.

    Attributes:
        site: where the pipelines are.
        journal: what happened.
        ends_of: tells where the output topic of a pipeline ends, by partition.
        sent_again: that, each time when its events were sent from the beginning.
    """

    site: Site
    journal: Journal
    ends_of: Callable[[str], Mapping[int, int]]
    sent_again: dict[str, list[Mapping[int, int]]] = field(default_factory=dict)

    def follow(self, pipeline: str, query: str, error: str) -> None:
        """Do what it says.

        Args:
            pipeline: whose stream was refused.
            query: the stream.
            error: what the stream said.
        """
        if damaged := _damaged(error):
            self._move_aside(damaged)
        elif query == "publish" and reset_in(error) is None:
            self._begin_publishing(pipeline)
        else:
            self._make_anew(pipeline, reset_in(error) or query)

    def send_days(self, pipeline: str, first: str, last: str) -> None:
        """Send certified days as a whole, which follows a start from the beginning."""
        self._note_end(pipeline)
        self._command(pipeline, "publish", set(), "--from", first, "--to", last, "--again")

    def finish_publishing(self, pipeline: str) -> None:
        """Publish what there is, with no micro-batch left unfinished, as before an upgrade."""
        self._command(pipeline, _PUBLISHING, set(), "--once")

    def _make_anew(self, pipeline: str, query: str) -> None:
        done = {query}
        self._command(pipeline, "checkpoint reset", done, "--query", query)
        if "ingest" in done:
            self._command(pipeline, "ingest_stream", done, "--once")
            self._command(pipeline, "reconcile", done)
        if "speed" in done:
            self._command(pipeline, "speed_stream", done, "--once")
            self._begin_publishing(pipeline)

    def _begin_publishing(self, pipeline: str) -> None:
        checkpoint = self.site.checkpoint(f"{pipeline}/publish")
        if checkpoint.exists():
            checkpoint.rename(checkpoint.with_name(f"publish-old-{time.time_ns()}"))
        self._command(pipeline, "publish reset", set(), "--to", "beginning")
        # Now all who published before are fenced.
        self._note_end(pipeline)

    def _note_end(self, pipeline: str) -> None:
        self.sent_again.setdefault(pipeline, []).append(self.ends_of(pipeline))

    def _move_aside(self, moved: Path) -> None:
        backups = self.site.folder / "backups"
        backups.mkdir(exist_ok=True)
        # Also what Hadoop keeps beside them: it would be taken for the checksum of the next such commit.
        for file in list(moved.parent.iterdir()):
            if moved.name in file.name.split("."):
                shutil.move(file, backups / f"{file.parents[1].name}-{file.name}")
        self.journal.say(f"moved aside {moved.name} of {moved.parent}")

    def _command(self, pipeline: str, command: str, done: set[str], *options: str) -> None:
        """Run a command, again if the cluster or another run is in its way.

        Args:
            pipeline: the pipeline.
            command: the command.
            done: the queries whose checkpoints were reset; one that the command tells to reset is added, and
                what it says is damaged and was moved aside, and a stream that was begun again.
            options: of the command.
        """
        deadline = time.monotonic() + _TRIES_S
        while True:
            job = self.site.errand(
                f"{pipeline}/{command} {' '.join(options)}".strip(), pipeline, command, *options
            )
            job.start()
            code = job.wait(_COMMAND_S)
            job.kill()
            if code is None and self.site.desk:
                self.site.desk.open_again()
            error = str(job.summary().get("error", ""))
            self.journal.end(job.name, -1 if code is None else code, error)
            if code == 0:
                return
            if code == 4 and (named := reset_in(error)) and named not in done:
                done.add(named)
                self._command(pipeline, "checkpoint reset", done, "--query", named)
            elif code == 4 and (damaged := _damaged(error)) and str(damaged) not in done:
                # Of another table or checkpoint than the command is about.
                done.add(str(damaged))
                self._move_aside(damaged)
            elif code == 4 and command == _PUBLISHING and command not in done:
                done.add(command)
                self._begin_publishing(pipeline)
            elif (code != 1 and not (code == 2 and lacks_permission(error))) or time.monotonic() > deadline:
                self.journal.violate("the commands of the runbook lead back", f"{job.name}: {code}: {error}")
                return
            else:
                time.sleep(_PAUSE_S)
