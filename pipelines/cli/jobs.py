"""The jobs: the commands that spark-submit can start, each by the script of its name in `jobs/`.

To add a job: docs/architecture.md, 'Where to change what'.
"""

from collections.abc import Mapping
from typing import Final

JOBS: Final[Mapping[str, str]] = {
    "ingest_stream": "streams:ingest_stream",
    "speed_stream": "streams:speed_stream",
    "publish_stream": "publish:publish_stream",
    "nightly_batch": "nightly:nightly_batch",
    "validate": "nightly:validate_day",
    "report": "report:write_day_report",
    "maintain": "maintain:maintain_tables",
}
"""The module in `pipelines.cli` that defines a job, and its name there; `spark-submit jobs/NAME.py ...` is
`oncelake NAME ...`."""
