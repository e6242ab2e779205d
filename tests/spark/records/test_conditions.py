"""Conditions on whole records: kept by every record, and harmless whatever the record holds."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import Condition
from pipelines.errors import ContractError
from pipelines.records.decode import COUNTED, decode
from pipelines.spark.preflight import check_conditions, check_zone
from tests.support.lakes import Lake, flight
from tests.support.nights import stream

ARRIVES = Condition("arrives only if it departs", "arrival_delay IS NULL OR departure_delay IS NOT NULL")
SPEED = Condition("flies slower than sound", "distance / air_time < 13")
CODE = Condition(
    "is one of many",
    "CAST(tailnum AS int) < 10 OR element_at(split(tailnum, ''), CAST(flight AS int)) != '!'",
)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], contract: DataContract) -> Lake:
    return make_lake(contract=replace(contract, day_rules=(), conditions=(ARRIVES, SPEED, CODE)))


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Plans are made into code, as jobs do it: code computes more ahead than it must."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {key: str(spark.conf.get(key)) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def test_a_record_that_breaks_a_condition_is_put_aside_with_its_name(lake: Lake) -> None:
    lake.ingest(
        [
            flight(),
            flight(flight=2, departure_delay=None),
            flight(flight=3, distance=9000.0, air_time=1.0),
            flight(flight=4, departure_delay=None, arrival_delay=None),
        ]
    )
    counts = stream(lake).counts
    assert (counts.rows, counts.quarantined) == (2, 2)
    bad = lake.table("quarantine").orderBy("_offset").select("_reason", "_column", "_found")
    assert [tuple(row) for row in bad.collect()] == [
        ("rule_failed", None, ARRIVES.name),
        ("rule_failed", None, SPEED.name),
    ]


def test_what_cannot_be_computed_stops_nothing_and_counts_as_kept(lake: Lake) -> None:
    values = [flight(air_time=0.0), *(flight(tailnum=text) for text in ("x" * 50, "9" * 14, ""))]
    values += [json.dumps([1]).encode(), b""]
    decoded = decode(lake.envelopes(values), lake.contract, lake.config.decode.max_future)
    reasons = [row["reason"] for row in decoded.orderBy("_offset").select("_error.reason").collect()]
    assert reasons == [None, None, None, None, "not_an_object", "malformed_json"]
    assert lake.spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert decoded.select(F.lit(1)).count() == len(values)


@pytest.mark.usefixtures("compiled")
def test_what_fails_in_any_mode_stops_nothing_and_counts_as_kept(lake: Lake) -> None:
    sqls = [
        "url_decode(tailnum) <> 'x'",
        "length(url_decode(tailnum)) < 9 OR length(url_decode(tailnum)) > 99",
        "element_at(array(tailnum), length(tailnum) - 3) <> '12%'",
        "parse_json(tailnum) IS NOT NULL",
        "make_valid_utf8(tailnum) <> validate_utf8(unhex(hex(tailnum) || 'FF'))",
    ]
    conditions = tuple(Condition(sql, sql) for sql in sqls)
    contract = replace(lake.contract, conditions=conditions)
    check_conditions(lake.spark, contract)
    values = [flight(tailnum=text) for text in ("100%", "12%", "x", "1" * 10)]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, None, sqls[0], sqls[1]]


@pytest.mark.usefixtures("compiled")
def test_a_regular_expression_says_of_a_long_text_what_it_says_of_a_short_one(lake: Lake) -> None:
    """Java's matcher calls itself for each repetition of a group; a stack that is used up ends the JVM."""
    sqls = [
        r"tailnum RLIKE r'^(\w+\.)*\w+$'",
        r"regexp_replace(tailnum, r'^(\w+\.)*b$', '') <> ''",
        r"size(split(tailnum, r'^(\w+\.)*c')) = 1",
    ]
    conditions = tuple(
        Condition(sql, sql) for sql in (*sqls, "url_decode(concat(tailnum, '100%')) RLIKE 'x'")
    )
    contract = replace(lake.contract, conditions=conditions)
    check_conditions(lake.spark, contract)
    long = "a." * 20_000
    # The last one needs more stack than is given to it: what cannot be judged does not pass.
    texts = ["a.a", "a.!", f"{long}a", f"{long}!", f"{long}b", f"{long}c", "a." * 400_000 + "!"]
    decoded = decode(
        lake.envelopes([flight(tailnum=text) for text in texts]), contract, lake.config.decode.max_future
    )
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, sqls[0], None, sqls[0], sqls[1], sqls[2], sqls[0]]


