"""How far the streams of a pipeline are behind, and why."""
