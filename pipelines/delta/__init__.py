"""Delta tables: shapes, commits, fencing, upkeep, and how they match checkpoints."""
