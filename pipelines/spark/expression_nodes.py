"""What Spark's parser makes of SQL, as objects of the JVM: its nodes, and the functions that it calls."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.contracts.confinement import REFUSED_FUNCTIONS

_BUILTIN: Final = (["builtin"], ["system", "builtin"])


def refused_function_of(spark: SparkSession, parts: list[str]) -> str | None:
    """Return why a function may not be called, by the parts of its name; None if it may."""
    name = parts[-1].lower()
    if why := REFUSED_FUNCTIONS.get(name):
        return f"{name}, which {why}"
    session: Any = spark._jsparkSession
    jvm: Any = spark.sparkContext._jvm
    is_plain = len(parts) == 1 or [part.lower() for part in parts[:-1]] in _BUILTIN
    some = jvm.scala.Option.apply
    is_known = (
        session.sessionState()
        .functionRegistry()
        .functionExists(
            jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
        )
    )
    return None if is_plain and is_known else f"{'.'.join(parts)}, which is not a function of Spark"


def kinds(node: Any) -> list[str]:
    """Return the names of the class of a node, and of the classes above it."""
    names, kind = [], node.getClass()
    while kind is not None:
        names.append(str(kind.getSimpleName()))
        kind = kind.getSuperclass()
    return names


def nodes(node: Any) -> Iterator[Any]:
    """Yield the nodes of an expression, the inner ones first, so that the first found is the one at fault."""
    for child in listed(node.children()):
        yield from nodes(child)
    yield node


def listed(sequence: Any) -> list[Any]:
    """Return a sequence of Scala as a list."""
    return [sequence.apply(position) for position in range(sequence.size())]
