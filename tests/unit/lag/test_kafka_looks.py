"""The keys of a sample are told with their shares, as far as the contract lets them be shown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipelines.contracts.contract import DataContract
from pipelines.kafka.fetches import SampledRecord
from pipelines.lag.kafka_looks import key_sample
from pipelines.lag.stage_facts import FrequentKey, KeySample


def test_the_most_frequent_keys_are_told_with_an_offset_each(contract: DataContract) -> None:
    keys = [b"DL", b"UA", None, b"UA", b"UA", None, b"AA", b"UA", b"DL", b"UA"]
    records = (SampledRecord(key, 100 + at) for at, key in enumerate(keys))
    assert key_sample(contract, 7, records) == KeySample(
        7,
        10,
        (
            FrequentKey("'UA'", is_missing=False, share=0.5, least=0.5, offset=101),
            FrequentKey("'DL'", is_missing=False, share=0.2, least=0.2, offset=100),
            FrequentKey(None, is_missing=True, share=0.2, least=0.2, offset=102),
        ),
    )


def test_a_key_that_the_contract_hides_is_not_one_that_is_missing(contract: DataContract) -> None:
    personal: Any = {"carrier": "drop"}
    sample = key_sample(replace(contract, personal=personal), 0, [SampledRecord(b"UA", 3)])
    assert sample.keys == (FrequentKey(None, is_missing=False, share=1.0, least=1.0, offset=3),)


def test_among_very_many_keys_the_frequent_one_is_found_with_bounds_around_its_share(
    contract: DataContract,
) -> None:
    def records() -> Iterator[SampledRecord]:
        for at in range(20_000):
            yield SampledRecord(b"UA" if at % 10 == 0 else b"%d" % at, at)

    sample = key_sample(contract, 0, records())
    first, others = sample.keys[0], sample.keys[1:]
    assert (sample.records, first.shown) == (20_000, "'UA'")
    assert first.least <= 0.1 <= first.share < 0.103
    # Of those that came once, none is taken for a frequent one.
    assert max(each.least for each in others) < 0.001


def test_of_no_record_there_is_no_key(contract: DataContract) -> None:
    assert key_sample(contract, 0, []) == KeySample(0, 0, ())
