"""Schema registries: wire format, client, schemas as Spark columns, compatibility."""
