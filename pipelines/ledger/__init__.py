"""What the lake knows of itself: verdicts, runs, leases, the index of bronze, checks, quarantine."""
