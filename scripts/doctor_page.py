"""Write docs/doctor.md, the checks of `oncelake doctor`, from their registry: `make pages`."""

import re
from pathlib import Path
from typing import Final

from pipelines.doctor.check_list import DoctorCheck
from pipelines.doctor.check_report import ALL_CHECKS

PAGE: Final = "docs/doctor.md"
_HEAD: Final = """# Doctor

`oncelake doctor` checks a pipeline as it is: configuration, machine, clusters, racks, store, tables,
checkpoints, nightly runs, data and publishing. It includes what `oncelake rack doctor` and
`oncelake publish doctor` find.

```sh
oncelake doctor --pipeline flights --env prod
```

```
error: cluster: retention_covers_runs
    found: topic flights: retention.ms is 1.0 h, and the time between two runs of ingest is 1.0 d
    expected: 3 times that, so that a run may fail
    fix: set retention.ms of the topic to 259200000 or more, or run ingest more often
    see: docs/runbook.md, 'How the topic is kept'
```

It changes no table, no checkpoint, no offset and no setting. It writes one small commit into a folder
of its own under `lake.root/ops` (`_probe-…`), tries to overwrite it, and deletes that folder. It
needs what `oncelake reconcile` needs: access to Kafka and to the lake.

| severity | meaning |
|---|---|
| `error` | data are lost, or a job does not start |
| `warning` | data can be lost, or a job may fail |
| `info` | no action is needed; also a risk that [accept_risks](configuration.md#risks) names |

## In CI

The exit code is 0 if there is no finding of severity `error`. With `--fail-on warning` there must be
no finding of severity `warning` either.

| code | meaning |
|---|---|
| 0 | no finding of the severity of `--fail-on`, or of a higher one |
| 2 | configuration, contract or command line are invalid, so nothing was checked |
| 3 | there are such findings |

With `--format json` the last line of standard output is an object. It has `findings`, each with
`check`, `group`, `severity`, `found`, `expected`, `fix` and `runbook` (a page of this repository and a
heading), the highest severity first; and `checks`, each with its `status`:

| status | meaning |
|---|---|
| `passed`, `found` | the check was made |
| `skipped` | what it looks at could not be asked for; another finding says why |
| `not_applicable` | the pipeline has no such thing, such as `publish`; or `--cluster` leaves it out |

A cluster that does not answer is one finding; the lake is checked all the same. If a commit is damaged,
tables are not read. Each part may take a minute; what asks a cluster may take
`kafka.connect_timeout` longer.

Run it where the jobs run, because some checks look at the machine. Its own Spark session always runs
as `local[2]`.

## Several clusters

Each of a pipeline's [clusters](clusters.md) that is not retired is checked: whether it answers, the
topic, its settings and retention, rights, replicas, racks, offsets, and the checkpoint and the last run
of its ingest. A finding about one of them says so. Up to eight of them are asked at once, and beside
them the cluster of `publish` and the dead-letter topic. So one that does not answer is a finding about
that cluster, and holds up none of the others. Findings come in the order of the configuration.

```
error: cluster: cluster_answers
    cluster: eu (eu-1:9092)
    found: kafka.clusters.eu.bootstrap_servers: eu-1:9092: no answer within 30 s
```

In the object, such findings and checks have `cluster`, its name, and `servers`, its address. The first
cluster has no name: `cluster` is null and `servers` is not. Both are null if a finding is not about one
of several clusters. `checks` has an entry for each of them. The topic of `quarantine.dead_letter_topic`
is checked on the first cluster; it is skipped if that does not answer.

With `--cluster NAME` the command asks that cluster, and no other for the topic. All else is checked as
well.

## ACLs

```sh
oncelake doctor --pipeline flights --env prod --acls
```

The command lists the ACLs that each job needs on the Kafka clusters, and checks nothing; with
`--cluster`, those on that cluster. With
`--format json` the object has `acls`, each with `job`, `resource`, `name`, `operation`, `servers`,
`is_prefix`, `optional` (what the job lacks without it; null if it fails) and `command`.
[Security](security.md#acls) explains them.

## Checks

| check | group | question | highest severity | what to do |
|---|---|---|---|---|
"""
_TAIL: Final = """
Lateness is known by event days only, so the check `watermark_covers_lateness` uses a lower bound of it.
The checks are in `pipelines/doctor`, a
function for each. This page is generated: edit these, or `scripts/doctor_page.py`, and run
`make pages`.
"""


def page_text() -> str:
    """Return the page: a row for each check, in the order in which they are made."""
    return _HEAD + "".join(map(_row, ALL_CHECKS)) + _TAIL


def _row(check: DoctorCheck) -> str:
    link = f"[{check.runbook}]({re.sub('^docs/', '', check.link)})"
    return f"| `{check.name}` | {check.group} | {check.question} | {check.severity} | {link} |\n"


if __name__ == "__main__":
    Path(PAGE).write_text(page_text(), encoding="utf-8")
