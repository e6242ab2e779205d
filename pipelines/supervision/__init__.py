"""Keeps the streams of pipelines running: child processes that are started again after a failure."""
