"""spark-submit jobs/publish_stream.py ... is `oncelake publish_stream ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["publish_stream", *sys.argv[1:]])
