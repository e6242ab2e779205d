"""spark-submit jobs/maintain.py ... is `oncelake maintain ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["maintain", *sys.argv[1:]])
