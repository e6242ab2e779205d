"""`python -m pipelines.cli` is `oncelake`."""

from pipelines.cli import main

main()
