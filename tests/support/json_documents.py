"""JSON documents at random: mostly what a contract asks for, with a share of everything else."""

import json
import random
from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

ODD = ["-0", "0", "-0.0", "1e400", "-1e400", "1e-400", "0e9", "01", "1.", "+1", ".5", "1e", "NaN", "Infinity"]
ESCAPES = [r"\n", r"\"", r"\\", r"\u0041", r"\ud83d\ude00", r"\ud800", r"\udc00", r"\/", r"\u0000", r"\x"]
ENDS = [b" ", b"}", b",", b"1", b'{"a":1}', b"\x00", b"//", b"]", b"\xef\xbb\xbf", b"\n"]


class Documents:
    """Documents for a schema, the same for each seed."""

    def __init__(self, schema: StructType, seed: int) -> None:
        self.schema = schema
        self.random = random.Random(seed)  # noqa: S311 - nothing is secret here

    def one(self) -> bytes:
        """A document, with a share of the values of other types, and sometimes with broken bytes."""
        odd = self.random.choice([0, 0.02, 0.1, 0.3])
        document = self._object(self.schema, odd).encode("utf-8", "surrogatepass")
        match self.random.randrange(60):
            case 0 | 1:
                at = self.random.randint(0, len(document))
                noise = self.random.randbytes(self.random.randint(0, 3))
                return document[:at] + noise + document[at + self.random.randint(0, 3) :]
            case 2:
                return document[: self.random.randint(0, len(document))]
            case 3:
                return document + self.random.choice(ENDS)
            case 4:
                wholes = [
                    b"[" + document + b"]",
                    b"null",
                    b"42",
                    b'"x"',
                    b"",
                    b" ",
                    b"\xef\xbb\xbf" + document,
                ]
                return self.random.choice([*wholes, document.decode(errors="replace").encode("utf-16")])
            case _:
                return document

    def _object(self, schema: StructType, odd: float) -> str:
        members = []
        for column in schema:
            if self.random.random() < odd / 3:
                continue
            value = self._any(0) if self.random.random() < odd else self._value(column.dataType, odd)
            members.append(f'{self._space()}"{column.name}"{self._space()}:{self._space()}{value}')
            if self.random.random() < odd / 10:
                members.append(f'"{column.name}":{self._value(column.dataType, odd)}')
        if self.random.random() < 0.2:
            members.insert(self.random.randint(0, len(members)), f"{self._string()}:{self._any(0)}")
        return "{" + ",".join(members) + "}"

    def _value(self, kind: DataType, odd: float) -> str:
        match kind:
            case StructType():
                value = self._object(kind, odd)
            case ArrayType():
                value = self._several(lambda: self._value(kind.elementType, odd), "[]")
            case MapType():
                value = self._several(lambda: f"{self._string()}:{self._value(kind.valueType, odd)}", "{}")
            case StringType():
                value = self._string()
            case TimestampType():
                value = self._moment(odd)
            case DateType():
                value = self._pick('"2013-01-01"', '"2012-02-29"', '"2013-02-29"' if odd else '"2013-03-01"')
            case BooleanType():
                value = self._pick("true", "false")
            case _:
                value = self._number() if self.random.random() < odd else str(self.random.randint(0, 900))
        return value

    def _several(self, one: Callable[[], str], around: str) -> str:
        return around[0] + ",".join(one() for _ in range(self.random.randint(0, 3))) + around[1]

    def _any(self, depth: int) -> str:
        kinds: list[Callable[[], str]] = [
            self._number,
            self._string,
            lambda: self._pick("true", "false", "null"),
            lambda: self._moment(1),
        ]
        kinds.append(lambda: f'"{self._number()}"')
        if depth < 3:
            kinds.append(lambda: self._several(lambda: self._any(depth + 1), "[]"))
            kinds.append(lambda: self._several(lambda: f"{self._string()}:{self._any(depth + 1)}", "{}"))
        return self.random.choice(kinds)()

    def _number(self) -> str:
        whole, random_ = self.random.randint, self.random
        kinds: list[Callable[[], str]] = [
            lambda: str(whole(-100, 3000)),
            lambda: str(whole(-(2**66), 2**66)),
            lambda: str(2 ** whole(20, 66) + whole(-2, 2)),
            lambda: f"{whole(-(10**4), 10**4)}.{whole(0, 10 ** whole(1, 12))}",
            lambda: (
                f"{whole(-(10**6), 10**6)}{self._pick('e', 'E')}{self._pick('', '+', '-')}{whole(0, 400)}"
            ),
            lambda: repr(whole(-(10**9), 10**9) * 10.0 ** whole(-8, 8)),
            lambda: repr(random_.uniform(-1e3, 1e3)),
            lambda: self._pick(*ODD, "1e-99999999", "1e99999999"),
        ]
        return random_.choice(kinds)()

    def _string(self) -> str:
        text = "".join(
            self.random.choice("abcXYZ \u00e9\u4e2d\U0001f600'/") for _ in range(self.random.randint(0, 6))
        )
        match self.random.randrange(10):
            case 0:
                return f'"{text}{self.random.choice(ESCAPES)}"'
            case 1:
                return json.dumps(text)
            case 2 if self.random.random() < 0.1:
                return '"\t"'
            case _:
                return f'"{text}"'

    def _moment(self, odd: float) -> str:
        if self.random.random() > max(odd, 0.25):
            return '"2013-01-01T05:15:00-05:00"'
        days = (
            "2013-01-01",
            "2013-02-29",
            "2012-02-29",
            "2013-13-01",
            "1969-12-31",
            "2099-01-01",
            "0001-01-02",
        )
        day = self._pick(*days)
        seconds = self._pick("", ":00", ":15", ":60", ":5")
        fraction = "." + "".join(self.random.choice("0012") for _ in range(self.random.randint(0, 10)))
        zones = (
            "Z",
            "",
            "-05:00",
            "+05:45",
            "-0930",
            "+18:00",
            "+18:01",
            "+25:00",
            "z",
            " UTC",
            "+5:00",
            "+05:60",
        )
        time = self._pick("T", " ", "t") + self._pick("05:15", "24:00", "00:60", "23:59")
        return f'"{day}{time}{seconds}{self._pick("", fraction) if seconds else ""}{self._pick(*zones)}"'

    def _space(self) -> str:
        return self._pick(" ", "\n", "\r\t") if self.random.random() < 0.1 else ""

    def _pick(self, *texts: str) -> str:
        return self.random.choice(texts)
