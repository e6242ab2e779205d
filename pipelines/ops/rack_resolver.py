"""`oncelake-rack`: tells in which rack or zone this machine is, for the start-up of Spark's executors.

It runs where executors start, by whatever Python is there, so it is one file that needs nothing but Python's
own library (3.7 or later): it can be copied to nodes and images without Oncelake. Who answers first, in this
order, decides: the variable itself, a file, the instance metadata of AWS, GCP or Azure. In all it takes a
second at most.

    eval "$(python3 oncelake-rack.py)"       # in spark-env.sh

Protocols: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html,
https://cloud.google.com/compute/docs/metadata/querying-metadata and
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

VARIABLE = "NODE_RACK"
ATTRIBUTE = "SPARK_EXECUTOR_ATTRIBUTE_RACK"
WITHIN_S = 1.0
# In a folder that a Downward API volume makes: a file with the label's value, or the file of all labels.
_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
_FILES = ("rack", "zone", *(label.replace("/", "_") for label in _LABELS))
_RACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LINK_LOCAL = "http://169.254.169.254"
_GOOGLE = "http://metadata.google.internal"
# A proxy would tell its own zone.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """A source has no rack to tell; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Prints what a shell has to evaluate, or the rack alone; nothing, and a warning, if none is found."""
    parser = argparse.ArgumentParser(prog="oncelake-rack", description=__doc__.splitlines()[0])
    parser.add_argument("--variable", default=VARIABLE, help="the variable that Kafka's clients look at")
    parser.add_argument("--file", help="a file with the rack, or a folder of a Downward API volume")
    parser.add_argument(
        "--aws", choices=("zone-id", "zone-name"), default="zone-id",
        help="which of AWS's names brokers have as broker.rack (names differ between accounts, ids do not)",
    )  # fmt: skip
    parser.add_argument("--plain", action="store_true", help="print the rack alone")
    options = parser.parse_args(arguments)
    rack, told = resolve(options.variable, options.file, options.aws)
    if not rack:
        why = "; ".join(told)
        sys.stderr.write(f"oncelake-rack: no rack found, clients will read from leaders: {why}\n")
        return 0
    sys.stderr.write(f"oncelake-rack: {rack} ({told[-1]})\n")
    if options.plain:
        print(rack)
    else:
        print(f"export {options.variable}={rack}\nexport {ATTRIBUTE}={rack}")
    return 0


def resolve(variable: str, file: str | None, aws: str) -> tuple[str, list[str]]:
    """Finds the rack.

    Args:
        variable: an environment variable that may name it.
        file: a file or folder that may name it.
        aws: which of AWS's names to take: `zone-id` or `zone-name`.

    Returns:
        The rack, empty if nobody tells it; and who was asked, with what came of it.
    """
    told: list[str] = []
    try:
        return checked(os.environ.get(variable, "")), [f"${variable}"]
    except NoAnswer as why:
        told.append(f"${variable}: {why}")
    try:
        return of_file(file), [*told, "file"]
    except NoAnswer as why:
        told.append(f"file: {why}")
    rack, clouds = of_clouds(aws, WITHIN_S)
    return rack, [*told, *clouds]


def checked(text: str) -> str:
    """A rack that may be given to a shell and to Kafka.

    Raises:
        NoAnswer: it is empty, was not resolved (`${...}`), or is no name of a rack.
    """
    rack = text.strip()
    if not rack:
        raise NoAnswer("empty")
    if not _RACK.fullmatch(rack):
        raise NoAnswer(f"expected the name of a rack, got {rack[:60]!r}")
    return rack


def of_file(path: str | None) -> str:
    """The rack that a file names, or one of the files of a Downward API volume.

    Raises:
        NoAnswer: none is named.
    """
    if not path:
        raise NoAnswer("not given")
    place = Path(path)
    try:
        if not place.is_dir():
            return checked(place.read_text())
        for name in _FILES:
            if (place / name).is_file():
                return checked((place / name).read_text())
        lines = (place / "labels").read_text().splitlines()
    except OSError as error:
        raise NoAnswer(str(error)) from None
    labels = dict(line.partition("=")[::2] for line in lines)
    for label in _LABELS:
        if label in labels:
            return checked(labels[label].strip().strip('"'))
    raise NoAnswer(f"{place / 'labels'} has none of {', '.join(_LABELS)}")


def of_clouds(aws: str, within_s: float) -> tuple[str, list[str]]:
    """Asks the metadata services of all clouds at once; on one of them only its own answers.

    Args:
        aws: which of AWS's names to take.
        within_s: when to give up, in seconds.
    """
    services = {
        "aws": os.environ.get("ONCELAKE_RACK_AWS", _LINK_LOCAL),
        "gcp": os.environ.get("ONCELAKE_RACK_GCP", _GOOGLE),
        "azure": os.environ.get("ONCELAKE_RACK_AZURE", _LINK_LOCAL),
    }
    asks = {"aws": lambda base, until: of_aws(base, until, aws), "gcp": of_gcp, "azure": of_azure}
    until = time.monotonic() + within_s
    answers: queue.Queue[tuple[str, str, str]] = queue.Queue()

    def ask(cloud: str) -> None:
        try:
            answers.put((cloud, checked(asks[cloud](services[cloud], until)), ""))
        except NoAnswer as why:
            answers.put((cloud, "", str(why)))
        except (OSError, ValueError) as error:
            answers.put((cloud, "", str(error)))

    for cloud in asks:
        threading.Thread(target=ask, args=(cloud,), daemon=True).start()
    open_clouds: set[str] = set(asks)
    told: list[str] = []
    while open_clouds:
        try:
            cloud, rack, why = answers.get(timeout=max(until - time.monotonic(), 0.001))
        except queue.Empty:
            break
        open_clouds.discard(cloud)
        if rack:
            return rack, [*told, cloud]
        told.append(f"{cloud}: {why}")
    return "", [*told, *(f"{cloud}: no answer within {within_s:g} s" for cloud in sorted(open_clouds))]


def of_aws(base: str, until: float, which: str) -> str:
    """AWS, by version 2 of its service alone: a token first."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        token = _get(base + "/latest/api/token", until, "PUT", ttl)[0]
    except TimeoutError:
        raise NoAnswer(
            "no token in time; in a container the instance's metadata hop limit has to be 2"
        ) from None
    name = {"zone-id": "availability-zone-id", "zone-name": "availability-zone"}[which]
    headers = {"X-aws-ec2-metadata-token": token}
    return _get(base + "/latest/meta-data/placement/" + name, until, "GET", headers)[0]


