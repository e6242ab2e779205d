"""The peers: what each runs, what it needs, and where its rows are."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Peer:
    """A way to deduplicate a topic.

    Attributes:
        label: how tables call it.
        program: its module in `benchmarks.peers.programs`.
        files: returns the Parquet files that hold its rows, by the folder that it wrote to.
        environment: the name of its requirements, and of its virtual environment; None: Oncelake's own.
        jars: the configuration of `ivy.xml`; `spark` stands for Oncelake's jars.
        needs_hadoop: whether the jars of Hadoop's client that come with Spark must be on its class path.
        commits: returns files that are there once it has committed rows, where `files` has them at the end.
    """

    label: str
    program: str
    files: Callable[[Path], Sequence[Path]]
    environment: str | None = None
    jars: str | None = None
    needs_hadoop: bool = False
    commits: Callable[[Path], Sequence[Path]] | None = None

    def has_committed(self, folder: Path) -> bool:
        """Return whether there are committed rows; files that are just being written do not count."""
        with suppress(OSError, ValueError):
            return bool((self.commits or self.files)(folder))
        return False


def delta_files(table: Path) -> list[Path]:
    """Return the files of a Delta table whose log is whole."""
    live: dict[str, None] = {}
    for commit in sorted(table.glob("_delta_log/*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = None
            elif "remove" in action:
                live.pop(action["remove"]["path"], None)
    return [table / name for name in live]


def visible_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are not hidden: Flink's are hidden until they are committed."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name[:1] not in "._"]


PEERS: Final[dict[str, Peer]] = {
    "oncelake": Peer("Oncelake, bronze kept", "oncelake", lambda at: delta_files(at / "speed/events")),
    "spark": Peer(
        "Spark, dropDuplicatesWithinWatermark",
        "stock_spark",
        lambda at: delta_files(at / "table"),
        None,
        "spark",
    ),
    "merge": Peer("Spark, MERGE", "merge", lambda at: delta_files(at / "table"), None, "spark"),
    "flink": Peer(
        "Flink SQL", "flink", lambda at: visible_files(at / "table"), "flink", "flink", needs_hadoop=True
    ),
    "hudi": Peer(
        "Hudi upsert",
        "hudi",
        lambda at: visible_files(at / "newest"),
        "hudi",
        "hudi",
        commits=lambda at: [*at.glob("table/.hoodie/timeline/*.commit")],
    ),
    "quix": Peer("Quix Streams, delta-rs", "quix", lambda at: delta_files(at / "table"), "quix"),
    "limit": Peer("librdkafka, polars, delta-rs", "limit", lambda at: delta_files(at / "table"), "limit"),
}
