"""Build the wheel, and the same bytes under the name .zip: `make package`.

Spark's executors import from a zip given to --py-files, but not from a wheel.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pipelines.resources import home
from pipelines.runtime.jars import exclusively
from pipelines.runtime.own_jar import build_rack_jar, packaged_jar

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path) -> tuple[Path, Path]:
    """Build both files.

    Args:
        folder: where they go; made if missing.

    Returns:
        The paths of the wheel and of the zip.
    """
    folder.mkdir(parents=True, exist_ok=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    jar = packaged_jar()
    home().mkdir(parents=True, exist_ok=True)
    with (
        exclusively(home() / "package.lock", "another process is packaging; waiting for it"),
        tempfile.TemporaryDirectory() as fresh,
    ):
        if not jar.exists():
            shutil.rmtree(jar.parent, ignore_errors=True)
            build_rack_jar(jar)
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", fresh, str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (built,) = Path(fresh).glob("*.whl")
        wheel = Path(shutil.copy(built, folder))
    return wheel, Path(shutil.copy(wheel, folder / f"oncelake-{version}.zip"))


if __name__ == "__main__":
    for made in build(Path(sys.argv[1])):
        print(made)
