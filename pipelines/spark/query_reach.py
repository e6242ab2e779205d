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


def reads_more(spark: SparkSession, sql: str) -> str | None:
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
    plan = session.sessionState().sqlParser().parseQuery(sql.replace(BATCH, _ROWS))
    plans = list(_plans(plan))
    own = {_ROWS, *(name for each in plans for name in _named(each))}
    found = (why for each in plans for why in (_other_rows(each, own), *_refused_functions(spark, each)))
    return next(filter(None, found), None)


def _other_rows(plan: Any, own: set[str]) -> str | None:
    """Return what rows a plan itself takes that are not of the query; None if it takes no others."""
    kind = kinds(plan)[0]
    if kind == "UnresolvedRelation":
        parts = listed(plan.multipartIdentifier())
        return None if len(parts) == 1 and parts[0] in own else f"the table or path {'.'.join(parts)}"
    return "IDENTIFIER, behind which any table may be" if "UnresolvedIdentifier" in kind else None


def _refused_functions(spark: SparkSession, plan: Any) -> Iterator[str | None]:
    if kinds(plan)[0] == "UnresolvedTableValuedFunction":
        yield refused_function_of(spark, listed(plan.name()))
    for expression in _expressions(plan):
        for node in nodes(expression):
            if kinds(node)[0] == "UnresolvedFunction":
                yield refused_function_of(spark, listed(node.nameParts()))


def _plans(plan: Any) -> Iterator[Any]:
    """Yield a plan and all those below it, in it and in its expressions."""
    yield plan
    for child in (*listed(plan.children()), *listed(plan.innerChildren())):
        if "LogicalPlan" in kinds(child):
            yield from _plans(child)
    for expression in _expressions(plan):
        for node in nodes(expression):
            if "SubqueryExpression" in kinds(node):
                yield from _plans(node.plan())


def _expressions(plan: Any) -> list[Any]:
    return listed(plan.expressions())


def _named(plan: Any) -> Iterator[str]:
    """Yield the names that a query gives to queries of its own (`WITH name AS …`)."""
    if kinds(plan)[0] == "UnresolvedWith":
        for each in listed(plan.cteRelations()):
            yield str(each._1())
