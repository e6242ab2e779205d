"""Samples of differences between the layers, taken while they are counted."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import COORDINATES
from pipelines.records.redaction import text_of
from pipelines.schema_paths import flat
from pipelines.sql import literal, moment, name


def sample_aggregate(contract: DataContract, number: int) -> Column:
    """An aggregate: the first samples by coordinates, in bounded memory (`ledger.layer_sample.SAMPLE`).

    Args:
        contract: names the key, and says what may be shown of it.
        number: how many; 1 at least.
    """
    kinds = flat(contract.schema)
    parts = []
    for key, path in zip(contract.key_names, contract.key, strict=True):
        found = f"coalesce({name(key)}, {name(f'_other_{key}')})"
        value = text_of(contract, path, kinds[path].dataType, found)
        parts.append(f"named_struct('column', {literal(path)}, 'value', {value})")
    fields = {
        "key": f"array({', '.join(parts)})",
        "batch": _place("_b"),
        "speed": _place("_s"),
        "event_time": moment(name(contract.event_time)),
        "ingested_at": moment("_ingested_at"),
        "watermark": moment("_watermark"),
    }
    sample = ", ".join(f"'{field}', {value}" for field, value in fields.items())
    return F.expr(f"min_by(named_struct({sample}), coalesce(_b, _s), {number})")


def _place(side: str) -> str:
    parts = ", ".join(f"'{column.removeprefix('_')}', {side}.{column}" for column in COORDINATES)
    return f"CASE WHEN {side} IS NOT NULL THEN named_struct({parts}) END"
