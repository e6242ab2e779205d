"""A lake with certified days, which is made once and of which each test gets a copy."""

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables
from tests.support.lakes import Lake, Record
from tests.support.nights import ONE, TWO, on, run

Nights = Literal["one night", "two nights"]
"""How many nights have been over a lake; each has certified one more day, from the first on."""

RECORDS: Sequence[Record] = (on(1, 1), on(2, 2), on(2, 4, tailnum="N4"), on(3, 3))
"""What bronze holds, as one micro-batch of one partition."""


@dataclass(frozen=True)
class PreparedLake:
    """A lake as each of two nights left it, in folders that nobody changes.

    No table and no checkpoint of a lake without streams holds the path that it was made at.
    """

    pipeline: Pipeline
    folder: Path

    @staticmethod
    def make(lake: Lake, folder: Path) -> None:
        """Let the nights pass over an empty lake.

        Args:
            lake: the lake; it is not used any more afterwards.
            folder: where copies of it are kept.
        """
        lake.ingest(RECORDS)
        after: tuple[Nights, Nights] = ("one night", "two nights")
        for day, nights in zip((ONE, TWO), after, strict=True):
            run(lake, day)
            shutil.copytree(lake.config.root, folder / nights)

    def copied(self, root: Path, nights: Nights) -> Lake:
        """Return a lake as it was after some nights.

        Args:
            root: the folder of the copy, which must not be there.
            nights: after which nights.
        """
        shutil.copytree(self.folder / nights, root)
        config = self.pipeline.config
        place = config.lake.model_copy(update={"root": str(root)})
        pipeline = replace(self.pipeline, config=config.model_copy(update={"lake": place}))
        return Lake(pipeline, {0: itertools.count(len(RECORDS))}, itertools.count(1))

    def bring_on(self, lake: Lake, nights: Nights) -> None:
        """Let further nights pass over a copy; tables that are not prepared stay as they are.

        Args:
            lake: the copy, to which nothing was ingested.
            nights: after which nights it is then.
        """
        shutil.copytree(self.folder / nights, lake.config.root, dirs_exist_ok=True)
        forget_tables()

    def table(self, nights: Nights, lake: Lake, table: str) -> Path:
        """Return where a table stands as it was after some nights.

        Args:
            nights: after which nights.
            lake: a copy.
            table: its table, as the configuration names it.
        """
        return self.folder / nights / Path(table).relative_to(lake.config.root)
