"""`oncelake-rack`: finds the rack or zone of this machine, for the start-up of Spark's executors.

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
import contextlib
import functools
import http.client
import json
import os
import queue
import re
import shlex
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

VARIABLE = "NODE_RACK"
ATTRIBUTE = "SPARK_EXECUTOR_ATTRIBUTE_RACK"
WITHIN_S = 1.0
# In a folder that a Downward API volume makes: a file with the label's value, or the file of all labels.
_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
_FILES = ("rack", "zone", *(label.replace("/", "_") for label in _LABELS))
# What people write is taken as it is, quoted for the shell; what a service answers has to look like a zone.
_RACK = re.compile(r"[A-Za-z0-9_./:@+~-][A-Za-z0-9_./:@+~ -]{0,127}")
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_BYTES = 65536
_LINK_LOCAL = "http://169.254.169.254"
_GOOGLE = "http://metadata.google.internal"
# A proxy would answer with its own zone.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """A source knows no rack; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Print what a shell has to evaluate, or the rack alone; nothing, and a warning, if none is found."""
    parser = argparse.ArgumentParser(prog="oncelake-rack", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--variable", default=VARIABLE, type=_variable, help="the variable that Kafka's clients read"
    )
    parser.add_argument("--file", help="a file with the rack, or a folder of a Downward API volume")
    parser.add_argument(
        "--aws", choices=("zone-id", "zone-name"), default="zone-id",
        help="what brokers have as broker.rack on AWS (zone names differ between accounts, zone ids do not)",
    )  # fmt: skip
    parser.add_argument("--plain", action="store_true", help="print only the rack")
    options = parser.parse_args(arguments)
    rack, answers = resolve(options.variable, options.file, options.aws)
    if not rack:
        _remark(f"no rack found, clients will read from leaders: {'; '.join(answers)}")
        return 0
    quoted = shlex.quote(rack)
    print(rack if options.plain else f"export {options.variable}={quoted}\nexport {ATTRIBUTE}={quoted}")
    sys.stdout.flush()
    _remark(f"{rack} ({answers[-1]})")
    return 0


def _variable(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected the name of a variable, got {text!r}")
    return text


def _remark(text: str) -> None:
    # Whoever starts executors may have closed it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"oncelake-rack: {text}\n")
        sys.stderr.flush()


def resolve(variable: str, file: str | None, aws: str) -> tuple[str, list[str]]:
    """Find the rack.

    Args:
        variable: An environment variable that may name it.
        file: A file or folder that may name it.
        aws: Which of AWS's names to take: `zone-id` or `zone-name`.

    Returns:
        The rack, empty if nobody knows it; and who was asked, with each result.
    """
    failures: list[str] = []
    until = time.monotonic() + WITHIN_S
    try:
        return checked(os.environ.get(variable, "")), [f"${variable}"]
    except NoAnswer as why:
        failures.append(f"${variable}: {why}")
    # A file may lie where nobody answers, too.
    rack, of_files = first_of({"file": lambda: of_file(file)}, until)
    if rack:
        return rack, [*failures, *of_files]
    rack, clouds = of_clouds(aws, until)
    return rack, [*failures, *of_files, *clouds]


def checked(text: str) -> str:
    """Return a rack that may be given to a shell and to Kafka.

    Raises:
        NoAnswer: It is empty, was not resolved (`${...}`), or is no name of a rack.
    """
    rack = text.strip()
    if not rack:
        raise NoAnswer("empty")
    if not _RACK.fullmatch(rack):
        raise NoAnswer(f"expected the name of a rack, got {rack[:60]!r}")
    return rack


def of_file(path: str | None) -> str:
    """Return the rack that a file names, or one of the files of a Downward API volume.

    Raises:
        NoAnswer: None is named.
    """
    if not path:
        raise NoAnswer("not given")
    place = Path(path)
    try:
        if not place.is_dir():
            return checked(_text(place))
        for name in _FILES:
            if (place / name).is_file():
                return checked(_text(place / name))
        lines = _text(place / "labels").splitlines()
    except OSError as error:
        raise NoAnswer(str(error)) from None
    labels = dict(line.partition("=")[::2] for line in lines)
    for label in _LABELS:
        if label in labels:
            return checked(labels[label].strip().strip('"'))
    raise NoAnswer(f"{place / 'labels'} has none of {', '.join(_LABELS)}")


def _text(place: Path) -> str:
    """Return the beginning of a file as text; other bytes are replaced."""
    if place.exists() and not place.is_file():
        raise NoAnswer(f"{place} is not a file")
    with place.open("rb") as opened:
        return opened.read(_MOST_BYTES).decode("utf-8-sig", "replace")


def of_clouds(aws: str, until: float) -> tuple[str, list[str]]:
    """Ask the metadata services of all clouds at once; on one of them only its own answers.

    Args:
        aws: Which of AWS's names to take.
        until: When to give up, by the monotonic clock.
    """
    asks: dict[str, Callable[[], str]] = {
        cloud: functools.partial(_zone, _ask_of(cloud, aws, until)) for cloud in CLOUDS
    }
    return first_of(asks, until)


def _ask_of(cloud: str, aws: str, until: float) -> Callable[[], str]:
    """Return what asks the metadata service of a cloud, which tests replace by a variable."""
    address, ask = CLOUDS[cloud]
    return functools.partial(ask, os.environ.get(service_variable(cloud), address), until, aws)


def service_variable(cloud: str) -> str:
    """Return the environment variable with the address of a cloud's metadata service, for tests."""
    return "ONCELAKE_RACK_" + cloud.upper()


