"""What SQL of contracts and suites may not have: it looks at records, and reaches nothing else.

The text is looked at here, which needs no Spark: `contract lint` finds what is plain to see. Before a job
starts, `pipelines.spark.condition_purity` looks at what Spark's parser makes of a condition.
"""

import re
from collections.abc import Mapping
from typing import Final

REFUSED_FUNCTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), "calls any method of Java"),
    **dict.fromkeys(
        ("input_file_name", "input_file_block_start", "input_file_block_length", "read_files"),
        "asks for files",
    ),
    # By an option, such as avroSchemaUrl and rowValidationXSDPath.
    **dict.fromkeys(
        (
            *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
            *("from_xml", "schema_of_xml"),
            # Java's parser fetches what the document type of a text names.
            *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long"),
            *("xpath_number", "xpath_short", "xpath_string"),
        ),
        "can read a file or an address",
    ),
}
"""Functions of Spark that reach beyond the records, each with what it does."""

EXPECTED: Final = (
    "an expression over the columns of a record (no query, no reflection, no file, no address, no function of"
    " a catalog)"
)
"""What a condition may be, for messages."""

# What does not end goes to the end of the text. Otherwise the end of each further one would be looked for
# in all that follows.
_HIDDEN: Final = re.compile(
    r"--(?:\\\n|[^\r\n])*+|/\*.*?(?:\*/|\Z)|\b[rR]'[^']*(?:'|\Z)|\b[rR]\"[^\"]*(?:\"|\Z)"
    r"|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|`(?P<name>[^`]*)`",
    re.DOTALL,
)
_ENDED: Final = re.compile(r"--.*|/\*.*\*/|[rR]?(['\"]).*\1", re.DOTALL)
_FUNCTION: Final = re.compile(rf"\b({'|'.join(REFUSED_FUNCTIONS)})\s*\(", re.IGNORECASE)
_QUERY: Final = re.compile(r"\(\s*(?:select\b|with\s+\w+\s+as\s*\()", re.IGNORECASE)
_PATH: Final = re.compile(r"\b(?:from|join)\s+\w+\s*\.\s*`[^`]*[/:][^`]*`", re.IGNORECASE)


def beyond_the_record(sql: str) -> str | None:
    """Return what of a condition reaches beyond its record, as far as its text tells; None if nothing."""
    return refused_function(sql) or ("a query" if _QUERY.search(_bare(sql)) else None)


def beyond_the_rows(sql: str) -> str | None:
    """Return what of a query over rows reaches beyond the tables of the catalog; None if nothing does."""
    return refused_function(sql) or ("a path as a table" if _PATH.search(sql) else None)


def refused_function(sql: str) -> str | None:
    """Return the first function that is refused, with what it does; None if there is none."""
    # In backticks it is called all the same.
    bare = _bare(sql, keep_names=True)
    found = _FUNCTION.search(bare)
    return found and f"{found[1]}, which {REFUSED_FUNCTIONS[found[1].lower()]}"


def _bare(sql: str, *, keep_names: bool = False) -> str:
    """Return SQL without its comments and texts; all of it where Spark may see other ends of these.

    Args:
        sql: The SQL.
        keep_names: Whether names in backticks stay.
    """
    parts = list(_HIDDEN.finditer(sql))
    # For Spark a comment in a comment has an end of its own.
    if any(part[0].startswith("/*") and "/*" in part[0][2:] for part in parts):
        return sql

    def stand_in(part: re.Match[str]) -> str:
        if part["name"] is not None:
            return part["name"] if keep_names else " "
        return " " if _ENDED.fullmatch(part[0]) else part[0]

    return _HIDDEN.sub(stand_in, sql)
