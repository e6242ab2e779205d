"""What a pipeline needs around the data: Java, jars, a broker, checks before a run, leases, run records."""
