"""Up to which offsets retention has removed records from bronze, as a property of the table says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pipelines.delta.first_complete_day import first_complete_day_of_source
from pipelines.delta.table_properties import REMOVED_BELOW, WHOLE_FROM, parse_property, table_property
from pipelines.errors import SourceError
from pipelines.spark.pipeline import Pipeline

# Bronze names topics of a further cluster `CLUSTER/TOPIC`. Neither name has a comma or an @.
_KEPT: Final = re.compile(r"([^,@\s]+)-([0-9]{1,10})@([0-9]{1,19})")

FirstKept = Mapping[tuple[str, int], int]
"""By topic, as bronze names it, and partition: the first offset that retention kept. Of a partition that is
not among them it has removed nothing."""


@dataclass(frozen=True)
class RetentionCut:
    """Up to where retention has removed records.

    Attributes:
        day: The first complete day that it set.
        first_kept: The first offset of each partition that it kept.
    """

    day: date
    first_kept: FirstKept

    def text(self) -> str:
        """Return the property, which `parse_cut` reads."""
        parts = (f"{topic}-{number}@{offset}" for (topic, number), offset in sorted(self.first_kept.items()))
        return f"{self.day} {','.join(parts)}"


def parse_cut(text: str) -> RetentionCut:
    """Read the property.

    Raises:
        ValueError: Retention did not write this.
    """
    day, _, partitions = text.partition(" ")
    first_kept = dict[tuple[str, int], int]()
    for part in partitions.split(","):
        match = _KEPT.fullmatch(part)
        if match is None:
            raise ValueError(part)
        first_kept[match[1], int(match[2])] = int(match[3])
    return RetentionCut(date.fromisoformat(day), first_kept)


def explained_by(cut: RetentionCut | None, first_complete: date | None) -> FirstKept | None:
    """Return the first offset of each partition that retention kept, if nothing else removed records.

    Args:
        cut: What retention wrote; None if that is not known.
        first_complete: The first complete day of bronze. If it is later than the one that retention set, then
            ingest or a person has set it, since bronze lost other records: nobody knows which.

    Returns:
        None if other records were lost, too.
    """
    if first_complete is None:
        return {}
    return cut.first_kept if cut is not None and cut.day == first_complete else None


def first_kept(pipeline: Pipeline, first_complete: date | None) -> FirstKept | None:
    """Return the first offset of each partition that retention kept in bronze, which is there.

    Args:
        pipeline: The pipeline.
        first_complete: The first complete day, of bronze or of one of its clusters.

    Returns:
        None if other records were lost, too, see `explained_by`.

    Raises:
        SourceError: The table says that it is complete from a day on before which retention removed records.
    """
    table = pipeline.table("bronze")
    text = None if first_complete is None else table_property(pipeline.spark, table, REMOVED_BELOW)
    cut = None if text is None else parse_property(table, REMOVED_BELOW, text, parse_cut)
    if cut is not None and first_complete is not None and first_complete < cut.day:
        raise SourceError(
            f"{table}: property {WHOLE_FROM}: found {first_complete}, expected {cut.day} or later: maintain"
            f" has removed records of the days before {cut.day}. No day was certified. Set the property to"
            " the first day of which this table holds all records, that day or a later one: see"
            " docs/runbook.md, 'Bronze is another table'"
        )
    return explained_by(cut, first_complete)


def first_kept_of_source(source: Pipeline) -> Mapping[int, int] | None:
    """Return the same of the topic of one cluster, by partition.

    Args:
        source: The pipeline, as the cluster's ingest has it.

    Returns:
        None if other records of this cluster were lost, too.
    """
    config = source.config
    kept = first_kept(source, first_complete_day_of_source(source, config.cluster))
    topic = config.kafka.source_topic
    return None if kept is None else {number: at for (name, number), at in kept.items() if name == topic}
