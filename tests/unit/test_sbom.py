"""The bill of materials has every package and every jar that the locks pin, with its hashes."""

import re
from pathlib import Path

from scripts.sbom import JARS, REQUIREMENTS, bill


def test_the_bill_has_what_the_locks_pin_and_each_has_a_hash() -> None:
    components = bill()["components"]
    packages = [each for each in components if each["purl"].startswith("pkg:pypi/")]
    jars = [each for each in components if each["purl"].startswith("pkg:generic/")]
    texts = [Path(file).read_text(encoding="utf-8") for file in REQUIREMENTS]
    pinned = {
        line
        for text in texts
        for line in re.findall(r"^([\w.-]+(?:\[.*?\])?==[^\s;\\]+)", text, re.MULTILINE)
    }
    assert len(packages) == len(pinned) > 50
    assert all(each["externalReferences"][0]["hashes"] for each in packages)
    locked = [line for line in Path(JARS).read_text(encoding="utf-8").splitlines() if line.endswith(".jar")]
    assert [each["hashes"][0]["content"] for each in jars] == [line.split()[0] for line in locked]
    assert len({each["purl"] for each in components}) == len(components)
