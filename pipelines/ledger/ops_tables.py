"""The tables under `ops/`, in which a lake remembers what its jobs have done.

All pipelines of a lake share them. DDL, schemas, the lists of upkeep and `docs/tables.md` come from here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipelines.delta.fenced_commits import append_few
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import ensure_table, exists, shape, small_frame
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

_PLACE: Final = "struct<topic: string, partition: int, offset: bigint>"
SAMPLE: Final = (
    f"key array<struct<column: string, value: string>>, batch {_PLACE}, speed {_PLACE},"
    " event_time string, ingested_at string, watermark string"
)
"""The columns of an event by which the layers differ."""


@dataclass(frozen=True)
class TableSpec:
    """A table under `ops/`.

    Attributes:
        name: Its name.
        meaning: What a row is.
        ddl: Its columns, as SQL has them.
        partitions: The columns by which its files are divided.
        is_compacted: Whether upkeep compacts the partition of its pipeline.
        is_vacuumed: Whether upkeep deletes files that no version of the last days needs: of tables whose
            files are rewritten, or from which values of records are taken out. Nobody reads old versions
            of these for long, and what is deleted is old in all partitions, so no run of another pipeline
            needs it.
    """

    name: str
    meaning: str
    ddl: str
    partitions: tuple[str, ...] = ("pipeline",)
    is_compacted: bool = True
    is_vacuumed: bool = False

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return shape(self.ddl)

    def path(self, pipeline: Pipeline) -> str:
        """Return where the table is."""
        return pipeline.ops_table(self.name)

    def exists(self, pipeline: Pipeline) -> bool:
        """Return whether there is the table."""
        return exists(pipeline.spark, self.path(pipeline))

    def rows(self, pipeline: Pipeline, at: int | None = None) -> DataFrame:
        """Return the rows of a pipeline, with the columns that the table has.

        Args:
            pipeline: The pipeline.
            at: The version of the table, if not the newest.
        """
        return read_small(pipeline.spark, self.path(pipeline), at).where(rows_of(pipeline))

    def frame(self, pipeline: Pipeline, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
        """Return a few rows of a pipeline as the table has them.

        Args:
            pipeline: The pipeline.
            rows: Values by column name, one for each column but `pipeline`; timestamps with a zone.
        """
        named = [{**row, "pipeline": pipeline.name} for row in rows]
        return small_frame(pipeline.spark, named, self.schema)

    def append(self, pipeline: Pipeline, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append a few rows of a pipeline, as one commit; make the table if there is none.

        Args:
            pipeline: The pipeline.
            rows: As for `frame`.

        Raises:
            ConfigError, InfrastructureError: As for `ensure`.
        """
        self.ensure(pipeline)
        append_few(self.frame(pipeline, rows), self.path(pipeline))

    def ensure(self, pipeline: Pipeline) -> None:
        """Make the table if there is none, and add columns that a table of an earlier release lacks.

        Raises:
            ConfigError: There is a table with columns that do not fit.
            InfrastructureError: The place cannot be written.
        """
        ensure_table(pipeline.spark, self.path(pipeline), self.schema, partitions=self.partitions)


def rows_of(pipeline: Pipeline) -> str:
    """Return the SQL condition that holds for the rows of a pipeline."""
    return rows_named(pipeline.name)


def rows_named(name: str) -> str:
    """Return the SQL condition that holds for the rows of a pipeline, or of a lease, of a name."""
    return f"pipeline = {literal(name)}"


