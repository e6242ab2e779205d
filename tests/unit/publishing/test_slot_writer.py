"""What runs on executors needs no package that they do not have."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ON_EXECUTORS = {"confluent-kafka", "pyarrow", "pyspark"}
MODULES = {
    **{"delta-spark": "delta", "great-expectations": "great_expectations", "pyyaml": "yaml"},
    **{
        "open-data-contract-standard": "open_data_contract_standard",
        "prometheus-client": "prometheus_client",
    },
    "vl-convert-python": "vl_convert",
}


def test_a_slot_is_written_without_the_packages_of_the_driver() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", each)[0].lower() for each in project["dependencies"]} - ON_EXECUTORS
    missing = sorted(MODULES.get(name, name) for name in names)
    assert "tenacity" in missing
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}));"
        "from pipelines.publishing.slot_writer import write_slot; print(write_slot.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "write_slot\n"), done.stderr
