"""Checks of the machine: Java, jars, the session, clocks."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pipelines.doctor.check_list import CheckRegistrar
from pipelines.doctor.findings import Finding
from pipelines.doctor.pipeline_facts import PipelineFacts

_JAVA: Final = "Java and jars"
_CLOCK: Final = "A clock is behind"
_SKEW: Final = timedelta(minutes=1)

_CHECKS: Final = CheckRegistrar("environment")
_CHECKS.register_probe_failure(
    "java_runs",
    "Is there a Java that Spark runs on?",
    _JAVA,
    "set JAVA_HOME to a Java 17 or 21",
    "runtime",
)
_CHECKS.register_probe_failure(
    "session_starts",
    "Does a Spark session start, and can it keep the contract?",
    _JAVA,
    "run the command again with --verbose",
    "session",
)


@CheckRegistrar("environment", ("runtime",)).check(
    "jars_are_whole", "Do the jars have the checksums of conf/jars.lock?", "error", _JAVA
)
def _jars_are_whole(facts: PipelineFacts) -> Iterator[Finding]:
    runtime = facts.runtime
    if runtime and runtime.damaged_jars:
        yield Finding(
            "error",
            f"jars with other bytes than this release was tested with: {', '.join(runtime.damaged_jars)}",
            "the SHA-256 of conf/jars.lock",
            "delete them and run `oncelake jars`, which fetches them again",
        )
    if runtime and runtime.missing_jars:
        yield Finding(
            "info",
            f"{len(runtime.missing_jars)} jars are not there yet",
            "all jars of conf/jars.lock",
            "run `oncelake jars`; otherwise the next job fetches them",
        )


@CheckRegistrar("environment", ("tables",)).check(
    "clock_and_bronze",
    "Is this machine's clock no more than ingest.max_clock_behind behind the newest commit of bronze?",
    "error",
    _CLOCK,
)
def _clock_and_bronze(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.tables and facts.tables.clock:
        yield Finding("error", facts.tables.clock, "a clock that keeps time", "synchronize it (NTP)")


@CheckRegistrar("environment", ("store",)).check(
    "clock_and_store", "Do the clocks of this machine and of the lake's store agree?", "warning", _CLOCK
)
def _clock_and_store(facts: PipelineFacts) -> Iterator[Finding]:
    skew = facts.store.skew if facts.store else None
    if skew is not None and abs(skew) > _SKEW:
        yield Finding(
            "warning",
            f"the store's clock is {abs(skew).total_seconds():.0f} s"
            f" {'ahead of' if skew > timedelta() else 'behind'} this machine's",
            "a difference of a minute at most",
            "synchronize both (NTP)",
        )


@CheckRegistrar("environment", ("topic",), scope="cluster").check(
    "clock_and_broker",
    "Is no record newer than this machine's clock, where brokers set the time (LogAppendTime)?",
    "warning",
    _CLOCK,
)
def _clock_and_broker(facts: PipelineFacts) -> Iterator[Finding]:
    appended = facts.topic.description.appended_at if facts.topic else None
    if appended is not None and appended - facts.at > _SKEW:
        yield Finding(
            "warning",
            f"a broker took a record {(appended - facts.at).total_seconds():.0f} s after the current time"
            " of this machine",
            "a difference of a minute at most",
            "synchronize this machine and the brokers (NTP)",
        )
