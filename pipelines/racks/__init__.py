"""Racks and zones: topology, traffic, advice, reassignment."""
