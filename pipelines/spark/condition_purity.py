"""Whether a condition looks at its record alone, judged by what Spark makes of it.

The text cannot tell: a column may be called `current_balance`, and a name in backticks may be a function.
What Spark's parser makes of it is looked at first, since the analysis of a query already reads tables and
files; then the plan is.
"""

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.spark.expression_nodes import kinds, listed, nodes, refused_function_of

# What an expression may end in; all else that stands on nothing is the clock, the session or the cluster.
_LEAVES: Final = {
    "AttributeReference",
    "Literal",
    # What BETWEEN and nullif compare twice.
    "CommonExpressionRef",
    "NamedLambdaVariable",
    "Pi",
    "EulerNumber",
    "CreateArray",
    "CreateMap",
    "CreateNamedStruct",
    "Concat",
}
_CHANGING: Final = {"CurrentTime", "RaiseError"}
_MOMENTS: Final = ("now", "today", "tomorrow", "yesterday")
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")
# The parser makes a moment of these before there is a plan.
_TYPED: Final = re.compile(
    rf"\b(?:date|timestamp\w*)\s*r?(['\"])\s*(?:{'|'.join(_MOMENTS)})\b[^'\"]*\1", re.IGNORECASE
)


def reaches_out(spark: SparkSession, sql: str) -> str | None:
    """Return what of a condition is more than an expression; nothing is looked up or computed for that.

    Args:
        spark: The session, whose parser reads the condition, and which knows the functions of Spark.
        sql: The condition.

    Returns:
        A query, a function that reaches files, addresses or Java, or one that is not Spark's own; None if
        there is none.

    Raises:
        AnalysisException: It is not SQL.
    """
    session: Any = spark._jsparkSession
    for node in nodes(session.sessionState().sqlParser().parseExpression(sql)):
        names = kinds(node)
        if "SubqueryExpression" in names:
            return "a query"
        if "UnresolvedIdentifier" in names[0]:
            return "IDENTIFIER, behind which any function may be"
        if names[0] == "UnresolvedFunction" and (why := refused_function_of(spark, listed(node.nameParts()))):
            return why
    return None


def asks_more(sql: str, plan: Any) -> str | None:
    """Return what a condition uses beyond its record: the clock, the user, other rows; or that it makes rows.

    Args:
        sql: The condition.
        plan: The analyzed plan (of the JVM) that selects the condition as its last column.

    Returns:
        The part that asks, as Spark writes it; None if there is none.
    """
    if typed := _TYPED.search(sql):
        return typed[0]
    if plan.nodeName() != "Project" or not plan.children().head().children().isEmpty():
        return "other rows, or makes rows"
    for node in nodes(plan.expressions().last()):
        name, children = node.getClass().getSimpleName(), listed(node.children())
        if name in _CHANGING or not (children or name in _LEAVES) or not node.deterministic():
            return str(node.sql())
        if node.dataType().typeName() in _TIMES and any(map(_is_moment, children)):
            return str(node.sql())
    return None


def _is_moment(node: Any) -> bool:
    """Return whether it is a text that as a date or timestamp means another moment each time."""
    if not node.references().isEmpty() or node.dataType().typeName() != "string":
        return False
    try:
        return str(node.eval(None)).strip().lower().startswith(_MOMENTS)
    except (PySparkException, Py4JJavaError):
        # Some functions are rewritten before they can be computed.
        return any(moment in node.sql().lower() for moment in _MOMENTS)
