"""Write conf/jars.lock from conf/ivy.xml: `make lock-jars`."""

from pathlib import Path

from pipelines.runtime.jars import LOCK, write_lock

if __name__ == "__main__":
    write_lock(Path(__file__).resolve().parent.parent / LOCK)
