"""What `pipelines.lag.causes` finds of a stage: a cause, what points to it, and what helps.

Each is a word of a fixed list. `pipelines.lag.texts` has the texts for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LagCause = Literal[
    "none",
    "source_quiet",
    "other_topic",
    "retention",
    "stopped",
    "stuck",
    "kafka",
    "open_transaction",
    "executors",
    "gc",
    "spill",
    "skew",
    "state",
    "small_files",
    "burst",
    "slow",
    "catching_up",
    "unknown",
]

SymptomKind = Literal[
    "records_left",
    "another_topic",
    "offsets_ahead",
    "offsets_deleted",
    "no_table",
    "start_refused",
    "run_ended",
    "run_failed",
    "process_silent",
    "process_gone",
    "nothing_ended",
    "nothing_comes",
    "all_processed",
    "keeps_up",
    "never_ran",
    "no_figures",
    "micro_batch_planned",
    "offsets_hidden",
    "soon_deleted",
    "read_in",
    "no_catch_up",
    "no_answer",
    "no_leader",
    "slow_source",
    "throttled",
    "slow_fetch",
    "no_fetch",
    "quick_fetches",
    "not_in_sync",
    "moved_leaders",
    "few_executors",
    "garbage_collection",
    "spilled",
    "hot_partition",
    "frequent_key",
    "hidden_key",
    "no_key",
    "no_frequent_key",
    "frequent_dedup_key",
    "hidden_dedup_key",
    "no_frequent_dedup_key",
    "long_task",
    "state_time",
    "state_memory",
    "many_files",
    "burst_rate",
    "capacity",
    "rate_at_capacity",
    "longest_phase",
    "catching_up",
    "processed_in",
]
Advice = Literal[
    "read_log",
    "topic_recreated",
    "topic_shorter",
    "records_lost",
    "fix_and_start",
    "start_if_gone",
    "restart_if_stuck",
    "start",
    "start_if_not_running",
    "find_producer",
    "raise_retention",
    "restore_brokers",
    "check_quotas",
    "check_brokers",
    "check_unsynced_brokers",
    "elect_leaders",
    "check_cluster_manager",
    "more_memory",
    "more_memory_or_less_data",
    "spread_partitions",
    "divide_key",
    "check_partitioner",
    "spread_keys",
    "fewer_of_key",
    "more_state_partitions",
    "more_slots",
    "less_state",
    "fewer_files_of_ingest",
    "fewer_files_of_speed",
    "wait_for_end",
    "more_cores",
    "check_source",
    "longer_trigger",
    "check_checkpoints",
    "check_store",
    "fewer_broken",
]
Figure = float | str | tuple[int, ...] | None


@dataclass(frozen=True)
class Symptom:
    """Something that points to a cause.

    Attributes:
        kind: What was found.
        figures: Its figures by name; a name that ends in `_s` is a duration in seconds, and
            None is a figure that is unknown.
    """

    kind: SymptomKind
    figures: Mapping[str, Figure]


def as_symptom(kind: SymptomKind, **figures: Figure) -> Symptom:
    """Return a symptom with its figures."""
    return Symptom(kind, figures)


@dataclass(frozen=True)
class Diagnosis:
    """Why a stage is behind.

    Attributes:
        cause: The cause; `none` if it is not behind.
        symptoms: What points to it.
        confidence: From 0 to 1, an estimate: how rarely the same figures have another cause.
        advice: What helps; None if nothing has to be done.
    """

    cause: LagCause
    symptoms: tuple[Symptom, ...]
    confidence: float
    advice: Advice | None = None
