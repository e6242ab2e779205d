"""The texts of `oncelake lag`: what points to a cause, and what helps."""

from typing import Final

from pipelines.durations import about
from pipelines.lag.diagnosis import Advice, Figure, Symptom, SymptomKind
from pipelines.lag.stage_facts import PartitionLag, StageFacts

_MOST_NUMBERS: Final = 10

SYMPTOM_TEXTS: Final[dict[SymptomKind, str]] = {
    "records_left": "{records:,} records are not processed; the age of the oldest: {behind_s}",
    "another_topic": "the topic is not the one that bronze was filled from",
    "offsets_ahead": "partition {partition}: {offsets:,} offsets were read that Kafka does not have",
    "offsets_deleted": "partition {partition}: Kafka has deleted {offsets:,} unread offsets",
    "no_table": "there is no {table} yet: no stream has made it",
    "start_refused": "the last start was refused {ago_s} ago: {failure}",
    "run_ended": "the last run ended {ago_s} ago",
    "run_failed": "it failed: {failure}",
    "process_silent": "process {process} on {host} last wrote its progress file {ago_s} ago",
    "process_gone": "there is no such process any more",
    "nothing_ended": "no task and no micro-batch has ended for {for_s}",
    "nothing_comes": "no new records, and all is processed",
    "all_processed": "all is processed",
    "keeps_up": "the oldest unprocessed record is {behind_s} old, up to {usual_s} is usual",
    "never_ran": "it has never run",
    "no_figures": "there is no progress file",
    "micro_batch_planned": "its last micro-batch was planned {ago_s} ago",
    "offsets_hidden": "partition {partition}: a transaction that is open for more than five minutes hides"
    " {offsets:,} offsets",
    "soon_deleted": "Kafka deletes unread records of partition {partition} in {deleted_s}",
    "read_in": "at the current rates all is read in {read_s}",
    "no_catch_up": "it does not catch up now",
    "no_answer": "the cluster does not answer: {failure}",
    "no_leader": "partitions without a leader: {partitions}",
    "slow_source": "asking Kafka for offsets takes {share:.0%} of a micro-batch",
    "throttled": "brokers make clients of this user wait because of a quota: {waited_s} for a fetch",
    "slow_fetch": "broker {broker} answers a fetch in {took_s}",
    "no_fetch": "brokers that answer no fetch within {waited_s}: {brokers}",
    "quick_fetches": "brokers answer a fetch in {ms:,.1f} ms",
    "not_in_sync": "partitions with replicas that are not in sync: {partitions}",
    "moved_leaders": "partitions that another broker leads than that of their first replica: {partitions}",
    "few_executors": "{executors} of {wanted} executors are running",
    "garbage_collection": "{share:.0%} of the time of tasks is garbage collection",
    "spilled": "tasks spill to disk, up to {mib:,.0f} MiB in a micro-batch",
    "hot_partition": "partition {partition} has {share:.0%} of the lag; its fair share is {fair:.0%}",
    "frequent_key": "{share:.0%} of {records:,} sampled records of partition {partition} have the Kafka"
    " record key {key}, such as offset {offset}",
    "hidden_key": "{share:.0%} of {records:,} sampled records of partition {partition} have one Kafka"
    " record key,"
    " which is hidden since the contract has personal data, such as offset {offset}",
    "no_key": "{share:.0%} of {records:,} sampled records of partition {partition} have no Kafka record key",
    "no_frequent_key": "no Kafka record key has more than {share:.0%} of {records:,} sampled records of"
    " partition {partition}",
    "frequent_dedup_key": "{share:.0%} of {rows:,} sampled rows have the dedup key {key}, such as {place}",
    "hidden_dedup_key": "{share:.0%} of {rows:,} sampled rows have one dedup key, which the contract hides,"
    " such as {place}",
    "no_frequent_dedup_key": "no dedup key has more than {share:.0%} of {rows:,} sampled rows",
    "long_task": "one task runs for {longest:.1f} s of {micro_batch:.1f} s",
    "state_time": "{share:.0%} of the time of tasks is spent on the state",
    "state_memory": "it takes {mib:,.0f} MiB of memory",
    "many_files": "{files:,} files are to be read, of {kib:,.0f} KiB on average",
    "burst_rate": "{rate:,.0f} records/s come in, {usual:,.0f} in the hour before",
    "capacity": "the stage processes {rate:,.0f} each second",
    "rate_at_capacity": "{rate:,.0f} records/s come in, and the stage processes {capacity:,.0f} while it"
    " works",
    "longest_phase": "the longest phase of a micro-batch, with {share:.0%} of it, is {phase}",
    "catching_up": "{records:,} records are left, and fewer come than are processed",
    "processed_in": "all is processed in {processed_s}",
}
ADVICE: Final[dict[Advice, str]] = {
    "read_log": "look at the log of the stream, and ask again",
    "topic_recreated": "see docs/runbook.md, 'The topic was recreated'",
    "topic_shorter": "see docs/runbook.md, 'Kafka has lost what bronze has'",
    "records_lost": "what was a record among them is lost; see docs/runbook.md, 'Is everything in bronze?'",
    "fix_and_start": "fix that, then start it: {start}",
    "start_if_gone": "if it is gone, start it: {start}",
    "restart_if_stuck": "look at the log of the stream; if nothing moves, stop it and start it again:"
    " {start}",
    "start": "start it: {start}",
    "start_if_not_running": "check whether it runs; if it does not, start it: {start}",
    "find_producer": "find its producer: kafka-transactions.sh find-hanging",
    "raise_retention": "raise retention.ms of the topic now, then add cores or start the stream: {start}",
    "restore_brokers": "bring their brokers back; the stream waits for them",
    "check_quotas": "raise the quota: kafka-configs.sh --describe --entity-type users, and --entity-type"
    " clients, show consumer_byte_rate and request_percentage",
    "check_brokers": "check the latency and request queues of the brokers",
    "check_unsynced_brokers": "check the logs and disks of these brokers",
    "elect_leaders": "check the latency and request queues of the brokers; give partitions back to their"
    " first replicas: kafka-leader-election.sh --election-type preferred --all-topic-partitions",
    "check_cluster_manager": "check the cluster manager: quota, nodes, failing executors",
    "more_memory": "give executors more memory, or fewer cores each",
    "more_memory_or_less_data": "give executors more memory, or limit what a micro-batch reads",
    "spread_partitions": "find out which keys producers send there; add partitions",
    "divide_key": "more partitions do not divide a key: let producers add something to it, or send without a"
    " key; see docs/lag.md, 'Frequent keys'",
    "check_partitioner": "no single key is the reason: check how producers choose the partition; add"
    " partitions",
    "spread_keys": "find out which dedup keys are so frequent; see docs/lag.md, 'Frequent dedup keys'",
    "fewer_of_key": "one task takes all rows of a key: let producers send fewer copies of it, or make the"
    " contract's primary key finer; see docs/lag.md, 'Frequent dedup keys'",
    "more_state_partitions": "no single key is the reason: raise speed.state_partitions",
    "more_slots": "no single key is the reason: raise publish.slots, up to the partitions of the topic",
    "less_state": "shorten speed.watermark_delay, or give executors faster local disks and more memory",
    "fewer_files_of_ingest": "raise ingest.trigger_interval; compact the table: run maintain",
    "fewer_files_of_speed": "raise speed.trigger_interval; compact the table: run maintain",
    "wait_for_end": "it ends with the burst; add cores if it lasts",
    "more_cores": "add cores, up to one for each partition",
    "check_source": "check the latency of the brokers, or of the object store",
    "longer_trigger": "raise the trigger interval, so that micro-batches are fewer and larger",
    "check_checkpoints": "check the latency of the file system of checkpoints; raise the trigger interval",
    "check_store": "check the latency of the store of the lake; raise the trigger interval, so that commits"
    " are fewer",
    "fewer_broken": "find out why so many records are broken: oncelake report; fix their producers",
}


