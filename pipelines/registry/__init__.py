"""Schema registries: what one must offer, how values name schemas, and the client for Confluent's."""
