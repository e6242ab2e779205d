"""Files for those who run the jobs of a pipeline, made from its configuration."""