BEGUN_PUBLICATIONS: Final = TableSpec(
    "begun_publications",
    "One row for each day that a run of `oncelake publish` has begun to send, whether or not it came to the"
    " end.",
    "pipeline string, day date, batch_version bigint, batch_commit string, topic_id string, number bigint,"
    " sink string, certified_version bigint, run_id string, begun_at timestamp, partitions int",
)
BRONZE_INDEX: Final = TableSpec(
    "bronze_index",
    "The bronze index: which micro-batches of bronze hold the records of a day. Counts of records by"
    " micro-batch, event day and reason, and offsets by partition.",
    "pipeline string, made_for string, until bigint, kind string, commit bigint, ingested_at timestamp,"
    " day date, reason string, records bigint, newest timestamp, topic string, partition int, first bigint,"
    " last bigint, distinct bigint, sent timestamp, appended timestamp, bronze_id string,"
    " until_commit string, topic_id string, whole_from date, clock timestamp, ingested_from timestamp,"
    " batches array<struct<at: timestamp, commit: bigint, newest: timestamp, clock: timestamp>>",
    is_vacuumed=True,
)
CERTIFICATIONS: Final = TableSpec(
    "certifications",
    "One row for each verdict on an event day.",
    "pipeline string, day date, status string, run_id string, batch_version bigint, bronze_version bigint,"
    " records bigint, rows bigint, duplicates bigint, conflicts bigint, late bigint, quarantined bigint,"
    " other_days bigint, bronze bigint, decided_at timestamp, cause string, came_late bigint,"
    " previous_version bigint, added bigint, removed bigint, changed bigint, bronze_id string,"
    " base_version bigint, epoch bigint, batch_commit string, bronze_commit string",
)
FORGOTTEN_PLACES: Final = TableSpec(
    "forgotten",
    "One row for each record that `oncelake forget` has emptied, or whose rows it has deleted, with its"
    " coordinates.",
    "pipeline string, topic_id string, _topic string, _partition int, _offset bigint,"
    " event_time timestamp, forgotten_at timestamp, run_id string",
)
LAYER_SAMPLES: Final = TableSpec(
    "layer_samples",
    "Samples of the events in which speed and batch layer differed in an audit.",
    f"pipeline string, day date, run_id string, difference string, {SAMPLE}, recorded_at timestamp",
    is_vacuumed=True,
)
LEASES: Final = TableSpec(
    "leases",
    "One row for each pipeline, and one for its backfills (`NAME@backfill`): the run that holds the lease,"
    " its command, the epoch, and the process.",
    "pipeline string, holder string, host string, pid bigint, process_started double, since timestamp,"
    " until timestamp, epoch bigint, boot string, pid_namespace string, job string",
    is_compacted=False,
    is_vacuumed=True,
)
PUBLICATIONS: Final = TableSpec(
    "publications",
    "One row for each day that `oncelake publish` has sent to the output topic.",
    "pipeline string, day date, batch_version bigint, topic_id string, run_id string,"
    " published_at timestamp, batch_commit string, partitions int",
)
PUBLISHED_DAYS: Final = TableSpec(
    "published_days",
    "The days that `publish_stream` has settled on the output topic: the version of the batch table, the"
    " micro-batch that settled the day, and whether the day is left to `oncelake publish` (`is_left`).",
    "pipeline string, query string, batch bigint, day date, batch_version bigint, batch_commit string,"
    " topic_id string, is_left boolean",
)
RUNS: Final = TableSpec(
    "runs",
    "One row for each step of a nightly run, with its outcome and duration.",
    "pipeline string, run_id string, step string, status string, first_day date, last_day date, days int,"
    " detail string, started_at timestamp, ended_at timestamp",
)
VALIDATION_RESULTS: Final = TableSpec(
    "validation_results",
    "One row for the result of each check of each run on a day.",
    "pipeline string, day date, run_id string, name string, kind string, status string, observed string,"
    " expected string, detail string, batch_version bigint, bronze_version bigint, checked_at timestamp,"
    " result string",
    is_vacuumed=True,
)
WRITER_SCHEMAS: Final = TableSpec(
    "writer_schemas",
    "The responses of the schema registry, one row for each schema id.",
    "pipeline string, registry string, id bigint, kind string, text string, fetched_at timestamp,"
    " schema_id string",
    partitions=(),
    is_compacted=False,
)

OPS_TABLES: Final = (
    *(BRONZE_INDEX, CERTIFICATIONS, VALIDATION_RESULTS, RUNS, LAYER_SAMPLES),
    *(PUBLISHED_DAYS, PUBLICATIONS, BEGUN_PUBLICATIONS, FORGOTTEN_PLACES, LEASES, WRITER_SCHEMAS),
)
"""All of them, in the order in which upkeep takes them."""
