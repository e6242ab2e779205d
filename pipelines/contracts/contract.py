"""Reads a data contract: Open Data Contract Standard (ODCS) v3 YAML -> `DataContract`.

Of the standard, these parts are read; the rest may be there and is ignored, except for quality rules,
which are refused if they cannot be kept:

- `id`, `version`, and one object in `schema`, with its `properties`;
- of a property: `name`, `logicalType` (string, integer, number, boolean, date, timestamp; object with
  `properties`, array with `items`, map with `map.value`), `physicalType` `decimal(p,s)`,
  `logicalTypeOptions` (`format` i32 or f32, `minimum`, `maximum`, `pattern`, `minLength`, `maxLength`),
  `enum`, `required`, `primaryKey`, `primaryKeyPosition`;
- `quality` and `slaProperties`, see `pipelines.contracts.quality`;
- `customProperties`, see `pipelines.contracts.custom_properties`.

No Spark session is needed here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from open_data_contract_standard.model import (
    OpenDataContractStandard,
    SchemaProperty,
)
from pyspark.sql.types import StructType

from pipelines.contracts.custom_properties import (
    DEFAULT_FORMAT,
    Personal,
    Policy,
    day_time_zone,
    event_time,
    max_conflicts,
    personal,
    policy,
    value_format,
)
from pipelines.contracts.odcs_document import read_document
from pipelines.contracts.quality import conditions, day_rules
from pipelines.contracts.rules import Condition, DayRule, OwnExpectation, RowRule, row_rules
from pipelines.contracts.types import columns, nested
from pipelines.errors import ContractError
from pipelines.schema_paths import holders

_VERSION: Final = re.compile(r"v3(\.\d+)+")
_NO_POSITION: Final = -1
"""What the standard has as the position of a property that is not part of the key."""


@dataclass(frozen=True)
class DataContract:
    """What the records of a topic are.

    Attributes:
        path: The file, for messages.
        id: The contract's identifier.
        version: Its version, kept with quarantined records.
        schema: Columns and types; a column that is not nullable is required.
        key: The dedup key, in the order of `primaryKeyPosition`.
        event_time: The timestamp column that decides the event day.
        day_time_zone: The zone in which an event day begins and ends.
        row_rules: Rules on single records.
        day_rules: Rules on the rows of a day.
        policy: Which copy of a key wins.
        max_conflicts: The share of a day's events, in percent, that may have copies with different
            payloads; None for any.
        personal: Columns with personal data, and how a value of theirs is shown.
        value_format: How the bytes of a value are to be read.
        conditions: What must hold of each record as a whole.
        expectations: What people want the audit to ask as well; not from the contract's file.

    A column within another is named by its path, with dots: `order.id`.
    """

    path: str
    id: str
    version: str
    schema: StructType
    key: tuple[str, ...]
    event_time: str
    day_time_zone: str
    row_rules: tuple[RowRule, ...]
    day_rules: tuple[DayRule, ...]
    policy: Policy = field(default_factory=Policy)
    max_conflicts: float | None = None
    personal: Mapping[str, Personal] = field(default_factory=dict)
    value_format: str = DEFAULT_FORMAT
    conditions: tuple[Condition, ...] = ()
    expectations: tuple[OwnExpectation, ...] = ()

    @cached_property
    def zone(self) -> ZoneInfo:
        """`day_time_zone` for Python's own datetimes."""
        return ZoneInfo(self.day_time_zone)

    def treatment(self, path: str) -> Personal | None:
        """Return how the value at a path is shown.

        A value is personal if a value that contains it, or that it contains, is personal.
        """
        around = [self.personal.get(above) for above in (*holders(path), path)]
        within = [
            how
            for inner, how in self.personal.items()
            if inner.startswith((f"{path}.", f"{path}[", f"{path}{{"))
        ]
        treatments = {*around, *("drop" for _ in within)} - {None}
        return "drop" if "drop" in treatments else "hash" if treatments else None

    @property
    def key_names(self) -> list[str]:
        """The names of the key's parts where each needs a column of its own; see `dedup.with_key_columns`."""
        return [
            part if part in self.columns else f"_key_{number}_{part.rpartition('.')[2]}"
            for number, part in enumerate(self.key, 1)
        ]

    @property
    def columns(self) -> list[str]:
        """The names of the contract's columns, in its order."""
        return list(self.schema.fieldNames())

    @property
    def required(self) -> list[str]:
        """The names of the columns that are never null; what lies within a column is not among them."""
        return [item.name for item in self.schema.fields if not item.nullable]