def of_gcp(base: str, until: float) -> str:
    """GCP, whose answer is `projects/NUMBER/zones/ZONE`."""
    headers = {"Metadata-Flavor": "Google"}
    text, flavor = _get(base + "/computeMetadata/v1/instance/zone", until, "GET", headers)
    match = re.fullmatch(r"projects/[^/]+/zones/([^/\s]+)", text.strip())
    if flavor != "Google" or not match:
        raise NoAnswer(f"not the answer of GCP's metadata service: {text[:60]!r}")
    return match.group(1)


def of_azure(base: str, until: float) -> str:
    """Azure, whose zones are numbers within a region."""
    path = "/metadata/instance/compute?api-version=2021-02-01&format=json"
    found = json.loads(_get(base + path, until, "GET", {"Metadata": "true"})[0])
    if not isinstance(found, dict) or not found.get("zone") or not found.get("location"):
        raise NoAnswer("the machine is in no zone")
    return f"{found['location']}-{found['zone']}"


def _get(url: str, until: float, method: str, headers: dict[str, str]) -> tuple[str, str]:
    """The text of an answer, and what kind of service says it is."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - http, and ours
    try:
        with _OPENER.open(request, timeout=left) as answer:
            return answer.read(65536).decode("utf-8", "replace"), answer.headers.get("Metadata-Flavor", "")
    except urllib.error.HTTPError as error:
        raise NoAnswer(f"HTTP {error.code}") from None
    except OSError as error:
        # Older Pythons have a time-out of their own for each of the ways in which this one shows.
        if "timed out" in str(error):
            raise TimeoutError("no answer in time") from None
        raise NoAnswer(str(getattr(error, "reason", error))) from None


if __name__ == "__main__":
    sys.exit(main())
