"""Checks of the lake: its store, its tables and checkpoints, what nightly runs decided, and the data."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pipelines.config.commands import command
from pipelines.config.streams import STREAMS, Query
from pipelines.doctor.check_list import CheckRegistrar
from pipelines.doctor.findings import Finding
from pipelines.doctor.pipeline_facts import NightFacts, PipelineFacts, StreamFacts
from pipelines.durations import about, format_interval
from pipelines.spark.stream_progress import StreamProgress

_STORE: Final = "The store of the lake"
_FIT: Final = "A table and its checkpoint do not match"
NO_NIGHT: Final = timedelta(hours=60)
"""After how long a pipeline whose nights run every day lacks one; the alert rules have the same."""
_LATE_SHARE: Final = 0.01
_HOUR: Final = timedelta(hours=1)

_CHECKS: Final = CheckRegistrar("store", ("store",))
_CHECKS.register_probe_failure(
    "store_takes_commits",
    "Can a commit be written under lake.root/ops?",
    _STORE,
    "check lake.root, and whether this user may write there",
    "store",
)


@_CHECKS.check("put_if_absent", "Does the store refuse to write a commit over another?", "error", _STORE)
def _put_if_absent(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.store and facts.store.takes_over:
        yield Finding(
            "error",
            f"lake.root: {facts.config.root}: a file that was there was written over, where Delta writes"
            " only if absent: if two jobs commit at once, one commit is lost",
            "a store with conditional writes, or a log store of Delta for it",
            "set spark.delta.logStore.SCHEME.impl in spark.conf",
        )


@_CHECKS.check("store_deletes", "Can a file of the lake be deleted?", "warning", _STORE)
def _store_deletes(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.store and not facts.store.is_clean:
        yield Finding(
            "warning",
            f"the files of this probe are still in {facts.config.root}/ops",
            "that files can be deleted, as `maintain` does",
            "let this user delete files under lake.root",
        )


@CheckRegistrar("tables", ("logs",)).check(
    "commits_are_whole", "Are the newest commits of each table whole?", "error", "A commit is damaged"
)
def _commits_are_whole(facts: PipelineFacts) -> Iterator[Finding]:
    for file in facts.logs or ():
        yield Finding(
            "error",
            f"{file}: the commit is empty or cut off",
            "lines of JSON; what it had committed is lost to readers",
            "stop all jobs of the pipeline, and move the file and its checksum out of the log",
        )


_TABLES: Final = CheckRegistrar("tables", ("tables",))
_OF_STREAMS: Final = CheckRegistrar("tables", ("tables",), scope="streams")
_OF_STREAMS.register_probe_failure(
    "tables_can_be_read",
    "Can the tables, the checkpoints and the ledgers be read?",
    _STORE,
    "run the command again with --verbose",
    *("streams", "logs", "tables", "nights", "lateness"),
)


@_OF_STREAMS.check("tables_fit_checkpoints", "Do tables and checkpoints know each other?", "error", _FIT)
def _tables_fit_checkpoints(facts: PipelineFacts) -> Iterator[Finding]:
    for query, why in facts.tables.misfits.items() if facts.tables else ():
        yield Finding(
            "error",
            why,
            f"tables and a checkpoint of {STREAMS[query].job} of one history",
            "restore what was moved or lost; otherwise run the command in the message",
        )


@_TABLES.check(
    "rules_are_those_of_the_tables",
    "Were speed and batch layer built by the rules that are configured now?",
    "error",
    "Change of rules, watermark or state partitions",
)
def _rules_are_those_of_the_tables(facts: PipelineFacts) -> Iterator[Finding]:
    for why in facts.tables.rules if facts.tables else ():
        yield Finding("error", why, "the rules of the table", "undo the change, or rebuild the layer")


@_TABLES.check(
    "certified_version_is_there",
    "Are the verdicts, and the version that they certify, there?",
    "error",
    "The certified version is gone",
)
def _certified_version_is_there(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.tables and facts.tables.certified:
        yield Finding(
            "error",
            facts.tables.certified,
            "the version that readers get",
            "restore both tables from backups of the same time",
        )


@_TABLES.check(
    "batch_layer_is_as_certified",
    "Does the batch layer hold what was certified, and nothing else?",
    "warning",
    "Others wrote to the batch layer",
)
def _batch_layer_is_as_certified(facts: PipelineFacts) -> Iterator[Finding]:
    tables = facts.tables
    at_work = tables is not None and tables.lease is not None and not tables.lease.is_gone
    if tables and tables.is_as_certified is False and not at_work:
        yield Finding(
            "warning",
            f"{facts.config.table('batch')} differs from its certified version: a run died between writing"
            " and deciding, or others wrote to it",
            "the certified version; readers get that anyway",
            f"the next run restores it: {command(facts.config, 'nightly_batch')}",
        )


@_TABLES.check("lease_is_not_left_over", "Is the lease free, or held by a run?", "warning", "Lease held")
def _lease_is_not_left_over(facts: PipelineFacts) -> Iterator[Finding]:
    lease = facts.tables.lease if facts.tables else None
    if lease is None:
        return
    who = f"{lease.holder} has held the lease"
    held = about((facts.at - lease.since).total_seconds())
    if lease.is_gone:
        yield Finding(
            "warning",
            f"{who}, and its process is gone",
            "a lease that was given back",
            "nothing: the next run on that machine takes the lease, runs elsewhere when it expires",
        )
    else:
        yield Finding(
            "info",
            f"{who} for {held}, until {lease.until:%Y-%m-%d %H:%M:%S} UTC if it does not extend it",
            "no other run at work, if one is to start now",
            "wait until it has ended",
        )


_STREAMS: Final = CheckRegistrar("tables", ("streams",), scope="streams")


@_STREAMS.check(
    "streams_ended_well",
    "Has the last run of each stream neither failed nor been refused?",
    "error",
    "A stream does not answer",
)
def _streams_ended_well(facts: PipelineFacts) -> Iterator[Finding]:
    for query, stream in (facts.streams or {}).items():
        if why := _failure(stream):
            yield Finding(
                "error",
                f"{STREAMS[query].job}: {why}",
                "a run that continues, or ends without an error",
                f"fix what it says, then start it: {command(facts.config, STREAMS[query].job)}",
            )


def _failure(stream: StreamFacts) -> str | None:
    if stream.refusal:
        return f"the last start was refused: {stream.refusal.failure}"
    failure = stream.progress.failure if stream.progress else None
    return f"the last run failed: {failure}" if failure else None


@_STREAMS.check(
    "streams_are_at_work",
    "Is the process of each stream that has not ended there?",
    "warning",
    "A stream does not answer",
)
def _streams_are_at_work(facts: PipelineFacts) -> Iterator[Finding]:
    for query, stream in (facts.streams or {}).items():
        if stream.progress and (ago := _dead_s(stream, facts.at)) is not None:
            said = "has not said that it ended"
            why = f"is gone, and {said}; it" if stream.is_alive is False else f"{said}, and"
            once = () if stream.progress.trigger_s else ("--once",)
            start = command(facts.config, STREAMS[query].job, *once)
            yield Finding(
                "warning",
                f"{STREAMS[query].job}: {_process(stream.progress)} {why} last wrote {about(ago)} ago",
                "a process that lives, and writes its figures twice a minute; who is killed, as when memory"
                " runs out, leaves no word",
                f"unless it runs, find out what killed it, and start it: {start}",
            )


def _dead_s(stream: StreamFacts, at: datetime) -> float | None:
    """Return for how many seconds a stream whose process is gone, or seems to be, has written nothing."""
    progress = stream.progress
    # Of one that was started since, and refused, that is told.
    if progress is None or stream.refusal or stream.is_alive:
        return None
    unwritten = progress.unwritten_s(at)
    if unwritten is None or (stream.is_alive is None and unwritten <= progress.patience_s):
        return None
    return unwritten


def _process(progress: StreamProgress) -> str:
    return f"process {progress.pid} on {progress.host}"


@_STREAMS.check(
    "streams_move",
    "Has a task or a micro-batch of each stream that lives ended lately?",
    "warning",
    "A stream is stuck",
)
def _streams_move(facts: PipelineFacts) -> Iterator[Finding]:
    for query, stream in (facts.streams or {}).items():
        progress = stream.progress
        silent = progress.stuck_s(facts.at) if progress else None
        if progress is None or silent is None or not _lives(stream, facts.at):
            continue
        yield Finding(
            "warning",
            f"{STREAMS[query].job}: {_process(progress)} lives, and no task and no micro-batch has ended for"
            f" {about(silent)}",
            f"a sign within {about(progress.patience_s)}, unless a task takes longer",
            "look at its log; if nothing moves, stop it and start it again",
        )


def _lives(stream: StreamFacts, at: datetime) -> bool:
    return bool(stream.is_alive) or (
        stream.is_alive is None and stream.progress is not None and stream.progress.unwritten_s(at) is None
    )


@_STREAMS.check(
    "poll_interval_outlasts_batches",
    "Is max.poll.interval.ms longer than the micro-batches?",
    "warning",
    "Settings that should not stay",
    "poll_interval_too_short",
)
def _poll_interval_outlasts_batches(facts: PipelineFacts) -> Iterator[Finding]:
    config = facts.config
    options = {"ingest": config.kafka.options, "publish": config.publish.options if config.publish else {}}
    for query, stream in (facts.streams or {}).items():
        text = options.get(query, {}).get("max.poll.interval.ms", "")
        longest = longest_batch(stream)
        if text.isdecimal() and int(text) < longest / timedelta(milliseconds=1):
            yield Finding(
                "warning",
                f"max.poll.interval.ms is {text}, and a micro-batch of {STREAMS[query].job} took"
                f" {about(longest.total_seconds())}",
                "longer than any micro-batch",
                "remove it, or raise it above that",
            )


def longest_batch(stream: StreamFacts) -> timedelta:
    """Return how long the longest of a stream's last micro-batches took."""
    batches = stream.progress.batches if stream.progress else ()
    return timedelta(seconds=max((batch.seconds for batch in batches), default=0.0))


