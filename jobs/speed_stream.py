"""spark-submit jobs/speed_stream.py ... is `oncelake speed_stream ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["speed_stream", *sys.argv[1:]])
