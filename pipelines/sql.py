"""Names and values as SQL text."""

from datetime import UTC, datetime


def name(column: str) -> str:
    """Return a column in SQL; dots lead into objects, as no name of a contract has one."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.split("."))


def literal(value: object) -> str:
    """Return a value in SQL."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case _:
            return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def instant(value: datetime) -> str:
    """Return an instant, which has a zone, in SQL."""
    return f"TIMESTAMP'{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"


def moment(value: str) -> str:
    """Return SQL for an instant as text, in UTC.

    Kafka takes timestamps of any year, and Python's end with 9999.
    """
    return f"date_format({value}, 'yyyy-MM-dd HH:mm:ss.SSS')"
