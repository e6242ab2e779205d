"""The keys that divide the work of a stage unevenly, and what helps against them."""

from typing import Final

from pipelines.lag.diagnosis import Advice, Figure, Symptom, as_symptom
from pipelines.lag.stage_facts import DedupKeySample, FrequentDedupKey, FrequentKey, KeySample, StageFacts

# Of the records of a partition or a task, those of a key that is told, and of one that makes it hot.
_FREQUENT_SHARE: Final = 0.05
_HOT_KEY_SHARE: Final = 0.25


def key_symptoms(facts: StageFacts) -> tuple[Symptom, ...]:
    """Return the keys of which a partition or a task has many records; empty if they are unknown."""
    if facts.dedup_keys:
        return _dedup_keys(facts.dedup_keys)
    sample = facts.sample
    if sample is None:
        return ()
    frequent = tuple(_key(sample, each) for each in sample.keys if each.least >= _FREQUENT_SHARE)
    most = sample.keys[0].share
    none = as_symptom("no_frequent_key", share=most, records=sample.records, partition=sample.partition)
    return frequent or (none,)


def _key(sample: KeySample, key: FrequentKey) -> Symptom:
    figures: dict[str, Figure] = {
        "share": key.share,
        "records": sample.records,
        "partition": sample.partition,
    }
    if key.is_missing:
        return as_symptom("no_key", **figures)
    if key.shown is None:
        return as_symptom("hidden_key", offset=key.offset, **figures)
    return as_symptom("frequent_key", key=key.shown, offset=key.offset, **figures)


def _dedup_keys(sample: DedupKeySample) -> tuple[Symptom, ...]:
    frequent = tuple(_dedup_key(sample, each) for each in sample.keys if each.share >= _FREQUENT_SHARE)
    most = max((each.share for each in sample.keys), default=0.0)
    return frequent or (as_symptom("no_frequent_dedup_key", share=most, rows=sample.rows),)


def _dedup_key(sample: DedupKeySample, key: FrequentDedupKey) -> Symptom:
    figures: dict[str, Figure] = {"share": key.share, "rows": sample.rows, "place": key.place}
    if key.shown is None:
        return as_symptom("hidden_dedup_key", **figures)
    return as_symptom("frequent_dedup_key", key=key.shown, **figures)


def against_skew(facts: StageFacts) -> Advice:
    """Return what helps against a skew, as far as its keys are known."""
    if facts.stage != "ingest":
        return _against_long_task(facts)
    if facts.sample is None:
        return "spread_partitions"
    # No number of partitions divides a key.
    is_one_key = any(not each.is_missing and each.least >= _HOT_KEY_SHARE for each in facts.sample.keys)
    return "divide_key" if is_one_key else "check_partitioner"


def _against_long_task(facts: StageFacts) -> Advice:
    if facts.dedup_keys is None:
        return "spread_keys"
    if any(each.share >= _HOT_KEY_SHARE for each in facts.dedup_keys.keys):
        return "fewer_of_key"
    return "more_state_partitions" if facts.stage == "speed" else "more_slots"