LIKE = "%a" * 12 + "%"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "sql",
    [
        r"NOT tailnum RLIKE r'^(a+)+?$'",
        r"NOT regexp_like(tailnum, r'^(a+)+?$')",
        r"regexp_replace(tailnum, r'^(a+)+?$', '') <> ''",
        r"regexp_extract(tailnum, r'^((a+)+?)$', 1) = ''",
        r"size(regexp_extract_all(tailnum, r'^((a+)+?)$', 1)) < 9",
        r"regexp_instr(tailnum, r'^(a+)+?$') < 9",
        r"regexp_count(tailnum, r'^(a+)+?$') < 9",
        r"regexp_substr(tailnum, r'^(a+)+?$') IS NULL",
        r"size(split(tailnum, r'^(a+)+?$')) < 9",
        r"size(str_to_map(tailnum, r'^(a+)+?$')) < 9",
        r"size(str_to_map(tailnum, ',', r'^(a+)+?$')) < 9",
        f"tailnum NOT LIKE '{LIKE}b'",
        f"tailnum NOT ILIKE '{LIKE}B'",
        f"tailnum NOT LIKE ANY ('{LIKE}b', '{LIKE}c')",
        r"tailnum = 'b' OR NOT upper(regexp_replace(tailnum, '!', '!')) RLIKE r'^(A+)+?$'",
    ],
)
def test_a_condition_that_does_not_come_to_an_end_holds_no_task_and_is_not_kept(lake: Lake, sql: str) -> None:
    contract = replace(lake.contract, conditions=(Condition(sql, sql),))
    check_conditions(lake.spark, contract)
    values = [flight(tailnum=text) for text in ("b", "a" * 60 + "!", "b")]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    errors = [
        row.asDict() for row in decoded.orderBy("_offset").select("_error.reason", "_error.found").collect()
    ]
    assert errors == [
        {"reason": None, "found": None},
        {"reason": "rule_failed", "found": sql},
        {"reason": None, "found": None},
    ]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "sql",
    [
        r"NOT exists(split(tailnum, ','), x -> x RLIKE r'^(a+)+?$')",
        r"size(str_to_map(tailnum, ',', r'^(a+)+?$')) < 99",
        f"NOT exists(split(tailnum, ','), x -> x LIKE ANY ('{LIKE}b', '{LIKE}c'))",
    ],
)
def test_the_parts_of_a_text_share_the_budget_of_the_record(lake: Lake, sql: str) -> None:
    """Else a long record could have as many budgets as it has parts."""
    # Each part alone is within the budget.
    part = "a" * (17 if "LIKE ANY" in sql else 20) + "!"
    contract = replace(lake.contract, conditions=(Condition(sql, sql),))
    values = [flight(tailnum=text) for text in (part, ",".join(part + str(n) for n in range(60)), part)]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, sql, None]


