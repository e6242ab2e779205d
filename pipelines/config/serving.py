"""How readers find the lake."""

from pydantic import BaseModel, ConfigDict, Field


class ServingConfig(BaseModel):
    """What readers of the lake query: a view, and a table for engines that read no view of Spark's.

    Attributes:
        view: Catalog view that jobs keep up to date, such as `lake.flights`. The schema must exist. In
            Spark's default catalog, in memory, the view is lost when the job ends: use a metastore
            (`spark.sql.catalogImplementation: hive` in `spark.conf`).
        table: Whether jobs keep `serving/NAME` up to date, a Delta table with the certified days and nothing
            else, for [other engines](engines.md). Certified days are then stored twice.
        database: Database in which `oncelake catalog register` registers the tables, such as `lake`, or
            `unity.lake` in a catalog of Spark's. It must exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    view: str | None = Field(default=None, pattern=r"^\w+(\.\w+){0,2}$")
    table: bool = False
    database: str | None = Field(default=None, pattern=r"^\w+(\.\w+)?$")
