"""spark-submit jobs/ingest_stream.py ... is `oncelake ingest_stream ...`."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    main(["ingest_stream", *sys.argv[1:]])
