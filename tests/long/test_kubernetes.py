"""The manifests against the schemas of those who will read them, by packages that carry these."""

import subprocess
from pathlib import Path

import pytest

from tests.support.deployments import EVERYTHING, all_files, described

pytestmark = pytest.mark.long

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
# podFailurePolicy and timeZone are in all versions that are still supported.
VERSIONS = ("1.33", "1.36")
# Unknown fields are left out by the models: what comes back must be all that was said.
ROUND_TRIP = """\
import sys, yaml
from kubeflow_spark_api.models.spark_v1beta2_scheduled_spark_application import (
    SparkV1beta2ScheduledSparkApplication as Application,
)
said = yaml.safe_load(open(sys.argv[1]))
kept = Application.from_dict(said).to_dict()
def lost(said, kept, place):
    if not isinstance(said, dict):
        return [] if said == kept else [place]
    return [p for k, v in said.items() for p in lost(v, (kept or {}).get(k), f"{place}.{k}")]
sys.exit(", ".join(lost(said, kept, "")) or 0)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_all_that_the_cron_job_says(schedulers: Path, tmp_path: Path, version: str) -> None:
    def refusal(path: Path) -> str:
        command = [str(schedulers / "kubernetes-validate"), "--strict", "-k", version, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    path = KUBERNETES / "cronjob.yaml"
    assert refusal(path) == ""
    mistaken = tmp_path / "mistaken.yaml"
    mistaken.write_text(path.read_text().replace("backoffLimit", "backofLimit"))
    assert "backofLimit" in refusal(mistaken)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_all_that_deploy_writes(schedulers: Path, tmp_path: Path, version: str) -> None:
    written = all_files(described(tmp_path, EVERYTHING))
    for number, file in enumerate((*written["kubernetes"], *written["keda"][:2])):
        path = tmp_path / f"{number}-{file.name}"
        path.write_text(file.text)
        command = [str(schedulers / "kubernetes-validate"), "--strict", "-k", version, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_operator_knows_all_that_the_application_says(schedulers: Path, tmp_path: Path) -> None:
    def lost(path: Path) -> str:
        command = [str(schedulers / "python"), "-c", ROUND_TRIP, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()

    path = KUBERNETES / "scheduled-spark-application.yaml"
    assert lost(path) == ""
    mistaken = tmp_path / "mistaken.yaml"
    mistaken.write_text(path.read_text().replace("serviceAccount", "serviceAcount"))
    assert lost(mistaken) == ".spec.template.driver.serviceAcount"