def symptom_text(symptom: Symptom) -> str:
    """Return a symptom in words."""
    figures = {name: _shown(name, figure) for name, figure in symptom.figures.items()}
    return SYMPTOM_TEXTS[symptom.kind].format(**figures)


def advice_text(advice: Advice | None, start: str) -> str:
    """Return what helps in words; empty if nothing has to be done.

    Args:
        advice: What helps.
        start: The command that starts the stream.
    """
    return ADVICE[advice].format(start=start) if advice else ""


def rate_text(rate: float | None) -> str:
    """Return a rate for each second in words; empty if it is not known."""
    return "" if rate is None else f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def caught_up_text(figures: StageFacts | PartitionLag) -> str:
    """Return in which time nothing is left, in words; empty if nothing is left now."""
    if not figures.records:
        return ""
    if figures.catch_up_s is not None:
        return about(figures.catch_up_s)
    return "?" if figures.rate_in is None or figures.rate_out is None else "never"


def least_retention(facts: StageFacts) -> float | None:
    """Return the seconds until Kafka may delete the first unread record; None if that is not known."""
    known = (each.retention_s for each in facts.partitions if each.records)
    return min((seconds for seconds in known if seconds is not None), default=None)


def _shown(name: str, figure: Figure) -> Figure:
    match figure:
        case None:
            return "unknown"
        case tuple():
            more = " and more" if len(figure) > _MOST_NUMBERS else ""
            return ", ".join(map(str, figure[:_MOST_NUMBERS])) + more
        case int() | float() if name.endswith("_s"):
            return about(figure)
        case _:
            return figure
