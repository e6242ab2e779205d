"""Faults of state: files of checkpoints and tables that are damaged, put back, or written by two."""

import shutil
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from chaos.effects import Effect
from chaos.jobs import Job
from chaos.schedule import QUERIES
from chaos.state_files import file_to_tear, tear
from chaos.supervisor import names_of, newest_micro_batch
from chaos.traffic import DAYS

_NIGHT_S: Final = 120.0
_FEW: Final = 3


class Tear(Effect):
    """A file of a checkpoint that is damaged while its stream is down."""

    def inject(self) -> None:
        """Kill the stream and damage the file; it is started again as after any death."""
        name, job = self.fault.target, self.target()
        if job is None or not self.can_write() or not self.is_next():
            return
        which, how = self.fault.detail.split()
        held = self.world.supervisor.held
        held.add(name)
        job.kill()
        file = file_to_tear(self.world.site.checkpoint(name), which)
        if file is None:
            self.settle("not injected: there is no such file yet")
        else:
            tear(file, how)
            self.world.supervisor.explain(name, self.injected)
        held.discard(name)


class TearCommit(Effect):
    """The newest commit of a table that is cut off, as after a crash of the machine."""

    _users: Final = {"bronze": ("ingest", "speed"), "speed": ("speed", "publish")}

    def inject(self) -> None:
        """Kill the streams that use the table, and damage the commit."""
        supervisor, pipeline = self.world.supervisor, self.fault.target
        layer, how = self.fault.detail.split()
        names = names_of([pipeline], self._users[layer])
        commits = _commits(self.world.site.lake / layer / pipeline)
        if not self.can_write() or not self.is_next():
            return
        if supervisor.held & set(names) or len(commits) < _FEW:
            self.settle("not injected: a stream was at rest, or there are few commits yet")
            return
        for name in names:
            supervisor.streams[name].kill()
        tear(self.world.site.lake / layer / pipeline / "_delta_log" / max(commits), how)
        for name in names_of([pipeline], QUERIES):
            supervisor.explain(name, self.injected)


class SecondCopy(Effect):
    """The same job once more, on the same checkpoint."""

    _copy: Job | None = None

    def inject(self) -> None:
        """Start it."""
        if self.target() is None or not self.is_next():
            return
        pipeline, _, query = self.fault.target.partition("/")
        self._copy = self.world.site.stream(pipeline, query)
        self._copy.name = f"{self.fault.target} (copy {round(self.injected.at_s)})"
        self._copy.start()
        self._explain(is_under_way=True)

    def heal(self) -> None:
        """Kill it, unless it was refused."""
        if self._copy is None:
            return
        code = self._copy.code
        if code is not None:
            error = str(self._copy.summary().get("error", ""))
            self.world.journal.end(self._copy.name, code, error)
            self.settle(f"the copy ended with {code}")
        self._copy.kill()
        self._explain(is_under_way=False)

    def _explain(self, *, is_under_way: bool) -> None:
        self.world.supervisor.explain(
            self.fault.target, self.injected, needs_repair=False, is_under_way=is_under_way
        )


class RestoreCheckpoint(Effect):
    """A checkpoint that is put back as it was some time before."""

    def inject(self) -> None:
        """Take the backup, while the stream stands still."""
        job = self.target()
        if job is None:
            return
        job.send(signal.SIGSTOP)
        _copy(self._place, self._backup)
        job.send(signal.SIGCONT)

    def heal(self) -> None:
        """Kill the stream, and put the backup in the place of what is there."""
        name, held = self.fault.target, self.world.supervisor.held
        if not self._backup.exists() or name in held:
            self.settle("not injected: there was no backup, or the stream was at rest")
            return
        if not self.can_write() or not self.is_next():
            return
        held.add(name)
        self.world.supervisor.streams[name].kill()
        has_gone_on = newest_micro_batch(self._place) != newest_micro_batch(self._backup)
        shutil.rmtree(self._place)
        shutil.move(self._backup, self._place)
        if has_gone_on:
            self.world.supervisor.explain(name, self.injected)
        else:
            self.settle("nothing was written since the backup")
        held.discard(name)

    @property
    def _place(self) -> Path:
        return self.world.site.checkpoint(self.fault.target)

    @property
    def _backup(self) -> Path:
        name = f"{self.fault.target.replace('/', '-')}-{round(self.injected.at_s)}"
        return self.world.site.folder / "backups" / name