def read_contract(path: Path, value_formats: Iterable[str]) -> DataContract:
    """Read and check a contract.

    Args:
        path: An ODCS v3 file in YAML.
        value_formats: Those that it may name.

    Raises:
        ContractError: The file is missing or breaks the standard or a need of Oncelake. The message
            lists every reason, each with its place.
    """
    document, misplaced = read_document(path)
    reader = _Reader(str(path), value_formats)
    for place, reason in misplaced:
        reader.refuse(place, reason)
    return reader.read(document)


class _Reader:
    """Collects every reason for a refusal, so that a contract is fixed in one go."""

    def __init__(self, path: str, value_formats: Iterable[str]) -> None:
        self.path = path
        self.value_formats = value_formats
        self.refusals: list[str] = []

    def refuse(self, place: str, reason: str) -> None:
        self.refusals.append(f"{self.path}: {place}: {reason}")

    def read(self, document: OpenDataContractStandard) -> DataContract:
        if document.kind != "DataContract":
            self.refuse("kind", f"expected DataContract, got {document.kind!r}")
        if not _VERSION.fullmatch(document.apiVersion or ""):
            self.refuse("apiVersion", f"expected v3.x of the standard, got {document.apiVersion!r}")
        objects = document.schema_ or []
        if len(objects) != 1:
            self.refuse(
                "schema", f"expected one object, got {len(objects)}; a pipeline reads one kind of record"
            )
            raise ContractError("\n".join(self.refusals))
        properties = objects[0].properties or []
        schema = columns(properties, "schema.properties", self.refuse)
        key = self._key(properties)
        moment = event_time(objects[0], schema, self.refuse)
        contract = DataContract(
            path=self.path,
            id=document.id or "",
            version=str(document.version or ""),
            schema=schema,
            key=key,
            event_time=moment,
            day_time_zone=day_time_zone(objects[0], self.refuse),
            row_rules=tuple(rule for part in nested(properties) for rule in self._row_rules(key, *part)),
            day_rules=day_rules(document, objects[0], moment, self.refuse),
            policy=policy(objects[0], schema, key, self.refuse),
            max_conflicts=max_conflicts(objects[0], self.refuse),
            personal=dict(personal(nested(properties), self.refuse)),
            value_format=value_format(objects[0], self.value_formats, self.refuse),
            conditions=tuple(conditions(objects[0], self.refuse)),
        )
        for attribute in ("id", "version"):
            if not getattr(contract, attribute):
                self.refuse(attribute, "missing")
        if self.refusals:
            raise ContractError("\n".join(self.refusals))
        return contract

    def _key(self, properties: Sequence[SchemaProperty]) -> tuple[str, ...]:
        keys = [(path, p, inside) for path, p, inside in nested(properties) if p.primaryKey]
        duties = {path: bool(p.required or p.primaryKey) for path, p, _ in nested(properties)}
        if not keys:
            self.refuse(
                "schema.properties",
                "no dedup key: expected `primaryKey: true` on at least one property, found it on none",
            )
        self._positions(properties)
        for path, item, inside in keys:
            place = f"schema.properties.{path}"
            if inside or item.logicalType in ("object", "array", "map"):
                self.refuse(place, "a dedup key is a single value: expected no array, map or object in it")
            for above in holders(path):
                # A name with dots, which is refused as such, looks like a path to nothing.
                if not duties.get(above, True):
                    self.refuse(f"schema.properties.{above}", "holds the dedup key: add `required: true`")
        return tuple(path for path, p, _ in sorted(keys, key=lambda key: key[1].primaryKeyPosition or 0))

    def _positions(self, properties: Sequence[SchemaProperty]) -> None:
        """Refuse positions in the key that do not say which part is which."""
        positions: dict[int, str] = {}
        for path, item, _ in nested(properties):
            place, at = f"schema.properties.{path}.primaryKeyPosition", item.primaryKeyPosition
            if at is None or (at == _NO_POSITION and not item.primaryKey):
                continue
            if not item.primaryKey:
                self.refuse(place, f"found {at} on a property outside the key: add `primaryKey: true`")
            elif at < 1:
                self.refuse(place, f"expected a number from 1, found {at}")
            elif at in positions:
                self.refuse(place, f"expected a position of its own, found {at}, as on {positions[at]}")
            positions[at] = path

    def _row_rules(
        self, key: tuple[str, ...], path: str, item: SchemaProperty, inside: bool
    ) -> list[RowRule]:
        rules, reasons = row_rules(item, path)
        if item.unique and key != (path,):
            reasons.append(
                "unique: supported only for a property that is the whole key; remove it, or check it by day:"
                " `quality` with `metric: duplicateValues` and `mustBeLessOrEqualTo: 0`"
            )
        if inside and (rules or item.quality):
            reasons = [*reasons, "rules on elements of an array or a map are not supported; remove them"]
        for reason in reasons:
            self.refuse(f"schema.properties.{path}", reason)
        return rules
