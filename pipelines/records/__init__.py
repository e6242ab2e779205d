"""From bytes to events or faults: decoding, validation, deduplication, fingerprints, redaction."""
