"""What demo, benchmarks, chaos and tests share: waiting, brief JVMs, racks, a schema registry."""
