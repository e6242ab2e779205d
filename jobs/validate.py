"""spark-submit jobs/validate.py ... is `oncelake validate ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["validate", *sys.argv[1:]])
