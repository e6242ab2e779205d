"""What a job needs before Spark: Java, jars, trust, processes; a local broker and a project to start from."""
