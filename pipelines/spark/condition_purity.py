"""Whether a condition looks at its record alone, judged by the plan that Spark makes of it.

The text cannot tell: a column may be called `current_balance`, and `IDENTIFIER('no' || 'w')()` is a clock.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

# What an expression may end in; all else that stands on nothing is the clock, the session or the cluster.
_LEAVES: Final = {
    "AttributeReference",
    "Literal",
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


def asks_more(sql: str, plan: Any) -> str | None:
    """Return what a condition uses beyond its record: the clock, the user, other rows; or that it makes rows.

    Args:
        sql: the condition.
        plan: the analyzed plan (of the JVM) that selects the condition as its last column.

    Returns:
        The part that asks, as Spark writes it; None if there is none.
    """
    if typed := _TYPED.search(sql):
        return typed[0]
    if plan.nodeName() != "Project" or not plan.children().head().children().isEmpty():
        return "other rows, or makes rows"
    for node in _nodes(plan.expressions().last()):
        name, children = node.getClass().getSimpleName(), _listed(node.children())
        if name in _CHANGING or not (children or name in _LEAVES) or not node.deterministic():
            return str(node.sql())
        if node.dataType().typeName() in _TIMES and any(map(_is_moment, children)):
            return str(node.sql())
    return None


def _nodes(node: Any) -> Iterator[Any]:
    """Yield the nodes of an expression, the inner ones first, so that the first found is the one at fault."""
    for child in _listed(node.children()):
        yield from _nodes(child)
    yield node


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(position) for position in range(sequence.size())]


def _is_moment(node: Any) -> bool:
    """Return whether it is a text that as a date or timestamp means another moment each time."""
    if not node.references().isEmpty() or node.dataType().typeName() != "string":
        return False
    try:
        return str(node.eval(None)).strip().lower().startswith(_MOMENTS)
    except (PySparkException, Py4JJavaError):
        # Some functions are rewritten before they can be computed.
        return any(moment in node.sql().lower() for moment in _MOMENTS)
