"""The Spark session, streaming queries and their failures, checks before a job starts."""
