"""spark-submit jobs/report.py ... is `oncelake report ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["report", *sys.argv[1:]])