def first_of(asks: dict[str, Callable[[], str]], until: float) -> tuple[str, list[str]]:
    """Ask all at once, and take the first that knows a rack.

    Args:
        asks: By the name of who is asked.
        until: When to give up, by the monotonic clock.

    Returns:
        The rack, empty if nobody knows it; and who knew it, or the result of each.
    """
    answers: queue.Queue[tuple[str, str, str]] = queue.Queue()

    def ask(name: str) -> None:
        try:
            answers.put((name, asks[name](), ""))
        except (NoAnswer, OSError, ValueError) as why:
            answers.put((name, "", str(why)))
        except (http.client.HTTPException, RecursionError) as odd:
            answers.put((name, "", f"invalid answer ({type(odd).__name__})"))

    for name in asks:
        threading.Thread(target=ask, args=(name,), daemon=True).start()
    silent: set[str] = set(asks)
    failures: list[str] = []
    while silent:
        try:
            name, rack, why = answers.get(timeout=max(until - time.monotonic(), 0.001))
        except queue.Empty:
            break
        silent.discard(name)
        if rack:
            return rack, [*failures, name]
        failures.append(f"{name}: {why}")
    return "", [*failures, *(f"{name}: no answer in time" for name in sorted(silent))]


def _zone(ask: Callable[[], str]) -> str:
    zone = ask().strip()
    if not _ZONE.fullmatch(zone):
        raise NoAnswer(f"expected the name of a zone, got {zone[:60]!r}")
    return zone


def of_aws(base: str, until: float, which: str) -> str:
    """Return the zone by AWS's metadata service, of which only version 2 is asked: a token comes first."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        token = _get(base + "/latest/api/token", until, "PUT", ttl)[0]
    except TimeoutError:
        raise NoAnswer(
            "no token in time; in a container, the hop limit of the instance metadata service must be 2"
        ) from None
    name = {"zone-id": "availability-zone-id", "zone-name": "availability-zone"}[which]
    headers = {"X-aws-ec2-metadata-token": token}
    return _get(base + "/latest/meta-data/placement/" + name, until, "GET", headers)[0]


def of_gcp(base: str, until: float, _: str) -> str:
    """Return the zone by GCP's metadata service, which answers `projects/NUMBER/zones/ZONE`."""
    headers = {"Metadata-Flavor": "Google"}
    text, flavor = _get(base + "/computeMetadata/v1/instance/zone", until, "GET", headers)
    match = re.fullmatch(r"projects/[^/]+/zones/([^/\s]+)", text.strip())
    if flavor != "Google" or not match:
        raise NoAnswer(f"not the answer of GCP's metadata service: {text[:60]!r}")
    return match.group(1)


def of_azure(base: str, until: float, _: str) -> str:
    """Return region and zone by Azure's metadata service; its zones are numbers within a region."""
    path = "/metadata/instance/compute?api-version=2021-02-01&format=json"
    instance = json.loads(_get(base + path, until, "GET", {"Metadata": "true"})[0])
    if not isinstance(instance, dict) or not instance.get("zone") or not instance.get("location"):
        raise NoAnswer("the machine is in no zone")
    return f"{instance['location']}-{instance['zone']}"


CLOUDS: dict[str, tuple[str, Callable[[str, float, str], str]]] = {
    "aws": (_LINK_LOCAL, of_aws),
    "gcp": (_GOOGLE, of_gcp),
    "azure": (_LINK_LOCAL, of_azure),
}
"""Each cloud's metadata service: its address, and what asks it, which takes the address, when to give up, and
the name to take on AWS."""


def _get(url: str, until: float, method: str, headers: dict[str, str]) -> tuple[str, str]:
    """Return the text of an answer, and what kind of service says it is."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - http, and ours
    try:
        with _OPENER.open(request, timeout=left) as answer:
            body = answer.read(_MOST_BYTES)
            if len(body) < int(answer.headers.get("Content-Length") or 0):
                raise NoAnswer("the answer was cut off")
            return body.decode("utf-8", "replace"), answer.headers.get("Metadata-Flavor", "")
    except urllib.error.HTTPError as error:
        raise NoAnswer(f"HTTP {error.code}") from None
    except OSError as error:
        # Older Pythons have a time-out of their own for each of the ways in which this one shows.
        if "timed out" in str(error):
            raise TimeoutError("no answer in time") from None
        raise NoAnswer(str(getattr(error, "reason", error))) from None


if __name__ == "__main__":
    sys.exit(main())
