"""Kafka topics: the source, offsets, the admin client, the topic for dead letters."""
