"""Whether a query over rows reads these rows alone, judged by what Spark's parser makes of it.

Great Expectations runs the queries that people add to suites, over a view of the rows (`{batch}`). A table's
name may be a path, in many spellings, so what the text shows is not enough.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.spark.expression_nodes import kinds, listed, nodes, refused_function_of

BATCH: Final = "{batch}"
"""What stands for the rows in a query."""

_ROWS: Final = "_oncelake_rows"


def reaches_beyond_rows(spark: SparkSession, sql: str) -> str | None:
    """Return what a query reads beside its rows; nothing is looked up for that.

    Args:
        spark: The session, whose parser reads the query, and which knows the functions of Spark.
        sql: The query, with `{batch}` for the rows.

    Returns:
        Another table or a path, or a function that reaches files, addresses or Java, or that is not Spark's
        own; None if there is none.

    Raises:
        AnalysisException: It is not SQL.
    """
    session: Any = spark._jsparkSession
    # As Great Expectations does before it runs one.
    query = sql.rstrip("; \t\r\n").replace(BATCH, _ROWS)
    plan = session.sessionState().sqlParser().parseQuery(query)
    found = (
        why
        for each, names in _scoped(plan, frozenset({_ROWS}))
        for why in (_other_rows(each, names), *_refused_functions(spark, each))
    )
    return next(filter(None, found), None)


def _other_rows(plan: Any, names: frozenset[str]) -> str | None:
    """Return what rows a plan itself takes that are not of the query; None if it takes no others."""
    kind = kinds(plan)[0]
    if kind == "UnresolvedRelation":
        parts = listed(plan.multipartIdentifier())
        is_own = len(parts) == 1 and parts[0].lower() in names
        return None if is_own else f"the table or path {'.'.join(parts)}"
    if kind == "RelationTimeTravel":
        return "a version of a table"
    return "IDENTIFIER, behind which any table may be" if "UnresolvedIdentifier" in kind else None


def _refused_functions(spark: SparkSession, plan: Any) -> Iterator[str | None]:
    if kinds(plan)[0] == "UnresolvedTableValuedFunction":
        yield refused_function_of(spark, listed(plan.name()))
    for expression in _expressions(plan):
        for node in nodes(expression):
            kind = kinds(node)[0]
            if "UnresolvedIdentifier" in kind:
                yield "IDENTIFIER, behind which any function may be"
            if kind == "UnresolvedFunction":
                yield refused_function_of(spark, listed(node.nameParts()))


def _scoped(plan: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yield a plan and all those in it and in its expressions, with the names that mean rows there.

    A query that is named (`WITH name AS …`) is seen by those behind it, and by itself if it may be recursive.
    """
    yield plan, names
    children = listed(plan.children())
    if kinds(plan)[0] == "UnresolvedWith":
        for each in listed(plan.cteRelations()):
            own = str(each._1()).lower()
            yield from _scoped(each._2(), names | {own} if plan.allowRecursion() else names)
            names |= {own}
    else:
        children += [each for each in listed(plan.innerChildren()) if "LogicalPlan" in kinds(each)]
    for child in children:
        yield from _scoped(child, names)
    for expression in _expressions(plan):
        for node in nodes(expression):
            if "SubqueryExpression" in kinds(node):
                yield from _scoped(node.plan(), names)


def _expressions(plan: Any) -> list[Any]:
    return listed(plan.expressions())
