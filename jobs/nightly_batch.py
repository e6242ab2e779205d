"""spark-submit jobs/nightly_batch.py ... is `oncelake nightly_batch ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["nightly_batch", *sys.argv[1:]])
