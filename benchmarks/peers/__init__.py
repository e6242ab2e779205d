"""Other ways to deduplicate a Kafka topic, measured beside Oncelake: `python -m benchmarks.peers`."""
