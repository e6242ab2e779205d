"""A table under `ops/` is shared: each pipeline appends its own rows and gets its own rows."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pipelines.delta.tables import version
from pipelines.ledger.ops_tables import PUBLICATIONS
from tests.support.lakes import Lake

pytestmark = pytest.mark.spark

AT = datetime(2013, 1, 1, tzinfo=UTC)


def published(run_id: str) -> dict[str, Any]:
    return dict.fromkeys(PUBLICATIONS.schema.names) | {"run_id": run_id, "published_at": AT}


def test_a_pipeline_gets_the_rows_that_it_has_appended_and_no_others(lake: Lake) -> None:
    own = lake.pipeline
    other = replace(own, config=own.config.model_copy(update={"name": "the other's"}))
    assert not PUBLICATIONS.exists(own)
    PUBLICATIONS.append(own, [published("first")])
    before = version(lake.spark, PUBLICATIONS.path(own))
    PUBLICATIONS.append(other, [published("theirs"), published("theirs too")])
    PUBLICATIONS.append(own, [published("second")])
    found = {
        name: sorted(row["run_id"] for row in rows.collect())
        for name, rows in {
            "own": PUBLICATIONS.rows(own),
            "other": PUBLICATIONS.rows(other),
            "own before": PUBLICATIONS.rows(own, before),
        }.items()
    }
    assert found == {"own": ["first", "second"], "other": ["theirs", "theirs too"], "own before": ["first"]}
    assert PUBLICATIONS.rows(other).where('pipeline <> "the other\'s"').isEmpty()
