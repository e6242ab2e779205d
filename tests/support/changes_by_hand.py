"""What people and other programs do to the tables of a lake behind its back."""

from collections.abc import Callable

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from pipelines.delta.table_properties import APPEND_ONLY, set_table_property, table_property


def change_by_hand(spark: SparkSession, table: str, command: Callable[[DeltaTable], object]) -> None:
    """Runs a command of Delta on a table, which is made to take it if it refuses changes."""
    refuses = table_property(spark, table, APPEND_ONLY) is not None
    if refuses:
        set_table_property(spark, table, APPEND_ONLY, "false")
    command(DeltaTable.forPath(spark, table))
    if refuses:
        set_table_property(spark, table, APPEND_ONLY, "true")