LARGE = "a," * 1_000_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "sql",
    [
        "length(aggregate(split(tailnum, ''), 'a', (all, x) -> all || all)) > 0",
        "length(aggregate(split(tailnum, ','), '', (all, x) -> all || x)) >= 0",
        "size(transform(split(tailnum, ','), x -> tailnum)) > 0",
        "size(split(tailnum, '')) > 0",
        "split_part(tailnum || tailnum, ',', -1) IS NOT NULL",
        "size(str_to_map(tailnum || 'b', 'a', ',')) > 0",
        "size(regexp_extract_all(tailnum, '(?=(.*))', 1)) > 0",
        "regexp_replace(tailnum, '(?=(.*))', '$1') <> 'x'",
        "NOT exists(split(tailnum, ','), x -> tailnum RLIKE 'b')",
        "exists(split(tailnum, ','), x -> contains(tailnum, x || 'b') OR x = 'b') IS NOT NULL",
        "NOT contains(tailnum, substr(tailnum, 3) || 'b')",
        "instr(tailnum, substr(tailnum, 3) || 'b') = 0",
        "levenshtein(tailnum, reverse(tailnum)) >= 0",
        "size(array_distinct(split(tailnum, ','))) > 0",
        "arrays_overlap(split(tailnum, ','), split(reverse(tailnum), ',')) IS NOT NULL",
    ],
)
def test_a_record_that_would_take_all_memory_or_time_is_put_aside(lake: Lake, sql: str) -> None:
    contract = replace(lake.contract, conditions=(Condition(sql, sql),))
    check_conditions(lake.spark, contract)
    values = [flight(tailnum=text) for text in ("a,a", LARGE, "a,a")]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    errors = [
        row.asDict() for row in decoded.orderBy("_offset").select("_error.reason", "_error.found").collect()
    ]
    nothing = {"reason": None, "found": None}
    assert errors == [nothing, {"reason": "rule_failed", "found": sql}, nothing]


def test_what_is_done_for_each_element_of_a_large_record_is_done(
    make_lake: Callable[..., Lake], nested: DataContract
) -> None:
    """The budget grows with what is gone through."""
    sqls = [
        "aggregate(items, 0L, (n, item) -> n + item.count) = 0",
        "forall(items, item -> length(item.sku) > 1 AND item.count BETWEEN -9 AND 9 AND item.sku <> 'x')",
        "size(filter(transform(items, item -> upper(item.sku)), sku -> sku LIKE 'S%')) > 0",
        "size(items) > 4000 OR size(array_distinct(transform(items, item -> item.sku))) = size(items)",
        "NOT contains(order.id, order.id || '!')",
        "NOT exists(transform(items, (item, n) -> n > 0 AND item.sku = element_at(items, n).sku), x -> x)",
    ]
    contract = replace(nested, conditions=tuple(Condition(sql, sql) for sql in sqls))
    lake = make_lake(contract=contract)
    check_conditions(lake.spark, contract)
    numbers = (1, 4_000, 100_000)
    orders = [
        {
            "order": {"id": f"o-{number}"},
            "placed_at": "2013-01-01T10:00:00Z",
            "items": [{"sku": f"sku-{n}", "count": (-1) ** n} for n in range(number)],
        }
        for number in numbers
    ]
    orders[0]["items"] = [{"sku": "sku", "count": 0}]
    values = [json.dumps(order).encode() for order in orders]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, None, None]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sql", ["{tailnum} <> 'x'", "forall(split(tailnum, ','), part -> {part} <> 'x')"])
@pytest.mark.parametrize(
    "call", ["regexp_replace({}, '[0-9]', '#')", "concat_ws('', array_distinct(array({})))"]
)
def test_functions_within_functions_compute_what_is_innermost_once(lake: Lake, sql: str, call: str) -> None:
    """Twice for each one around it would be a thousand million times."""
    deep = {"tailnum": "tailnum", "part": "part"}
    for _ in range(30):
        deep = {name: call.format(inner) for name, inner in deep.items()}
    sql = sql.format(**deep)
    contract = replace(lake.contract, conditions=(Condition("deep", sql),))
    check_conditions(lake.spark, contract)
    values = [flight(tailnum=text) for text in ("N1,N2", ",".join(f"N{n}" for n in range(40)))]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, None]