_NIGHTS: Final = CheckRegistrar("nights", ("nights",))


@_NIGHTS.check(
    "days_are_certified", "Is the newest verdict on each day that it is certified?", "warning", "Audit failed"
)
def _days_are_certified(facts: PipelineFacts) -> Iterator[Finding]:
    failed = facts.nights.failed if facts.nights else ()
    if failed:
        yield Finding(
            "warning",
            f"{len(failed)} days did not pass their last audit, from {failed[0]} to {failed[-1]}",
            "days that are certified",
            "fix what the audit found, then run:"
            f" {command(facts.config, 'nightly_batch', f'--from {failed[0]} --to {failed[-1]}')}",
        )


@_NIGHTS.check("nights_run", "Has a nightly run decided within 60 hours?", "warning", "No day is certified")
def _nights_run(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.nights and (why := _no_night(facts, facts.nights)):
        yield Finding(
            "warning",
            why,
            "a verdict each night",
            f"see what the scheduler says; start a run: {command(facts.config, 'nightly_batch')}",
        )


def _no_night(facts: PipelineFacts, nights: NightFacts) -> str | None:
    """Return what shows that no nightly run decides; None if one does, or there is nothing to decide on."""
    at, config = facts.at, facts.config
    if nights.decided_at is None:
        since = at - nights.bronze_since if nights.bronze_since else timedelta()
        # Kafka may have deleted records of the first days, which are then not complete.
        incomplete = config.decode.max_future + timedelta(days=1 + config.batch.dedup_horizon_days)
        had = f"bronze has had a table with records for {about(since.total_seconds())}"
        return f"no verdict was ever given, and {had}" if since > NO_NIGHT + incomplete else None
    since = at - nights.decided_at
    if since <= NO_NIGHT or nights.bronze_at is None or nights.bronze_at <= nights.decided_at:
        return None
    return f"the last verdict was given {about(since.total_seconds())} ago, and bronze has more records"


@CheckRegistrar("data", ("streams", "nights")).check(
    "watermark_covers_lateness",
    "Is speed.watermark_delay longer than records come late?",
    "warning",
    "Many late records",
    "watermark_under_lateness",
)
def _watermark_covers_lateness(facts: PipelineFacts) -> Iterator[Finding]:
    observed = [
        f"{late:,} of {of:,} {what} came behind it"
        for what, (late, of) in _late(facts).items()
        if of >= facts.config.speed.late_warn_records and late > _LATE_SHARE * of
    ]
    if not observed:
        return
    needed = facts.lateness.most if facts.lateness else timedelta()
    hours = max(-(-needed // _HOUR), 1) * _HOUR
    longer = f" to {format_interval(hours)} or more" if hours > facts.config.speed.watermark_delay else ""
    yield Finding(
        "warning",
        f"speed.watermark_delay is {format_interval(facts.config.speed.watermark_delay)}, and"
        f" {'; '.join(observed)}",
        f"{_LATE_SHARE:.0%} at most: the others are missing from the speed layer until the nightly run",
        f"raise speed.watermark_delay{longer}, and rebuild the speed layer",
    )


def _late(facts: PipelineFacts) -> dict[str, tuple[int, int]]:
    """Return late records and all records, by where they were counted."""
    query: Query = "speed"
    progress = (facts.streams or {}).get(query, StreamFacts()).progress
    batches = progress.batches if progress else ()
    nights, lateness = facts.nights, facts.lateness
    return {
        "records of the last micro-batches": (
            sum(batch.late for batch in batches),
            sum(batch.records for batch in batches),
        ),
        "events of certified days": (nights.late, nights.rows) if nights else (0, 0),
        "records of the last month": (lateness.behind, lateness.records) if lateness else (0, 0),
    }
