"""What is wrong with a pipeline: facts, checks and findings."""
