"""Delta tables: shapes, commits, fencing, upkeep, and how they go together with checkpoints."""
