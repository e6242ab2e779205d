"""A deterministic simulation of the protocols: the code of the jobs over models of Delta and Kafka."""
