"""Write dist/sbom.cdx.json, a software bill of materials in CycloneDX 1.6, from the locks: `make sbom`.

The format: https://cyclonedx.org/docs/1.6/json/.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
REQUIREMENTS: Final = ("requirements/dev.txt", "requirements/jdk.txt")
JARS: Final = "conf/jars.lock"
_PINNED: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)[^\n]*\\\n"
    r"(?P<hashes>(?:    --hash=.*\n)+)",
    re.MULTILINE,
)
_JAR: Final = re.compile(r"^(?P<hash>[0-9a-f]{64}) +(?P<use>\w+) +(?P<name>.+)-(?P<version>\d[^-]*)\.jar$")


def bill(root: Path = ROOT) -> dict[str, Any]:
    """Return the bill of materials: all pinned Python packages, those for tests as well, and all jars.

    Args:
        root: the folder of the project.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = {each["purl"]: each for file in REQUIREMENTS for each in _packages(root / file)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [*packages.values(), *_jars(root / JARS)],
    }


def _packages(requirements: Path) -> Iterator[dict[str, Any]]:
    for pinned in _PINNED.finditer(requirements.read_text(encoding="utf-8")):
        name, version = pinned["name"].lower().replace("_", "-"), pinned["version"]
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            # One for each file of the package: which is installed depends on the platform.
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{version}/",
                    "hashes": [
                        {"alg": "SHA-256", "content": found}
                        for found in re.findall(r"sha256:([0-9a-f]{64})", pinned["hashes"])
                    ],
                }
            ],
        }


def _jars(lock: Path) -> Iterator[dict[str, Any]]:
    for line in lock.read_text(encoding="utf-8").splitlines():
        if jar := _JAR.match(line):
            yield {
                "type": "library",
                "name": jar["name"],
                "version": jar["version"],
                "purl": f"pkg:generic/{jar['name']}@{jar['version']}?checksum=sha256:{jar['hash']}",
                "hashes": [{"alg": "SHA-256", "content": jar["hash"]}],
                "properties": [{"name": "oncelake:use", "value": jar["use"]}],
            }


if __name__ == "__main__":
    target = Path(sys.argv[1], "sbom.cdx.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(), indent=2) + "\n", encoding="utf-8")
    print(target)