def test_all_functions_that_are_counted_are_known_by_their_names(spark: SparkSession) -> None:
    """A condition with none of these is made into code, where nothing counts."""
    counted = (
        *("RLike", "RegExp", "StringSplit", "SplitPart", "StringToMap", "Contains", "StringInstr"),
        *("StringLocate", "Levenshtein", "ArrayDistinct", "ArrayExcept", "ArrayIntersect", "ArrayUnion"),
        *("ArraysOverlap", "Like", "ILike"),
    )
    session: Any = spark._jsparkSession
    catalog = session.sessionState().catalog()
    names = [row["function"] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    known = []
    for name in names:
        if name.isidentifier():
            kind = catalog.lookupFunctionInfo(
                spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)  # type: ignore[union-attr]
            ).getClassName()
            if kind and kind.rsplit(".", 1)[-1].startswith(counted):
                known.append(name)
    assert {"contains", "position", "regexp_count", "rlike", "split_part"} <= {*known}
    assert [name for name in known if not COUNTED.search(f"{name}(x, y)")] == []


@pytest.mark.timeout(180)
def test_a_regular_expression_is_not_looked_for_where_the_condition_does_not_need_it(lake: Lake) -> None:
    sql = r"length(tailnum) < 9 OR NOT tailnum RLIKE r'^(a+)+?$'"
    contract = replace(lake.contract, conditions=(Condition(sql, sql),))
    values = [flight(tailnum=text) for text in ("a" * 8, "a" * 9, "a" * 60 + "!")]
    decoded = decode(lake.envelopes(values), contract, lake.config.decode.max_future)
    found = [row["found"] for row in decoded.orderBy("_offset").select("_error.found").collect()]
    assert found == [None, sql, sql]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("no_such_column > 1", "no_such_column"),
        ("distance >", "expected a condition in SQL"),
        ("distance + 1", "true or false"),
        ("to_date(tailnum, 'nonsense') IS NULL", "that Spark can compute"),
        ("rand() < 0.5", "always the same"),
        ("scheduled_departure < now()", "asks for now()"),
        ("unix_timestamp() > 5", "asks for current_timestamp()"),
        ("current_date > DATE'2020-01-01'", "asks for current_date()"),
        ("user() = tailnum", "asks for user()"),
        ("session_user() = tailnum", "always the same"),
        ("version() = tailnum", "asks for version()"),
        ("current_timezone() = tailnum", "asks for current_timezone()"),
        ("IDENTIFIER('current' || '_timestamp')() > scheduled_departure", "which has IDENTIFIER"),
        ("exists(array(tailnum), x -> x = current_database())", "always the same"),
        ("assert_true(distance > 1) IS NULL", "no error of its own"),
        ("raise_error('x') IS NULL", "no error of its own"),
        ("distance > (SELECT 1)", "no query"),
        ("count(*) > 1", "is one of many"),
        ("explode(array(distance > 1, true))", "always the same"),
        ("scheduled_departure < TIMESTAMP'tomorrow'", "always the same"),
        ("scheduled_departure < timestamp 'today UTC'", "always the same"),
        ("scheduled_departure < cast(' Today ' AS DATE)", "always the same"),
        ("scheduled_departure < cast(lower('NOW') AS timestamp)", "always the same"),
        ("scheduled_departure < to_timestamp(nvl('now', 'x'))", "always the same"),
        ("scheduled_departure < try_to_timestamp('now')", "always the same"),
        ("scheduled_departure < 'now'", "always the same"),
        ("true) OR (true", "expected a condition in SQL"),
        ("java_method('java.lang.System', 'getProperty', tailnum) IS NULL", "calls any method of Java"),
        ("`reflect`('java.lang.System', 'getenv', 'HOME') = tailnum", "calls any method of Java"),
        ("builtin.try_reflect('java.lang.System', 'exit', 1) IS NULL", "calls any method of Java"),
        ("input_file_name() = tailnum", "asks for files"),
        ("from_avro(binary(tailnum), '', map('avroSchemaUrl', 'http://127.0.0.1:1/x')).a = 1", "an address"),
        ("from_xml(tailnum, 'a int', map('rowValidationXSDPath', '/etc/passwd')).a = 1", "an address"),
        # Neither table is looked for: what is refused is refused before that.
        ("EXISTS (SELECT 1 FROM parquet.`s3a://elsewhere/x` WHERE a = flight)", "which has a query"),
        ("tailnum IN (SELECT name FROM no_such_table)", "which has a query"),
        ("flight = (SELECT max(n) FROM VALUES (1) AS t(n) WHERE n < distance)", "which has a query"),
        ("exists(array(1), x -> x IN (SELECT 1))", "which has a query"),
        (
            "repeat(tailnum, int(flight)) = ''",
            "repeat, which is not among the functions of conditions; write",
        ),
        ("space(int(flight)) = tailnum", "space, which is not among"),
        (
            "size(sequence(1, flight)) > 1",
            "sequence, which is not among the functions of conditions; compare",
        ),
        ("exists(array(1), x -> size(array_repeat(tailnum, x)) > 1)", "array_repeat, which is not among"),
        ("size(array_insert(array('a'), int(flight), 'b')) > 1", "use array_append"),
        ("format_string('%999999999d', flight) = tailnum", "format_string, which is not among"),
        ("printf('%999999999d', flight) = tailnum", "is not among"),
        ("format_number(distance, int(flight)) = tailnum", "format_number, which is not among"),
        ("from_json(tailnum, 'a int').a = 1", "use get_json_object"),
        ("from_csv(tailnum, 'a int').a = 1", "use split"),
        ("conv(tailnum, 36, 2) = '1'", "conv, which is not among"),
        ("size(sentences(tailnum)) > 1", "sentences, which is not among"),
        ("lpad(tailnum, int(flight), '0') = ''", "comes from the record; write it as a constant"),
        ("rpad(tailnum, 10001, '0') = ''", "whose length is 10001; fill up to 10000 characters at most"),
        ("replace(tailnum, 'a', dest) = ''", "replace, whose argument dest comes from the record"),
        ("replace(tailnum, dest, 'aa') = ''", "comes from the record"),
        ("translate(tailnum, dest, 'aa') = ''", "comes from the record"),
        ("concat_ws(tailnum, array('a', dest)) = ''", "comes from the record"),
        ("array_join(array('a', dest), tailnum) = ''", "comes from the record"),
        ("tailnum RLIKE dest", "whose pattern dest comes from the record; write it as a constant"),
        ("tailnum LIKE dest", "whose pattern dest comes from the record"),
        ("tailnum ILIKE ANY (dest, 'a')", "comes from the record"),
        ("regexp_replace(tailnum, dest, '') = ''", "whose pattern dest comes from the record"),
        ("regexp_replace(tailnum, 'a', dest) = ''", "whose argument dest comes from the record"),
        ("regexp_count(tailnum, dest) = 1", "comes from the record"),
        ("size(split(tailnum, dest)) > 1", "comes from the record"),
        ("split_part(tailnum, dest, 1) = 'a'", "comes from the record"),
        ("size(str_to_map(tailnum, dest, ':')) > 1", "comes from the record"),
        ("get_json_object(tailnum, dest) = 'a'", "comes from the record"),
        ("date_format(scheduled_departure, dest) = 'a'", "comes from the record"),
        ("CAST(tailnum AS decimal(10, 2)) > 1", "makes a decimal of a text; cast it to double, or declare"),
        ("try_cast(tailnum AS decimal(10, 2)) > 1", "makes a decimal of a text"),
        ("elsewhere.functions.own(tailnum) = 1", "which is not a function of Spark"),
        ("no_such_function(tailnum) = 1", "which is not a function of Spark"),
    ],
)
@pytest.mark.usefixtures("compiled")
def test_what_is_no_condition_is_refused_before_anything_runs(lake: Lake, sql: str, said: str) -> None:
    contract = replace(lake.contract, conditions=(ARRIVES, Condition("is one of many", sql)))
    with pytest.raises(ContractError, match=r"schema\.quality: custom: is one of many") as refused:
        check_conditions(lake.spark, contract)
    assert said in str(refused.value)


