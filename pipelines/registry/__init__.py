"""Schema registries: what one must offer, Confluent's, and its wire format."""
