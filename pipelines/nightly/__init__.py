"""The parts of a nightly run: seal, plan, build, recovery, verdicts."""