def test_conditions_are_judged_by_what_they_mean(lake: Lake) -> None:
    """Names and texts that look like a clock, and none is."""
    names = ("current_balance", "now", "over", "select")
    columns = [StructField(name, DoubleType()) for name in names]
    schema = StructType([*lake.contract.schema, *columns])
    harmless = [
        "tailnum <> 'carry over now' AND dest <> 'select' AND origin <> 'now' -- now",
        "current_balance >= 0 AND now > 1 AND over <= 5 AND `select` > 1",
        "hour(scheduled_departure) > 5 AND scheduled_departure > TIMESTAMP'2000-01-01' + INTERVAL 1 DAY",
        "forall(filter(split(tailnum, ''), (x, i) -> i > 0), x -> x != '!' AND distance < pi())",
        "coalesce(element_at(map('a', distance), tailnum), 0) >= 0 AND size(array()) = 0",
        "to_date(tailnum, 'yyyy') IS NULL AND tailnum IN ('today')",
        "CASE WHEN tailnum = 'now' THEN scheduled_departure END IS NULL OR try_divide(distance, 0) = 1",
        "lpad(tailnum, 5 + 5, '0') <> rpad(dest, 10000, 'x') AND ltrim('N', tailnum) <> upper(left(dest, 2))",
        "distance BETWEEN 1 AND 5000 AND nullif(dest, '') <> origin AND nvl2(tailnum, 1, 0) = 1",
        "replace(tailnum, ' ', '') RLIKE '^N' AND tailnum NOT LIKE ALL ('a%', '%b') AND dest ILIKE 'a_%'",
        "round(distance, 2) = distance AND abs(arrival_delay % 60) < 60 AND sqrt(distance) > ln(2)",
        "date_format(scheduled_departure, 'yyyy') > date_trunc('day', scheduled_departure)",
        "unix_timestamp(scheduled_departure) > 0 AND datediff(scheduled_departure, DATE'2000-01-01') > 0",
        "extract(YEAR FROM scheduled_departure) > 2000",
        "scheduled_departure - TIMESTAMP'2000-01-01' > INTERVAL 1 DAY",
        "get_json_object(tailnum, '$.a[*]') > variant_get(try_parse_json(tailnum), '$.a', 'int')",
        "sha2(tailnum, 256) <> md5(tailnum) AND base64(encode(tailnum, 'UTF-8')) <> url_encode(tailnum)",
        "array_contains(array(dest, origin), tailnum) OR size(array_union(array(dest), array(origin))) < 3",
        "map_from_entries(transform(array(dest, origin), (x, i) -> struct(i, x)))[0] = dest",
        "named_struct('a', dest, 'b', origin).a = dest AND CAST(tailnum AS double) > 1 AND tailnum + 1 > 2",
        "locate('a', tailnum) > position(dest IN tailnum) AND substring_index(tailnum, '.', 1) <> ''",
        "true",
    ]
    asked = tuple(Condition(str(number), sql) for number, sql in enumerate(harmless))
    check_conditions(
        lake.spark, replace(lake.contract, schema=schema, conditions=(*asked, ARRIVES, SPEED, CODE))
    )


@pytest.mark.parametrize("zone", ["America/Coyote", "PST"])
def test_a_zone_that_java_does_not_know_is_refused(lake: Lake, zone: str) -> None:
    """Spark knows PST by an alias; the rules of a zone are Java's own, and a night reads them."""
    check_zone(lake.spark, lake.contract)
    with pytest.raises(ContractError, match=rf"dayTimeZone: expected a time zone that Java .* '{zone}'"):
        check_zone(lake.spark, replace(lake.contract, day_time_zone=zone))


def test_what_fails_on_the_larger_stack_fails_the_task(spark: SparkSession) -> None:
    """Null would count as a condition that is kept."""
    jvm: Any = spark.sparkContext._jvm
    # The pattern takes more stack than a task has; what comes of it is an error.
    failing = F.expr("raise_error(regexp_replace(text, '(a|b)*', 'wrong'))")
    tried = Column(jvm.oncelake.decode.DeepTry.of(failing._jc))
    text = spark.range(1).selectExpr("concat(repeat('ab', 20000), id) AS text")
    with pytest.raises(SparkRuntimeException, match="wrong"):
        text.select(tried).collect()
