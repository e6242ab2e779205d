"""The console: pages over a lake, from figures that were collected before somebody asks."""
