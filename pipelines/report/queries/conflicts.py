"""Samples of conflicts: in what the copies of an event differ, as far as the contract lets it be shown."""

from itertools import pairwise
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.records.decode import COORDINATES, payload_hash
from pipelines.records.dedup import order_columns, winner_is_minimum, with_key_columns
from pipelines.records.fingerprints import fingerprint
from pipelines.records.redaction import leaves, text_of
from pipelines.report.model.records import ConflictColumn, ConflictCopy, ConflictSample, KeyPart
from pipelines.report.queries.profile import SENT
from pipelines.sql import name

COPIES: Final = 10
"""Copies of one key that are shown at most."""

_PAYLOAD: Final = "_payload"
_ALL: Final = "_all"
_NTH: Final = "_nth"
_RANK: Final = "_rank"
_WINNER: Final = 1


def samples(events: DataFrame, contract: DataContract, limit: int) -> tuple[ConflictSample, ...]:
    """Return the first keys, in the order of the key, whose copies carry different payloads.

    The choice depends on the records alone, not on their order in `events` nor on parallelism. Of a key with
    many copies one of each payload is shown before a second of any, so that a difference is never hidden
    behind retries. What differs within an object is named by its path.

    Only copies in `events` are compared, which are those of one event day. Where the event time is not part
    of the key, a copy of a neighbouring day may win over all that are shown, and a conflict between days is
    not found.

    Args:
        events: The valid events of one day, as `pipelines.records.decode.valid` gives them.
        contract: Names the key, says which copy wins and what may be shown.
        limit: How many keys to show.

    Returns:
        A sample for each key. Texts are cut to 200 characters, which they say. Of columns with personal data
        they are fingerprints, or not there.
    """
    if not limit:
        return ()
    parts = list(leaves(contract.schema))
    hashes = (fingerprint(name(path), kind) for path, kind in parts)
    texts = (text_of(contract, path, kind) for path, kind in parts)
    kinds = dict(parts)
    key = (text_of(contract, path, kinds[path]) for path in contract.key)
    copies = _copies(events, contract, limit).orderBy(*contract.key_names, _RANK)
    rows = small_rows(
        copies.selectExpr(
            f"array({', '.join(key)}) AS key",
            f"array({', '.join(hashes)}) AS hashes",
            f"array({', '.join(texts)}) AS texts",
            *COORDINATES,
            f"{SENT} AS _kafka_timestamp",
            _ALL,
            _RANK,
        )
    )
    starts = [n for n, row in enumerate(rows) if row[_RANK] == _WINNER]
    paths = [path for path, _ in parts]
    return tuple(_sample(contract, paths, rows[start:end]) for start, end in pairwise([*starts, len(rows)]))


def _copies(events: DataFrame, contract: DataContract, limit: int) -> DataFrame:
    """Return copies to show: the rows of `events`, with the rank of each in its key and the number of all."""
    keys = contract.key_names
    hashed = with_key_columns(events, contract).withColumn(_PAYLOAD, payload_hash(contract))
    in_conflict = (
        hashed.groupBy(*keys)
        .agg(F.expr(f"count(*) AS {_ALL}"), F.expr(f"min({_PAYLOAD}) <> max({_PAYLOAD}) AS _differ"))
        .where("_differ")
        .drop("_differ")
        .orderBy(*keys)
        .limit(limit)
    )
    by_key = ", ".join(map(name, keys))
    compared = ", ".join(map(name, order_columns(contract)))
    # The payload decides between records of the same coordinates, which a recreated topic can have.
    order = f"struct({compared}) {'ASC' if winner_is_minimum(contract) else 'DESC'}, {_PAYLOAD}"
    nth = f"row_number() OVER (PARTITION BY {by_key}, {_PAYLOAD} ORDER BY {order}) AS {_NTH}"
    rank = f"row_number() OVER (PARTITION BY {by_key} ORDER BY {_NTH}, {order}) AS {_RANK}"
    copies = hashed.join(F.broadcast(in_conflict), on=keys)
    return copies.selectExpr("*", nth).selectExpr("*", rank).where(f"{_RANK} <= {COPIES}")


def _sample(contract: DataContract, paths: list[str], copies: list[dict[str, Any]]) -> ConflictSample:
    key = zip(contract.key, copies[0]["key"], strict=True)
    differing = [n for n in range(len(paths)) if len({copy["hashes"][n] for copy in copies}) > 1]
    return ConflictSample(
        key=tuple(KeyPart(column=path, value=value) for path, value in key),
        copies_of_day=copies[0][_ALL],
        copies=tuple(
            ConflictCopy(
                topic=copy["_topic"],
                partition=copy["_partition"],
                offset=copy["_offset"],
                kafka_timestamp=copy["_kafka_timestamp"],
                winner=copy[_RANK] == _WINNER,
            )
            for copy in copies
        ),
        columns=tuple(_column(contract, paths[n], [copy["texts"][n] for copy in copies]) for n in differing),
    )


def _column(contract: DataContract, path: str, values: list[str | None]) -> ConflictColumn:
    personal = contract.treatment(path)
    return ConflictColumn(column=path, personal=personal, values=() if personal == "drop" else tuple(values))