class RestoreTable(Effect):
    """A table that is put back as it was some time before."""

    _writers: Final = {"bronze": "ingest", "speed": "speed", "certifications": "nightly"}
    _readers: Final = {"bronze": ("speed",), "speed": ("publish",), "certifications": ("publish",)}
    _newer: Path | None = None

    def inject(self) -> None:
        """Take the backup, while its writer stands still."""
        writer = self.world.job(f"{self.fault.target}/{self._writers[self.fault.detail]}")
        if not (self._place / "_delta_log").is_dir():
            self.settle("not injected: there is no such table yet")
            return
        if writer:
            writer.send(signal.SIGSTOP)
        _copy(self._place, self._backup)
        if writer:
            writer.send(signal.SIGCONT)

    def heal(self) -> None:
        """Kill who writes and reads it, and put the backup in its place."""
        if not self._backup.exists() or not self.can_write() or not self.is_next():
            return
        if (self._backup / "_delta_log").is_dir() and _commits(self._backup) == _commits(self._place):
            self.settle("nothing was written since the backup")
            return
        supervisor, pipeline = self.world.supervisor, self.fault.target
        queries = (self._writers[self.fault.detail], *self._readers[self.fault.detail])
        names = [f"{pipeline}/{query}" for query in queries]
        if supervisor.held & set(names):
            self.settle("not injected: the stream was at rest")
            return
        streams = [name for name in names if name in supervisor.streams]
        supervisor.held |= set(streams)
        for name in streams:
            supervisor.streams[name].kill()
        if self.fault.detail == "certifications":
            supervisor.aside(set(streams), partial(self._put_back_verdicts, pipeline))
            return
        self.world.watches[pipeline].pause()
        shutil.rmtree(self._place)
        shutil.move(self._backup, self._place)
        self.world.watches[pipeline].resume()
        for name in streams:
            supervisor.explain(name, self.injected)
        supervisor.held -= set(streams)

    def _put_back_verdicts(self, pipeline: str) -> None:
        """Let a nightly run see the older ledger, and then restore the right one, as the runbook says."""
        self.world.nights[pipeline].kill()
        watch = self.world.watches[pipeline]
        watch.pause()
        certified, newer = watch.reader.certified(), self._backup.with_name(f"{self._backup.name}-newer")
        shutil.move(self._place, newer)
        shutil.move(self._backup, self._place)
        if watch.reader.certified().version == certified.version:
            # A nightly run would rightly go on from there, and what it certifies may not be taken away again.
            self._take_back(newer)
            watch.resume()
            self.settle("not injected: no verdict was written since the backup")
            return
        night = self.world.site.nightly(pipeline)
        night.name = f"{pipeline}/nightly (older verdicts)"
        night.start("--to", str(DAYS[-1]))
        code = night.wait(_NIGHT_S)
        error = str(night.summary().get("error", ""))
        night.kill()
        self.world.journal.end(night.name, -1 if code is None else code, error)
        if code == 0:
            self.world.journal.violate("verdicts that are gone are noticed", f"{pipeline}: exit code 0")
        self._take_back(newer)
        watch.resume()
        self.settle(f"the nightly run ended with {code}; the newer table was restored")

    def _take_back(self, newer: Path) -> None:
        shutil.rmtree(self._place)
        shutil.move(newer, self._place)

    @property
    def _place(self) -> Path:
        lake, detail = self.world.site.lake, self.fault.detail
        return lake / "ops" / detail if detail == "certifications" else lake / detail / self.fault.target

    @property
    def _backup(self) -> Path:
        name = f"{self.fault.target}-{self.fault.detail}-{round(self.injected.at_s)}"
        return self.world.site.folder / "backups" / name


def _copy(place: Path, backup: Path) -> None:
    backup.parent.mkdir(exist_ok=True)
    # What is no longer there when it is its turn was being written, and is not part of the moment.
    with suppress(shutil.Error, OSError):
        shutil.copytree(place, backup)


def _commits(table: Path) -> set[str]:
    return {path.name for path in (table / "_delta_log").glob("*.json")}
