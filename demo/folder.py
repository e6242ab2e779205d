"""The demo's own folder: made by it, emptied by it, and never somebody else's."""

import json
import os
import shutil
from pathlib import Path

import psutil

from demo.processes import end_leftovers
from pipelines.errors import ConfigError
from pipelines.runtime.local_broker import running_broker

MARKER = ".oncelake-demo"


class DemoFolder:
    """Where a demo keeps its broker, lake, logs and report.

    Args:
        root: The folder; need not exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.broker = self.root / "broker"
        self.lake = self.root / "lake"
        self.logs = self.root / "logs"
        self.report = self.root / "report"
        self.contracts = self.root / "contracts"

    def claim(self) -> None:
        """Empty it for a fresh run, and mark it as the demo's.

        A broker and jobs that a killed demo left running in it are ended.

        Raises:
            ConfigError: It holds what no demo made, or a demo that runs.
        """
        marker = self.root / MARKER
        if self.root.exists() and not self.root.is_dir():
            raise ConfigError(f"--folder {self.root}: found a file, expected a folder or nothing")
        if marker.exists():
            self._expect_ended(marker)
            if left := running_broker(self.broker):
                left.stop()
            end_leftovers(self.logs)
            shutil.rmtree(self.root)
        elif self.root.is_dir() and any(self.root.iterdir()):
            raise ConfigError(
                f"--folder {self.root}: found files that no demo made (there is no {MARKER}), expected an "
                "empty folder or none; name another folder"
            )
        self.logs.mkdir(parents=True)
        (self.root / ".gitignore").write_text("*\n", encoding="utf-8")
        marker.write_text(
            json.dumps({"pid": os.getpid(), "started": psutil.Process().create_time()}), encoding="utf-8"
        )

    def _expect_ended(self, marker: Path) -> None:
        try:
            owner = json.loads(marker.read_text(encoding="utf-8"))
            running: bool = psutil.Process(owner["pid"]).create_time() == owner["started"]
        except (ValueError, KeyError, psutil.NoSuchProcess):
            return
        if running:
            raise ConfigError(
                f"--folder {self.root}: a demo runs in it (process {owner['pid']}), expected none; "
                "wait for its end, or name another folder"
            )
