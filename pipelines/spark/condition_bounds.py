"""Whether a condition takes memory and time in proportion to its record, whatever the record holds.

A list of what is refused would be behind each new function of Spark. So the list is of what is allowed: of
each expression the result and the work are in proportion to its arguments, or its class in `jvm/` counts them
while a record is judged. See docs/decisions/0090-conditions-are-bounded.md.
"""

from collections.abc import Iterator
from typing import Any, Final

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipelines.spark.expression_nodes import listed

LONGEST_PADDED: Final = 10_000
"""To how many characters a condition may fill a text up."""

_OPERATORS: Final = """
    Alias AttributeReference Literal LambdaFunction NamedLambdaVariable With CommonExpressionDef
    CommonExpressionRef Cast TryEval And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan
    GreaterThanOrEqual In InSet IsNull IsNotNull IsNaN AtLeastNNonNulls If CaseWhen Coalesce NaNvl
    Greatest Least LikeAll LikeAny NotLikeAll NotLikeAny KnownNotNull KnownNullable TypeOf
"""
_NUMBERS: Final = """
    Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh BRound Bin BitwiseAnd BitwiseCount BitwiseGet
    BitwiseNot BitwiseOr BitwiseXor Cbrt Ceil CheckOverflow Cos Cosh Cot Csc Divide EulerNumber Exp Expm1
    Factorial Floor Hypot IntegralDivide Log Log10 Log1p Log2 Logarithm Multiply Pi Pmod Pow Remainder
    Rint Round RoundCeil RoundFloor Sec ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Sqrt
    Subtract Tan Tanh ToDegrees ToRadians UnaryMinus UnaryPositive WidthBucket
"""
_MOMENTS: Final = """
    AddMonths ConvertTimezone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFromUnixDate DateSub
    DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval DivideInterval DivideYMInterval
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
    ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
    ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears
    FromUTCTimestamp Hour HoursOfTime LastDay MakeDTInterval MakeDate MakeInterval MakeTime MakeTimestamp
    MakeYMInterval MicrosToTimestamp MillisToTimestamp Minute MinutesOfTime Month MonthName MonthsBetween
    MultiplyDTInterval MultiplyInterval MultiplyYMInterval NextDay Quarter Second SecondWithFraction
    SecondsOfTime SecondsOfTimeWithFraction SecondsToTimestamp SubtractDates SubtractTimes
    SubtractTimestamps TimeAddInterval TimeDiff TimeTrunc TimestampAdd TimestampAddInterval
    TimestampAddYMInterval TimestampDiff ToUTCTimestamp TruncDate TruncTimestamp TryMakeInterval UnixDate
    UnixMicros UnixMillis UnixSeconds WeekDay WeekOfYear Year YearOfWeek
"""
_TEXTS: Final = """
    Ascii Base64 BitLength Chr Crc32 Elt EndsWith FindInSet Hex InitCap IsValidUTF8 IsVariantNull
    LengthOfJsonArray Length Lower Luhncheck MakeValidUTF8 Mask Md5 Murmur3Hash OctetLength Overlay
    ParseJson Quote Reverse Sha1 Sha2 SoundEx StartsWith Substring TryUrlDecode TryValidateUTF8 UnBase64
    Unhex Upper UrlDecode UrlEncode ValidateUTF8 XxHash64
"""
_COLLECTIONS: Final = """
    ArrayAppend ArrayCompact ArrayContains ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
    ArraySize ArraysZip Concat CreateArray CreateMap CreateNamedStruct ElementAt Flatten Get GetArrayItem
    GetArrayStructFields GetMapValue GetStructField MapConcat MapContainsKey MapEntries MapFromArrays
    MapFromEntries MapKeys MapValues Size Slice SortArray
"""
# What they do for each element, `oncelake.decode.Bounded` counts.
_REPEATING: Final = """
    ArrayAggregate ArrayExists ArrayFilter ArrayForAll ArraySort ArrayTransform MapFilter TransformKeys
    TransformValues ZipWith
"""
# The pairs that they may compare, `oncelake.decode.BoundedPairs` counts.
_PAIRING: Final = """
    ArrayDistinct ArrayExcept ArrayIntersect ArrayUnion ArraysOverlap Contains Levenshtein StringInstr
    StringLocate
"""
_BOUNDED: Final = frozenset(
    f"{_OPERATORS} {_NUMBERS} {_MOMENTS} {_TEXTS} {_COLLECTIONS} {_REPEATING} {_PAIRING}".split()
)
_PATTERNS: Final = dict.fromkeys(
    ("Like", "RLike", "RegExpExtract", "RegExpExtractAll", "RegExpInStr", "StringSplit", "StringSplitSQL"),
    (1,),
)
_CONSTANT: Final[dict[str, tuple[int, ...]]] = {
    **_PATTERNS,
    **dict.fromkeys(("RegExpReplace", "StringReplace", "StringTranslate", "StringToMap"), (1, 2)),
    **dict.fromkeys(("ArrayJoin", "ParseUrl"), (1, 2)),
    **dict.fromkeys(("StringTrim", "StringTrimLeft", "StringTrimRight", "SubstringIndex"), (1,)),
    **dict.fromkeys(("Encode", "StringDecode", "GetJsonObject", "VariantGet"), (1,)),
    **dict.fromkeys(("DateFormatClass", "FromUnixTime", "GetTimestamp", "ToUnixTimestamp"), (1,)),
    **dict.fromkeys(("ToCharacter", "ToNumber", "TryToNumber", "ToTime", "UnixTimestamp"), (1,)),
    **dict.fromkeys(("StringLPad", "StringRPad"), (1,)),
    "ConcatWs": (0,),
}
"""Which arguments may not come from a record: by these the result, or the work, would grow."""

