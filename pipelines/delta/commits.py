"""What single commits of a Delta table did, from the files of its log."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.delta.epochs import Commit
from pipelines.delta.log import delta_log
from pipelines.delta.time_travel import commit_file
from pipelines.spark.failures import damaged_commit

_UNKNOWN: Final = "unknown"
_FEW: Final = 20


@dataclass(frozen=True, kw_only=True)
class CommitEffect(Commit):
    """A commit, and what it did to the rows of a table.

    Attributes:
        adds: Whether it added files with rows that were not there, or were others.
        removes: Whether it removed such files.
        removed_days: The event days of those that it removed, sorted; None if its table is not divided by
            them, or it does not say.
    """

    adds: bool
    removes: bool
    removed_days: tuple[date, ...] | None


def commits_between(spark: SparkSession, table: str, after: int, until: int) -> Iterator[CommitEffect]:
    """Yield the commits after one version and until another, in order; those that the log lacks are left out.

    Args:
        spark: The session.
        table: The path of a Delta table.
        after: A version.
        until: A version, not older.

    Raises:
        SourceError: The file of one of them is damaged.
    """
    # The history of a table is read from its newest commit on, which may be far from these.
    for at in range(after + 1, until + 1):
        file = commit_file(spark, table, at)
        commit = file.text()
        if commit is None:
            continue
        try:
            effect = effect_of(at, commit)
        except ValueError:
            raise damaged_commit(file.path) from None
        yield effect


def commit_at(spark: SparkSession, table: str, at: int) -> Commit:
    """Return what the log says of the commit that made a version.

    Its operation is `unknown` where the log does not say, or no longer has it: for whoever asks
    whether others wrote to a table, it is the write of another.

    Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#commit-provenance-information

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version.

    Raises:
        SourceError: The file of the commit is damaged.
    """
    # It comes first in the file, so of a large commit little is read.
    with closing(_actions(spark, table, at)) as actions:
        said: dict[str, Any] = next(
            (action["commitInfo"] for action in actions if action.get("commitInfo")), {}
        )
    return Commit(at, said.get("operation") or _UNKNOWN, said.get("userMetadata"))


def leave_files(spark: SparkSession, table: str, after: int, until: int) -> bool:
    """Return whether a table has the same files at two versions, as the commits between them say at once.

    False where one of them adds or removes a file, where the log lacks one, and where they are many: then
    only the two versions themselves can say it.

    Args:
        spark: The session.
        table: The path of a Delta table.
        after: A version.
        until: Another one.
    """
    return 0 <= until - after <= _FEW and all(
        _leaves_files(spark, table, at) for at in range(after + 1, until + 1)
    )


def removed_paths(spark: SparkSession, table: str, after: int, until: int) -> set[str] | None:
    """Return the paths of files that commits have removed after one version and until another.

    Args:
        spark: The session.
        table: The path of a Delta table.
        after: A version.
        until: Another one.

    Returns:
        None if the log lacks one of the commits, or the second version is the older one.
    """
    if until < after:
        return None
    removed = set[str]()
    for at in range(after + 1, until + 1):
        with closing(_actions(spark, table, at)) as actions:
            said = list(actions)
        if not said:
            return None
        removed |= {action["remove"]["path"] for action in said if action.get("remove")}
    return removed


def appended_files(spark: SparkSession, table: str, at: int, most: int) -> list[dict[str, Any]]:
    """Return some of the files that a commit has appended to a table, as its log writes them.

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version that the commit made.
        most: How many lines of it are read at most.

    Returns:
        None of a commit that the log lacks, or that rewrote rows that were there.

    Raises:
        SourceError: The file of the commit is damaged.
    """
    with closing(_actions(spark, table, at)) as actions:
        said = list(islice(actions, most))
    if any("remove" in action for action in said):
        return []
    return [action for action in said if action.get("add", {}).get("dataChange")]


def _leaves_files(spark: SparkSession, table: str, at: int) -> bool:
    has_any = False
    with closing(_actions(spark, table, at)) as actions:
        for action in actions:
            if action.keys() & {"add", "remove"}:
                return False
            has_any = True
    return has_any


def _actions(spark: SparkSession, table: str, at: int) -> Generator[dict[str, Any], None, None]:
    """Yield the actions of a commit in their order, as they are asked for; none if the log lacks it.

    Raises:
        SourceError: The file of the commit is damaged.
    """
    file = commit_file(spark, table, at)
    if not file.exists():
        return
    log = delta_log(spark, table)
    lines = log.store().readAsIterator(file.path, log.newDeltaHadoopConf())
    try:
        while lines.hasNext():
            yield action_in(lines.next())
    except ValueError:
        raise damaged_commit(file.path) from None
    finally:
        lines.close()


def adds_nothing(spark: SparkSession, table: str, after: int, until: int) -> bool:
    """Return whether no commit after one version and until another added rows; False where the log lacks one.

    A commit that also removes files has rewritten rows that were there.
    """
    return _none_is(spark, table, after, until, lambda commit: commit.adds and not commit.removes)


def changes_nothing(spark: SparkSession, table: str, after: int, until: int) -> bool:
    """Return whether no commit after one version and until another changed rows.

    False where the log lacks one.
    """
    return _none_is(spark, table, after, until, lambda commit: commit.adds or commit.removes)


def _none_is(
    spark: SparkSession, table: str, after: int, until: int, does: Callable[[CommitEffect], bool]
) -> bool:
    if until < after:
        # The table was restored: its versions are not those that were meant.
        return False
    commits = 0
    for commit in commits_between(spark, table, after, until):
        if does(commit):
            return False
        commits += 1
    return commits >= until - after


def effect_of(version: int, text: str) -> CommitEffect:
    """Return what a commit did.

    Args:
        version: The version that it made.
        text: Its file, a JSON object in each line.

    Raises:
        ValueError: It is cut off, or a line of it is no action.
    """
    # By line feeds alone: a text within a line, as the least key of a file, may hold other ends of lines.
    actions = [action_in(line) for line in text.split("\n") if line]
    commit_info: dict[str, Any] = next(
        (action["commitInfo"] for action in actions if "commitInfo" in action), {}
    )

    def files(kind: str) -> list[dict[str, Any]]:
        all_files = (action[kind] for action in actions if kind in action)
        return [file for file in all_files if file.get("dataChange", True)]

    removed = files("remove")
    return CommitEffect(
        version=version,
        operation=commit_info.get("operation") or _UNKNOWN,
        note=commit_info.get("userMetadata"),
        adds=bool(files("add")),
        removes=bool(removed),
        removed_days=_days(removed),
    )


def action_in(line: str) -> dict[str, Any]:
    """Return the action that a line of a commit stands for, as parsed JSON.

    Raises:
        ValueError: It stands for none.
    """
    try:
        action = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(action, dict) or not all(isinstance(part, dict) for part in action.values()):
        raise ValueError("no action of a commit")
    return action


def _days(files: Sequence[Mapping[str, Any]]) -> tuple[date, ...] | None:
    # Delta's protocol lets a commit leave them out of what it removes.
    values = (file.get("partitionValues") for file in files)
    named = {str(each.get("_event_date") or "") if isinstance(each, dict) else "" for each in values}
    days = sorted(date.fromisoformat(day) for day in named if day)
    return tuple(days) if len(days) == len(named) else None
