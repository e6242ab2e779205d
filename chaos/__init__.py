"""Real processes under random faults, and an oracle that knows what producers sent."""