_PADDED: Final = ("StringLPad", "StringRPad")
_INSTEAD: Final = {
    "ArrayInsert": "use array_append, array_prepend or concat",
    "ArrayRepeat": "write the array out",
    "Cast": "cast it to double, or declare the column as a decimal in the contract",
    "CsvToStructs": "use split",
    "FormatNumber": "compare the numbers themselves",
    "FormatString": "use concat, or lpad to a length that is a number",
    "JsonToStructs": "use get_json_object, or declare the column as an object in the contract",
    "Sequence": "compare with BETWEEN",
    "StringRepeat": "write the text out",
    "StringSpace": "write the text out",
    "VariantGet": "read it as a double",
}
_REPLACED: Final = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"


def grows(spark: SparkSession, plan: Any) -> str | None:
    """Return what of a condition could take more memory or time than its record is worth, and what to do.

    Args:
        spark: The session.
        plan: The analyzed plan (of the JVM) that selects the condition as its last column.

    Returns:
        The first such part; None if there is none.
    """
    return next(_growing(spark.sparkContext, plan.expressions().last()), None)


def _growing(context: SparkContext, node: Any) -> Iterator[str]:
    kind = node.getClass().getSimpleName()
    if kind in _BOUNDED or kind in _CONSTANT:
        arguments = listed(node.children())
        if why := _from_the_record(kind, arguments) or _too_long(kind, arguments) or _exact(kind, node):
            yield f"{node.prettyName()}, {why}"
        for argument in arguments:
            yield from _growing(context, argument)
    elif is_instance_of(context._gateway, node, _REPLACED) and not _calls_java(node.replacement()):
        yield from _growing(context, node.replacement())
    else:
        instead = _INSTEAD.get(kind, "use another function")
        yield f"{node.prettyName()}, which is not among the functions of conditions; {instead}"


def _calls_java(node: Any) -> bool:
    """Return whether it is a method of some class of Spark, of which the name says nothing."""
    return node.getClass().getSimpleName() in ("Invoke", "StaticInvoke")


def _from_the_record(kind: str, arguments: list[Any]) -> str | None:
    for place in _CONSTANT.get(kind, ()):
        if place < len(arguments) and not arguments[place].foldable():
            what = "pattern" if kind in _PATTERNS or (kind == "RegExpReplace" and place == 1) else "argument"
            return f"whose {what} {arguments[place].sql()} comes from the record; write it as a constant"
    return None


def _too_long(kind: str, arguments: list[Any]) -> str | None:
    if kind not in _PADDED:
        return None
    length = arguments[1].eval(None)
    if length is None or length <= LONGEST_PADDED:
        return None
    return f"whose length is {length}; fill up to {LONGEST_PADDED} characters at most"


def _exact(kind: str, node: Any) -> str | None:
    """Return why a text may not become a decimal: `1e-999999999` would first become one of as many digits."""
    if kind not in ("Cast", "VariantGet") or "decimal" not in node.dataType().catalogString():
        return None
    sent = node.children().head().dataType().catalogString()
    if "string" not in sent and "variant" not in sent:
        return None
    return f"which makes a decimal of a text; {_INSTEAD[kind]}"
