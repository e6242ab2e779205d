"""Readers: Kafka topics and Delta tables as frames."""
